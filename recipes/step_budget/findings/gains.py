"""Findings on what a fix of the critical path could gain. Made from finished tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nsys_llm.manifest.what_if import COPIES as COPIES_FREE
from nsys_llm.manifest.what_if import RANK
from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.gains import Gain
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.large_copies import LARGE_BYTES
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.view.text import (
    counted,
    format_bytes,
    format_ns,
    format_percent,
    quoted,
    shortened,
)

from .on_gpu import Gpu, critical_file, gain_on, gpu_of_file
from .replays import (
    EXPOSED_PCT,
    LATE_HOST,
    WAITS,
    Exposed,
    exposed_host,
    exposed_words,
    limit_words,
    replay_words,
    replayed,
    step_unit,
)
from .texts import CERTAIN_PCT, RULES

#: Classes of the path that other recipes' findings are about, too: a host that is late, transfer.
_CULPRITS: Final = {
    "host_no_cuda": LATE_HOST,
    "launch_api": LATE_HOST,
    "other_api": LATE_HOST,
    "transfer": "communication:transfer",
    "copy": "copies:link",
    "alloc": "idle:alloc",
}
#: Likewise calls that wait, by a part of their names.
_WAITING_CALLS: Final = {
    "Synchronize": "idle:host_sync",
    "Memcpy": "idle:sync_memop",
    "Memset": "idle:sync_memop",
    "Malloc": "idle:alloc",
    "Free": "idle:alloc",
}

#: Where time is.
_ON_PATH: Final = "on the path through the whole run"
#: Names that a finding lists.
_TOP: Final = 3
_WHICH: Final = ("change", "name")
#: The time behind a wait is host time, too.
_BEHIND: Final = (
    " This is host time after the wait, while the GPU is idle. It is also part of host work and "
    "launch calls on the path, so these gains do not add up."
)


@dataclass(frozen=True)
class Lever:
    """A finding on rows of `ceilings`.

    Attributes:
        rule: Its rule.
        change: What would change.
        names: Which of them; none for all.
        wall_classes: Classes of the wall split that a fix draws on.
        about: What lists the details: another change of `ceilings`.
        beside: What stands beside it on the path, likewise.
        replay: The change of `what_if` that is the fix, with {name}; "" for none.
        replayed_classes: Classes that a fix draws on, too, where a replay says what it gains.
    """

    rule: str
    change: str
    names: tuple[str, ...]
    wall_classes: tuple[str, ...]
    about: str | None = None
    beside: str | None = None
    replay: str = ""
    replayed_classes: tuple[str, ...] = ()


#: What a host that launches earlier shortens: ranks wait for each other less, too.
_HELD_UP: Final = (IDLE, COMMUNICATION)
#: What a rank that is earlier shortens on its GPU.
_LATENESS: Final = (COMPUTE, COPIES, IDLE)
LEVERS: Final = (
    Lever("path_host_work", "class", ("host_no_cuda",), _HELD_UP, "range", "kernel"),
    Lever("path_launch_calls", "class", ("launch_api",), _HELD_UP, "api"),
    Lever("path_allocations", "class", ("alloc",), _HELD_UP, "api"),
    Lever(WAITS, "wait", (), (IDLE,), replay="wait:{name}", replayed_classes=(COMMUNICATION,)),
    Lever("path_transfer", "class", ("transfer",), (COMMUNICATION,)),
    Lever("path_copies", "class", ("copy",), (COPIES, IDLE), "copy", replay="copies=0"),
)


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    rows = records(tables["ceilings"])
    steps = records(tables["job_steps"])
    whole = [row for row in steps if not row["mark"]]
    if not rows or not whole:
        return []
    reported = [
        *_without_twice(tables, _levers(rows, tables, len(whole))),
        *rank_findings(tables),
        *_repeated(rows, tables, len(whole)),
    ]
    return [*reported, *_inferred(whole)]


def _levers(rows: Sequence[Record], tables: Tables, n: int) -> list[Finding]:
    critical = gpu_of_file(tables, critical_file(tables, rows))
    return [
        _finding(lever, row, critical, tables, n)
        for lever in LEVERS
        for row in rows
        if row["change"] == lever.change and row["name"] in (lever.names or (row["name"],))
    ]


def _without_twice(tables: Tables, reported: list[Finding]) -> list[Finding]:
    """Return findings, a wait and the host's work that only this wait exposes as one."""
    exposed = exposed_host(tables, reported)
    if exposed is None:
        return reported
    others = [
        finding
        for finding in reported
        if finding is not exposed.wait and finding not in exposed.others
    ]
    return [*others, _with_host(tables, exposed)]


def _with_host(tables: Tables, exposed: Exposed) -> Finding:
    """Return the finding on a wait with what the host's work behind it is."""
    wait, (same, of_host) = exposed.wait, exposed_words(exposed)
    most, ranges = _most(tables, "range", "path_ns", "Most of the host's time on the path")
    others = [cell for other in exposed.others for cell in other.evidence]
    return replace(
        wait,
        details=wait.details + same + most,
        evidence=tuple(dict.fromkeys((*wait.evidence, *of_host, *others, *ranges))),
        numbers={**wait.numbers, EXPOSED_PCT: exposed.fast_host["gain_pct"]},
    )


def _finding(lever: Lever, row: Record, gpu: Gpu, tables: Tables, n: int) -> Finding:
    replay = replayed(tables, lever.replay.format(name=row["name"]))
    gain = gain_on(row, gpu, _drawn_on(lever, replay), tables, n, replay)
    named, unit = lever.change == "wait", step_unit(tables)
    words, of_replay = replay_words(replay, unit)
    limit, limit_numbers = limit_words(gain, gpu.cut_ns, row, replay, tables)
    most, of_most = _most(tables, lever.about, "path_ns", "Most of it")
    beside, of_beside = _most(
        tables, lever.beside, "worst_ns", f"Most of a single {unit}'s path is taken by the kernels"
    )
    evidence = cells("ceilings", row, _WHICH, ("path_ns", "worst_ns", "certain_pct"))
    return RULES[lever.rule].finding(
        gain=gain,
        fields={"name": quoted(row["name"]), "unit": unit},
        details=_details(row, unit) + (_BEHIND if named else "") + words + limit + most + beside,
        evidence=evidence + of_replay + of_most + of_beside,
        numbers=limit_numbers,
        culprit=_culprit(str(row["name"]), named=named),
        ranks=(gpu.rank,),
        rank=gpu.rank,
        device_id=gpu.device_id,
        name=row["name"] if named else None,
        window_ns=_window(tables, gpu, row["worst_step"]),
        impact_ns=round(row["path_ns"] * n),
    )


def _drawn_on(lever: Lever, replay: Record | None) -> tuple[str, ...]:
    return lever.wall_classes + (lever.replayed_classes if replay is not None else ())


def fix_gain(rows: Sequence[Record], tables: Tables, replay: Record) -> Gain:
    """Return what a fix that is replayed gains on a GPU, as the finding on it has it.

    Args:
        rows: Of the table ceilings.
        tables: All tables of the run; there is a step that counts.
        replay: Row of what_if, with a gain.
    """
    what = replay["what"]
    file, change = critical_file(tables, rows), ""
    drawn_on: tuple[str, ...] = _HELD_UP
    lever = next((lever for lever in LEVERS if lever.replay.startswith(what)), None)
    if what == RANK:
        file, change, drawn_on = replay["name"], "straggler", _LATENESS
    elif lever is not None:
        change, drawn_on = lever.change, _drawn_on(lever, replay)
    name = "copy" if what == COPIES_FREE else replay["name"]
    # A fix without such a row is an estimate alone.
    estimate = {"path_ns": replay["gain_ns"], "is_bound": False, "worst_ns": 0}
    row = next((row for row in rows if (row["change"], row["name"]) == (change, name)), estimate)
    n = int((tables["job_steps"]["mark"] == "").sum())
    return gain_on(row, gpu_of_file(tables, file), drawn_on, tables, n, replay)


def _most(
    tables: Tables, change: str | None, column: str, words: str
) -> tuple[str, tuple[Evidence, ...]]:
    """Return the largest rows of a change as a sentence, and their cells."""
    rows = [row for row in records(tables["ceilings"]) if row["change"] == change and row[column]]
    top = sorted(rows, key=lambda row: -row[column])[:_TOP]
    if not top:
        return "", ()
    parts = [f"{quoted(shortened(row['name']))} {format_ns(row[column])}" for row in top]
    evidence = [cell for row in top for cell in cells("ceilings", row, _WHICH, (column,))]
    return f" {words}: {', '.join(parts)}.", tuple(evidence)


def _culprit(name: str, *, named: bool) -> str:
    """Return what to change, by the names that other recipes give it."""
    if not named:
        return _CULPRITS.get(name, f"class:{name}")
    known = (culprit for part, culprit in _WAITING_CALLS.items() if part in name)
    return next(known, f"api:{name}")


def _details(row: Record, unit: str) -> str:
    certain = row["certain_pct"]
    sure = "" if certain is None else f", {format_percent(certain)} of it certain"
    return (
        f"{format_ns(row['path_ns'])} a {unit} {_ON_PATH}{sure}; "
        f"{format_ns(row['worst_ns'])} in the worst {unit}."
    )


def _repeated(rows: Sequence[Record], tables: Tables, n: int) -> list[Finding]:
    """Return the finding on the rank that copies most to the device, the same in every step."""
    edges = [row for row in records(tables["rank_edges"]) if row["repeated_copies_n"]]
    on_path = [row for row in rows if row["change"] == "copy" and "HtoD" in row["name"]]
    if not edges or not on_path:
        return []
    edge = max(edges, key=lambda row: row["repeated_ns"])
    gpu, step_ns = gpu_of_file(tables, edge["file"]), edge["repeated_ns"] / n
    path_ns = min(sum(row["path_ns"] for row in on_path), step_ns)
    copies = {**on_path[0], "path_ns": path_ns}
    gain = gain_on(copies, gpu, (COPIES, IDLE), tables, n)
    size = format_bytes(edge["repeated_bytes"])
    reported = counted(edge["repeated_copies_n"], "copy", "copies")
    return [
        RULES["repeated_copies"].finding(
            gain=gain,
            fields={"copies": reported, "unit": edge["step_unit"], "size": size},
            details=f"{reported} of {format_bytes(LARGE_BYTES)} or more each, of the same sizes in "
            f"all {n} {edge['step_unit']}s of rank {gpu.rank}; they take {format_ns(step_ns)} a "
            f"{edge['step_unit']}, {format_ns(path_ns)} of it on the critical path.",
            evidence=cells(
                "rank_edges", edge, ("rank", "file"), ("repeated_copies_n", "repeated_bytes")
            ),
            numbers={
                "least_bytes": LARGE_BYTES,
                "steps_n": n,
                "step_ns": step_ns,
                "path_ns": path_ns,
            },
            culprit="copies:HtoD",
            ranks=(gpu.rank,),
            rank=gpu.rank,
            device_id=gpu.device_id,
            name="HtoD",
            impact_ns=edge["repeated_ns"],
        )
    ]


def _window(tables: Tables, gpu: Gpu, step: int | None) -> tuple[int, int] | None:
    """Return a step of the job on a GPU, in the clock of its profile."""
    if step is None:
        return None
    steps = tables["device_steps"]
    device_rows = steps[(steps["file"] == gpu.file) & (steps["device_id"] == gpu.device_id)]
    device_rows = device_rows[device_rows["job_step"] == step]
    if device_rows.empty:
        return None
    return int(device_rows["start_ns"].iloc[0]), int(device_rows["end_ns"].iloc[0])


def _inferred(steps: Sequence[Record]) -> list[Finding]:
    wall_ns = sum(row["wall_ns"] for row in steps)
    certain_ns = sum(row["certain_ns"] for row in steps)
    certain_pct = 100.0 * certain_ns / wall_ns if wall_ns else 100.0
    if certain_pct >= CERTAIN_PCT:
        return []
    return [
        RULES["path_inferred"].finding(
            details=f"{format_ns(wall_ns - certain_ns)} of {format_ns(wall_ns)} lie behind an edge "
            "that no row of the profiles shows.",
            fields={"share": format_percent(certain_pct)},
            numbers={
                "certain_pct": certain_pct,
                "inferred_ns": wall_ns - certain_ns,
                "wall_ns": wall_ns,
            },
        )
    ]
