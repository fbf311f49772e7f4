"""Idle time of all ranks aligned: the whole job is idle, or waits for one late rank.

A rank that waits inside a collective runs its kernel and is busy: what is seen here is ranks that
have nothing to run at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray, subtract_intervals, total_length_ns
from nsys_llm.report.columns import Columns
from nsys_llm.trace.identity import Rank, clock_offsets

from ..partials import IdleIntervals, RankIdle
from .idle_intervals import Chance, common_intervals, intervals_by_chance

#: Kinds of intervals: nobody runs anything, or one rank does.
ALL_IDLE: Final = "all idle"
ONE_BUSY: Final = "one busy"

#: The clock of ranks that share a report: the same for all.
ONE_REPORT: Final = "one profile"

_RankRows = Sequence[tuple[Rank, RankIdle]]
#: Kind, position of the late rank, its intervals, and what chance would give.
_Kind = tuple[str, int | None, IntArray, Chance]


@dataclass(frozen=True)
class _AlignedRanks:
    """Ranks in one clock.

    Attributes:
        ranks: At least two, with what is known of each.
        offset_ns: What to add to the clock of each one's report.
        clock: Which clock.
        span: When all of them were watched.
    """

    ranks: Sequence[tuple[Rank, IdleIntervals]]
    offset_ns: Sequence[int]
    clock: str
    span: tuple[int, int]


def cross_rank_idle_tables(rows: _RankRows, options: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the tables common_idle and common_gaps; without rows where there is no one clock."""
    aligned = _aligned(rows, bool(options["disable_alignment"]))
    if aligned is None:
        return {"common_idle": _sum_columns(None, []), "common_gaps": _gap_columns(None, [])}
    idle = [
        intervals.idle_ns + at
        for (_, intervals), at in zip(aligned.ranks, aligned.offset_ns, strict=True)
    ]
    every, alone = common_intervals(idle, aligned.span)
    chances = intervals_by_chance(idle, aligned.span)
    kinds: list[_Kind] = [(ALL_IDLE, None, every, chances.every)]
    kinds += [
        (ONE_BUSY, late, _working(aligned, late, alone[late]), chances.alone[late])
        for late in sorted(alone)
    ]
    gaps = [
        (kind, late, int(start), int(end))
        for kind, late, spans, _ in kinds
        for start, end in _longest(spans, options["top"]).tolist()
    ]
    gaps.sort(key=lambda gap: (gap[2] - gap[3], gap[2], gap[0]))
    return {
        "common_idle": _sum_columns(aligned, kinds),
        "common_gaps": _gap_columns(aligned, gaps[: options["top"]]),
    }


def _aligned(rows: _RankRows, own_clocks: bool) -> _AlignedRanks | None:
    """Bring ranks into one clock; None where that cannot be, or where there is one rank only."""
    ranks = [(rank, idle.intervals) for rank, idle in rows if idle.intervals is not None]
    ranks = [(rank, intervals) for rank, intervals in ranks if intervals.span_ns is not None]
    # A rank that is not known may have run what the others waited for.
    if len(ranks) < 2 or len(ranks) < len(rows):
        return None
    paths = {rank.key.path for rank, _ in ranks}
    offsets: Mapping[str, int] = dict.fromkeys(paths, 0)
    clock: str | None = ONE_REPORT
    if len(paths) > 1:
        if own_clocks:
            return None
        facts = {rank.key.path: rank.facts for rank, _ in ranks if rank.facts is not None}
        offsets, clock = clock_offsets(facts)
        if clock is None or offsets.keys() != paths:
            return None
    at = [offsets[rank.key.path] for rank, _ in ranks]
    spans = [intervals.span_ns or (0, 0) for _, intervals in ranks]
    low = max(span[0] + shift for span, shift in zip(spans, at, strict=True))
    high = min(span[1] + shift for span, shift in zip(spans, at, strict=True))
    if high <= low:
        return None
    return _AlignedRanks(ranks, at, clock or ONE_REPORT, (low, high))


def _working(aligned: _AlignedRanks, rank: int, spans: IntArray) -> IntArray:
    """Leave out when it is the profiler that kept a rank from being idle: nothing ran there."""
    unwatched = aligned.ranks[rank][1].unwatched_ns + aligned.offset_ns[rank]
    return subtract_intervals(spans, unwatched)


def _longest(spans: IntArray, most_n: int) -> IntArray:
    order = np.argsort(spans[:, 0] - spans[:, 1], kind="stable")
    return spans[order[:most_n]]


def _place(aligned: _AlignedRanks, late: int | None, start_ns: int, end_ns: int) -> dict[str, Any]:
    """Return where to look: in the clock of the late rank's report, else of the first rank's."""
    at = 0 if late is None else late
    rank, shift = aligned.ranks[at][0], aligned.offset_ns[at]
    return {
        "window_rank": rank.number,
        "window_start_ns": start_ns - shift,
        "window_end_ns": end_ns - shift,
    }


_SHARES: Final = ("total_pct", "chance_pct", "chance_most_pct", "possible_pct")


def _sum_columns(aligned: _AlignedRanks | None, kinds: Sequence[_Kind]) -> Columns:
    names = ("kind", "rank", "file", "clock", "ranks_n", "span_ns", "intervals_n", "total_ns")
    more = (*_SHARES, "longest_ns", "window_rank", "window_start_ns", "window_end_ns")
    rows = [_sum_row(aligned, *kind) for kind in kinds] if aligned is not None else []
    # All ranks first, then those that the others wait for most.
    rows.sort(key=lambda row: (row["kind"] != ALL_IDLE, -row["total_ns"]))
    return {name: [row[name] for row in rows] for name in (*names, *more, "left_out_ns")}


def _sum_row(
    aligned: _AlignedRanks, kind: str, late: int | None, spans: IntArray, chance: Chance
) -> dict[str, Any]:
    length = aligned.span[1] - aligned.span[0]
    total_ns = total_length_ns(spans)
    nowhere = dict.fromkeys(("longest_ns", "window_rank", "window_start_ns", "window_end_ns"))
    longest = nowhere
    if len(spans):
        start, end = _longest(spans, 1)[0].tolist()
        longest = {"longest_ns": end - start, **_place(aligned, late, start, end)}
    return {
        "kind": kind,
        "rank": None if late is None else aligned.ranks[late][0].number,
        "file": None if late is None else aligned.ranks[late][0].file,
        "clock": aligned.clock,
        "ranks_n": len(aligned.ranks),
        "span_ns": length,
        "intervals_n": len(spans),
        "total_ns": total_ns,
        "total_pct": 100.0 * total_ns / length,
        "chance_pct": 100.0 * chance.share,
        "chance_most_pct": 100.0 * chance.largest,
        "possible_pct": 100.0 * chance.possible,
        "left_out_ns": max(intervals.left_out_ns for _, intervals in aligned.ranks),
        **longest,
    }


def _gap_columns(
    aligned: _AlignedRanks | None, gaps: Sequence[tuple[str, int | None, int, int]]
) -> Columns:
    names = ("kind", "rank", "start_ns", "duration_ns")
    places = ("window_rank", "window_start_ns", "window_end_ns")
    rows: list[dict[str, Any]] = []
    for kind, late, start, end in gaps:
        if aligned is None:
            break
        rank = None if late is None else aligned.ranks[late][0].number
        row = {"kind": kind, "rank": rank, "start_ns": start, "duration_ns": end - start}
        rows.append({**row, **_place(aligned, late, start, end)})
    return {name: [row[name] for row in rows] for name in (*names, *places)}
