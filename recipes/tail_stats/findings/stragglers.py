"""Findings on ranks that others wait for, one a rank. Reads finished tables only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.view.text import format_count, format_instant, format_ns, format_percent, quoted

from ..tables.collective_classes import PERSISTENT, TRANSIENT, telling_late_pct
from .late_causes import late_reason
from .profiler import of_the_profiler, program_ns
from .texts import RULES

#: Part of a rank's lateness that it waited elsewhere for another late rank, from which it only
#: passes that on; ours.
_PASSED_ON: Final = 0.5
_MEMBER: Final = ("communicator", "rank", "device_id")
_RULES: Final = {PERSISTENT: "persistent_straggler", TRANSIENT: "transient_straggler"}
_THIRDS: Final = ("first", "second", "last")


def gpu_of(row: Record) -> Gpu:
    """Return rank and device of a row."""
    return int(row["rank"]), int(row["device_id"])


def sure_members(tables: Tables, staged: frozenset[str]) -> pd.DataFrame:
    """Return the rows of stragglers whose collectives surely belong together.

    Those of pipelines are left out: there, coming last blames nobody. So are communicators most of
    whose time was matched with low confidence.

    Args:
        tables: Of the run.
        staged: Communicators of pipelines, see `stage_pairs`.
    """
    every = tables["communicators"]
    every = every[~every["communicator"].isin(staged)]
    sure = every["confidence"] != LOW_CONFIDENCE
    by_name = every["total_ns"].where(sure, 0).groupby(every["communicator"]).sum()
    total_ns = every["total_ns"].groupby(every["communicator"]).sum()
    reported = 2 * by_name >= total_ns
    ranks = tables["stragglers"]
    return ranks[ranks["communicator"].isin(reported[reported].index)]


def late_ranks(members: pd.DataFrame) -> tuple[list[Record], frozenset[Gpu]]:
    """Return the ranks to blame, most waiting first, and all that come last beyond chance.

    A rank is in several communicators: it stands for itself in that in which the others wait most
    for it. One that is late because it waited elsewhere for another one is not to blame.

    Args:
        members: Rows of stragglers, see `sure_members`.
    """
    late = records(members[members["pattern"].isin([PERSISTENT, TRANSIENT])])
    by_gpu = grouped(late, "rank", "device_id")
    main = [max(rows, key=program_ns) for rows in by_gpu.values()]
    elsewhere = grouped(records(members), "rank", "device_id")
    late_in = grouped(late, "communicator")
    blamed = [
        row
        for row in main
        if not _passes_on(row, elsewhere[row["rank"], row["device_id"]], late_in)
    ]
    blamed.sort(key=lambda row: -program_ns(row))
    return blamed, frozenset(gpu_of(row) for row in main)


def _passes_on(
    row: Record, rank_rows: Sequence[Record], late_in: dict[tuple[object, ...], list[Record]]
) -> bool:
    """Return whether a late rank waited as long for another late one in another communicator."""
    for other in rank_rows:
        blamed = [
            item
            for item in late_in.get((other["communicator"],), ())
            if gpu_of(item) != gpu_of(row)
        ]
        waited_ns = int(other["suffered_wait_ns"]) - int(other["suffered_profiler_ns"])
        if other["communicator"] == row["communicator"] or not blamed:
            continue
        if waited_ns >= _PASSED_ON * int(row["late_by_ns"]):
            return True
    return False


def straggler_findings(tables: Tables, walls: Walls, blamed: Sequence[Record]) -> list[Finding]:
    """Return one finding a rank that is to blame, with why it is late."""
    return [_straggler(tables, walls, row) for row in blamed]


def _straggler(tables: Tables, walls: Walls, row: Record) -> Finding:
    reason = late_reason(tables, walls, row)
    waits = _longest_wait(tables, walls, row)
    rank, device_id = gpu_of(row)
    where = f"ranks {quoted(row['communicator'])}"
    span_ns = walls.span_ns(*gpu_of(waits))
    share_pct = 100.0 * int(waits["suffered_wait_ns"]) / span_ns if span_ns else 0.0
    return RULES[_RULES[row["pattern"]]].finding(
        cause=Cause("rank", rank, device_id),
        change=Change("rank", time_ns=reason.gain_ns),
        details=f"{reason.details} It came last in {format_count(row['late_n'])} of "
        f"{format_count(row['collectives_n'])} collectives of {where}, "
        f"{format_ns(row['late_by_ns'])} after the second-last rank in total. Rank {waits['rank']} "
        f"waits longest for the last rank: {format_ns(waits['suffered_wait_ns'])}, "
        f"{format_percent(share_pct)} of its span.{_clocks(row)}{of_the_profiler(row)}",
        fields={
            "rank": rank,
            "when": when_late(row),
            "reason": reason.title,
            "look": reason.look,
        },
        evidence=(
            *cells("stragglers", row, _MEMBER, _columns(row)),
            *cells("stragglers", waits, _MEMBER, ("suffered_wait_ns",)),
            *reason.evidence,
        ),
        numbers={**reason.numbers, "wait_share_pct": share_pct},
        rank=rank,
        device_id=device_id,
        window_ns=_window(row),
        impact_ns=int(row["late_by_ns"]),
    )


def _columns(row: Record) -> tuple[str, ...]:
    burst = ("burst_start_ns", "burst_end_ns") if row["burst_start_ns"] is not None else ()
    return ("late_n", "collectives_n", "late_by_ns", "residual_ns", "profiler_ns", *burst)


def _longest_wait(tables: Tables, walls: Walls, row: Record) -> Record:
    """Return the row of the other rank of a communicator that waits for the largest share."""
    members = tables["stragglers"]
    others = [
        record
        for record in records(members[members["communicator"] == row["communicator"]])
        if gpu_of(record) != gpu_of(row)
    ]
    return max(
        others,
        key=lambda record: record["suffered_wait_ns"] / max(walls.span_ns(*gpu_of(record)), 1),
    )


def _clocks(row: Record) -> str:
    """Say how well clocks agree; nothing where there is one clock."""
    residual_ns = int(row["residual_ns"])
    return f" Clocks agree to {format_ns(residual_ns)}." if residual_ns else ""


def when_late(row: Record) -> str:
    """Say when a rank is late: throughout, again and again, or from when to when."""
    if row["pattern"] == PERSISTENT:
        return "throughout"
    telling = telling_late_pct(int(row["ranks_n"]))
    shares = [row[f"caused_{third}_third_pct"] or 0.0 for third in _THIRDS]
    # Late too seldom to be late throughout, but the cause of most waiting whenever one looks.
    if min(shares) >= telling:
        return "again and again"
    if row["burst_start_ns"] is None:
        return "for a part of the run"
    burst = (format_instant(row["burst_start_ns"]), format_instant(row["burst_end_ns"]))
    return f"from {burst[0]} to {burst[1]}"


def _window(row: Record) -> tuple[int, int] | None:
    """Return where to look: at the burst of a transient straggler, else where it was latest."""
    if row["burst_start_ns"] is not None and when_late(row).startswith("from"):
        return int(row["burst_start_ns"]), int(row["burst_end_ns"])
    if row["window_start_ns"] is None:
        return None
    return int(row["window_start_ns"]), int(row["window_end_ns"])
