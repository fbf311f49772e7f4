"""What a replay says of the fix that a finding proposes, and of the time that fixes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.gains import TAIL, Gain
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COPIES, IDLE
from nsys_llm.view.text import counted, format_ns, format_percent, listed

#: Rule of waits, and the culprit of findings on time in which a host was late.
WAITS: Final = "path_waits"
LATE_HOST: Final = "host:late"
#: Number of a wait that exposes the host's work: what a host without delays gains, percent.
EXPOSED_PCT: Final = "fast_host_pct"

#: Numbers of a gain on a GPU whose span has more than steps: how many it is of, and their time.
_WHOLE_STEPS_N: Final = "whole_steps_n"
_WHOLE_STEPS_NS: Final = "whole_steps_ns"
_CUT_STEPS_NS: Final = "cut_steps_ns"

#: Mark of a step that the capture cuts.
_CUT: Final = "cut"

#: A host that takes no time, as a change that is replayed.
FAST_HOST: Final = "host=0"


def step_unit(tables: Tables) -> str:
    """Return what a step of the job is; without steps, the run is one."""
    units = tables["rank_edges"]["step_unit"].dropna()
    return str(units.iloc[0]) if len(units) else "step"


def replayed(tables: Tables, change: str) -> Record | None:
    """Return the row of what_if of a change; None where it is not replayed."""
    rows = [row for row in records(tables["what_if"]) if row["gain_ns"] is not None]
    return next((row for row in rows if row["change"] == change), None)


def replay_words(row: Record | None, unit: str) -> tuple[str, tuple[Evidence, ...]]:
    """Return what a replay says of a fix, as a sentence, and the cells with its numbers."""
    if row is None or row["gain_pct"] is None or row["certain_pct"] is None:
        return "", ()
    reported = (
        f" Replayed with the fix, a {unit} takes {format_ns(row['then_ns'])}, "
        f"{format_percent(row['gain_pct'])} less; {format_percent(row['certain_pct'])} of the path "
        "then is certain."
    )
    return reported, cells("what_if", row, ("change",), ("then_ns", "gain_pct", "certain_pct"))


def steps_in(span_ns: int, tables: Tables) -> float:
    """Return how many mean steps a span is as long as, so that shares of both are the same."""
    steps_n, whole_ns = _counted(tables)
    return span_ns * steps_n / whole_ns if whole_ns else float(steps_n)


def steps_gained(span_ns: int, cut_ns: int, tables: Tables) -> float:
    """Return how many steps of a GPU's span a gain is of.

    Those that count, and those that the capture cuts in proportion: where steps fill the span, a
    gain is the same share of it as of a step. A start-up or warm-up is none.

    Args:
        span_ns: From the GPU's first operation to its last one.
        cut_ns: See `cut_steps_ns`.
        tables: All tables of the run.
    """
    steps_n, whole_ns = _counted(tables)
    if not whole_ns:
        return float(steps_n)
    # The steps of the job overlap those of a GPU that the capture cuts.
    fitting_n = max(steps_in(span_ns, tables), float(steps_n))
    return min(steps_n + cut_ns * steps_n / whole_ns, fitting_n)


def cut_steps_ns(file: str, device_id: int, tables: Tables) -> int:
    """Return the time of a GPU in steps that the capture cuts, ns; of each no more than a mean one.

    Args:
        file: Label of the rank.
        device_id: Of the GPU.
        tables: All tables of the run.
    """
    steps_n, whole_ns = _counted(tables)
    steps, wall, edges = tables["device_steps"], tables["wall"], tables["rank_edges"]
    gpu = steps[(steps["file"] == file) & (steps["device_id"] == device_id)]
    span = wall[(wall["file"] == file) & (wall["device_id"] == device_id)]
    if gpu.empty or span.empty or not steps_n:
        return 0
    first_ns, last_ns = int(span["span_start_ns"].iloc[0]), int(span["span_end_ns"].iloc[0])
    cut = gpu[gpu["mark"] == _CUT]
    start_ns, end_ns = cut["start_ns"].tolist(), cut["end_ns"].tolist()
    if edges.loc[edges["file"] == file, "begins_in_step"].any():
        start_ns, end_ns = [first_ns, *start_ns], [int(gpu["start_ns"].iloc[0]), *end_ns]
    most_ns = whole_ns // steps_n
    parts = zip(start_ns, end_ns, strict=True)
    times = [min(end, last_ns) - max(start, first_ns) for start, end in parts]
    return sum(max(min(time_ns, most_ns), 0) for time_ns in times)


def _counted(tables: Tables) -> tuple[int, int]:
    """Return the number of steps that count, and their time."""
    steps = tables["job_steps"]
    counted_ns = steps.loc[steps["mark"] == "", "wall_ns"]
    return len(counted_ns), int(counted_ns.sum())


def limit_words(
    gain: Gain, cut_ns: int, row: Record, replay: Record | None, tables: Tables
) -> tuple[str, dict[str, float]]:
    """Return why a gain is another share of its GPU's time than of a step, and the numbers in it.

    Nothing where it is the same share, as it is shown.

    Args:
        gain: On one GPU, whose span may have more than the steps that count.
        cut_ns: See `cut_steps_ns`.
        row: Of `ceilings`: what it is a gain of.
        replay: Of `what_if`, likewise; None where it is not replayed.
        tables: All tables of the run.
    """
    step_ns = row["path_ns"] if gain.basis == "path" or replay is None else replay["gain_ns"]
    steps_n = 1 if gain.steps_n is None else steps_gained(gain.span_ns, cut_ns, tables)
    if round(step_ns * steps_n) > gain.gain_ns:
        most = f"{format_ns(gain.gain_ns)}, the {_time_words(gain.wall_classes)} of this GPU"
        return f" The gain is limited to {most}.", {}
    n, whole_ns = _counted(tables)
    if format_percent(100.0 * step_ns * n / whole_ns) == format_percent(gain.gain_pct):
        return "", {}
    takes, unit = "takes" if n == 1 else "take", step_unit(tables)
    numbers: dict[str, float] = {_WHOLE_STEPS_N: n, _WHOLE_STEPS_NS: whole_ns}
    parts = ""
    if steps_n > n and gain.steps_n is not None:
        parts_ns = numbers[_CUT_STEPS_NS] = round((steps_n - n) * whole_ns / n)
        parts = f", and of {format_ns(parts_ns)} of {unit}s that the capture cuts"
    reported = (
        f" The gain is that of {counted(n, f'whole {unit}')}, which {takes} "
        f"{format_ns(whole_ns)}{parts}; the span of this GPU is {format_ns(gain.span_ns)}."
    )
    return reported, numbers


def _time_words(wall_classes: Sequence[str]) -> str:
    """Return the time that a gain draws on; of communication, beside idle time, only the waits."""
    waits = "waiting" if IDLE in wall_classes else "communication"
    words = {COMMUNICATION: waits, COPIES: "copy"}
    return f"{listed([words.get(name, name) for name in wall_classes])} time"


@dataclass(frozen=True)
class Exposed:
    """A wait, and findings on the same time: that of the host which is exposed by it.

    Attributes:
        wait: The finding on the wait.
        others: Those on the host.
        fast_host: Row of what_if of a host that takes no time.
    """

    wait: Finding
    others: tuple[Finding, ...]
    fast_host: Record


def waits_expose(waits_ns: int, fast_host_ns: int) -> bool:
    """Return whether waits are why the host's work is on the path, by what replays gain.

    They are where replays without them gain more than half of what one with a host that takes no
    time does; otherwise the host is late without a wait, too: two things to fix.
    """
    return 2 * waits_ns > fast_host_ns


def exposed_host(tables: Tables, reported: Sequence[Finding]) -> Exposed | None:
    """Return the wait that is why the host's work is on the path, if waits are.

    A finding on the host is the same time if it gains no more than twice what the wait does.
    """
    fast = replayed(tables, FAST_HOST)
    rows = {
        finding.name: replayed(tables, f"wait:{finding.name}")
        for finding in reported
        if _is_shown_wait(finding)
    }
    gains_ns = {name: row["gain_ns"] for name, row in rows.items() if row is not None}
    if fast is None or not gains_ns or not waits_expose(sum(gains_ns.values()), fast["gain_ns"]):
        return None
    first = max((finding for finding in reported if finding.name in gains_ns), key=_gain_ns)
    others = [finding for finding in reported if finding.culprit == LATE_HOST and finding.severity]
    others = [finding for finding in others if _gain_ns(finding) <= 2 * _gain_ns(first)]
    return Exposed(first, tuple(others), fast) if others else None


def _is_shown_wait(finding: Finding) -> bool:
    return finding.rule == WAITS and finding.severity not in (None, TAIL)


def _gain_ns(finding: Finding) -> int:
    return finding.gain.gain_ns if finding.gain is not None else 0


def exposed_words(exposed: Exposed) -> tuple[str, tuple[Evidence, ...]]:
    """Return what a wait exposes, as a sentence, and the cell with its number."""
    first, *others = [other.title for other in exposed.others]
    names = listed([first, *(f"{title[0].lower()}{title[1:]}" for title in others)])
    noun = "findings" if others else "finding"
    are = "are" if others else "is"
    cell = cells("what_if", exposed.fast_host, ("change",), ("gain_pct",))
    share = format_percent(exposed.fast_host["gain_pct"])
    reported = (
        f" This time includes the {noun} {names}, which {are} not listed separately. An infinitely "
        f"fast host gains {share} in a replay."
    )
    return reported, cell
