"""What explains a change of idle time: the host, a rank, new waits, or work that takes less."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, records
from nsys_llm.report.templates import filled
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, HOST, IDLE, idle_group
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import format_ns, listed, quoted

from ..tables.side_by_side import CALL, IMPROVE, INSUFFICIENT, REGRESS
from ..tables.step_splits import SPAN
from .change import LEAST_SHARE, ClassChange, Clock, a_unit, number_of, numbered
from .texts import HOST_FIRST, HOST_NEXT, SLOWER_HOST_SHARE_PCT

#: Causes of idle time that a faster host shortens.
_HOST_CAUSES: Final = tuple(name for name in CAUSE_NAMES if idle_group(name) == HOST)
#: What calls of a class are called, by class.
_KIND_WORDS: Final = {
    "launch": "launch",
    "graph_launch": "launch",
    "memcpy": "copy",
    "memset": "fill",
    "event": "event",
    "stream_order": "event",
}
_OTHER: Final = "other"
_RANGES: Final = "NVTX ranges"
#: Ratios below this need three figures.
_SMALL_RATIO: Final = 1.1
#: Calls whose medians are named, and are evidence, at most.
_MOST_NAMED: Final = 2
_MOST_CALLS: Final = 3
#: A change is that of one rank, or of what a range holds, if it has so much of it; ours.
_MOST_SHARE: Final = 0.5
#: Calls are more if there are so many times as many, and so many more a step; ours.
_MORE: Final = 1.2
_LEAST_MORE: Final = 0.5
#: Idle time that waits of the host make: in a wait, and from the launch after it to its start.
_OF_WAITS: Final = ("host_sync", "sync_memop", "launch_latency")


def explain_idle(clock: Clock, change: ClassChange) -> ClassChange:
    """Explain the change of idle time."""
    for explain in (_moved_host, _rank, _waits):
        explained = explain(clock, change)
        if explained is not None:
            return explained
    graphs = [row for row in records(clock.tables["apis"]) if row["class"] == "graph_launch"]
    before_n, after_n = (sum(row[f"{side}_calls_n"] for row in graphs) for side in COMPARED)
    if before_n and not after_n and change.mean_ns > 0:
        return change.by("graphs_lost", Cause("host"), {"graphs_n": before_n})
    work_ns = sum(clock.mean_ns(name) for name in (COMPUTE, COMMUNICATION, COPIES))
    most, is_more = change.most_detail, change.mean_ns > 0
    fields = {
        "most": f"mostly {quoted(most)}" if most else "cause not known",
        "working": "GPUs" if is_more and -work_ns >= _MOST_SHARE * change.mean_ns else None,
        "cause_ns": change.details.get(most or "", 0.0),
        **_range_fields(clock, change),
    }
    cause = Cause("host" if most in _HOST_CAUSES else "queued")
    return change.by("more_idle" if is_more else "less_idle", cause, fields)


def _rank(clock: Clock, change: ClassChange) -> ClassChange | None:
    """Explain by one rank that is idle longer, or less, where the others are not; else None."""
    gpus, cost_ns = clock.by_gpu(IDLE), change.cost_ns
    others = [row["change_ns"] for key, row in gpus.items() if key[0] != change.rank]
    if not others or max(ns / cost_ns for ns in others) > _MOST_SHARE:
        return None
    most = max(change.details, key=lambda name: change.details[name] / cost_ns, default=None)
    fields = {"rank": change.rank, "moved_ns": abs(cost_ns), "most": most and quoted(most),
              "longer": "longer" if cost_ns > 0 else "less",
              **_range_fields(clock, change)}  # fmt: skip
    return change.by("idle_rank", Cause("host", change.rank), fields)


def _range_fields(clock: Clock, change: ClassChange) -> dict[str, Any]:
    """Return in which range of the host most of the change is; nulls where in none."""
    rows = [row for row in records(clock.tables["idle_ranges"]) if row["range"]]
    rows = [row for row in rows if row["rank_change_ns"] * change.cost_ns > 0]
    most = max(rows, key=lambda row: abs(row["rank_change_ns"]), default=None)
    if most is None or abs(most["rank_change_ns"]) < _MOST_SHARE * abs(change.cost_ns):
        return dict.fromkeys(("range", "range_ns"))
    return {"range": most["range"], "range_ns": most["rank_change_ns"]}


def _waits(clock: Clock, change: ClassChange) -> ClassChange | None:
    """Explain by new waits of the host for the GPU; None where there are none."""
    waited_ns = sum(change.details.get(name, 0.0) for name in _OF_WAITS)
    if change.mean_ns <= 0 or waited_ns < _MOST_SHARE * change.cost_ns:
        return None
    runs, verdict = clock.tables["runs"].set_index("run"), clock.verdict
    ranks_n = [float(runs.loc[side, "ranks_n"]) for side in COMPARED]
    if verdict["basis"] != SPAN:
        steps_n = (max(verdict[f"{side}_steps_n"], 1) for side in COMPARED)
        ranks_n = [n * steps for n, steps in zip(ranks_n, steps_n, strict=True)]
    waits = [
        (row["baseline_calls_n"] / ranks_n[0], row["input_calls_n"] / ranks_n[1], row["api"])
        for row in records(clock.tables["apis"])
        if row["class"] in ("host_block", "sync_memop")
    ]
    more = [(n0, n1, name) for n0, n1, name in waits if n1 > max(_MORE * n0, n0 + _LEAST_MORE)]
    if not more:
        return None
    n0, n1, name = max(more, key=lambda wait: wait[1] - wait[0])
    fields = {"name": name, "before": number_of(n0), "after": number_of(n1),
              "a_step": a_unit(clock.unit), "baseline_n": n0, "input_n": n1}  # fmt: skip
    return change.by("new_waits", Cause("wait", detail=name), fields)


def _moved_host(clock: Clock, change: ClassChange) -> ClassChange | None:
    """Explain by a host that is slower, or faster, by enough of the difference; None without."""
    change_ns = clock.verdict["change_ns"]
    host_ns = sum(ns for cause, ns in change.details.items() if cause in _HOST_CAUSES)
    rows = [row for row in records(clock.tables["host"]) if row["verdict"] != INSUFFICIENT]
    wanted = REGRESS if change.mean_ns > 0 else IMPROVE
    moved = [row for row in rows if row["verdict"] == wanted]
    whole_ns, moved_ns = (sum(row["baseline_total_ns"] for row in some) for some in (rows, moved))
    alike = min(host_ns * change.mean_ns, change_ns * change.mean_ns) > 0
    few = 100 * moved_ns / max(whole_ns, 1) < SLOWER_HOST_SHARE_PCT
    if few or not alike or 2 * abs(host_ns) < abs(change.cost_ns):
        return None
    moved.sort(key=lambda row: (-row["baseline_total_ns"], row["name"]))
    # How much longer the calls and ranges of the baseline take at the medians of the input.
    before, after = (
        sum(row["baseline_n"] * row[f"{side}_p50_ns"] for row in rows) for side in COMPARED
    )
    # What a host is slower in a step bounds what it makes: idle time grows behind a faster GPU too.
    step_ns = clock.step_ns(change.rank, change.device_id)
    most_ns = abs(1 - before / after) * step_ns if after else inf
    if most_ns < LEAST_SHARE * abs(change_ns):
        return None
    calls = [row for row in moved if row["kind"] == CALL][:_MOST_CALLS]
    ranges = [row for row in moved if row["kind"] != CALL]
    ranges = sorted(ranges, key=lambda row: -row["baseline_n"])[:1]
    groups = [_group_fields(named, moved, rows) for named in (calls, ranges) if named]
    words = [
        filled(HOST_NEXT if place else HOST_FIRST, group) for place, group in enumerate(groups)
    ]
    columns = ("baseline_p50_ns", "input_p50_ns", "p50_ratio")
    evidence = tuple(
        cell for row in (*calls, *ranges) for cell in cells("host", row, ("kind", "name"), columns)
    )
    rule = "slower_host" if change.mean_ns > 0 else "faster_host"
    fields = {"words": ", ".join(words), **numbered("group", groups)}
    return change.by(rule, Cause("host"), fields, evidence, most_ns)


def _group_fields(
    named: Sequence[Record], moved: Sequence[Record], rows: Sequence[Record]
) -> dict[str, Any]:
    """Return how much longer the kinds of some calls take, of those that changed and of all."""
    kinds = {_kind(row) for row in named}
    ratios = [row["p50_ratio"] for row in moved if _kind(row) in kinds]
    tested_n = sum(_kind(row) in kinds for row in rows)
    order = [word for word in (*dict.fromkeys(_KIND_WORDS.values()), _OTHER) if word in kinds]
    low, high = _ratio(min(ratios)), _ratio(max(ratios))
    return {
        "part": "" if len(ratios) == tested_n else f"{len(ratios)} of {tested_n} ",
        "kinds": f"{listed(order)} calls" if order else _RANGES,
        "longer": low if low == high else f"{low} to {high}",
        "medians": ", ".join(map(_medians, named[:_MOST_NAMED])),
        "moved_n": len(ratios),
        "tested_n": tested_n,
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
    }


def _medians(row: Record) -> str:
    """Return both medians of a call or range in three figures: `name` 5.65 -> 8.41 us."""
    before, after = (format_ns(row[f"{side}_p50_ns"]) for side in COMPARED)
    unit = after.rpartition(" ")[2]
    return f"{quoted(row['name'])} {before.removesuffix(f' {unit}')} -> {after}"


def _ratio(value: float) -> str:
    """Return a ratio in the figures that tell it from 1: `1.03`, `1.6`."""
    return f"{value:.3g}" if value < _SMALL_RATIO else f"{value:.2g}"


def _kind(row: Record) -> str:
    """Return what a row of the table host is called: launch, copy, ..., or NVTX ranges."""
    return _KIND_WORDS.get(classify_api(row["name"]), _OTHER) if row["kind"] == CALL else _RANGES
