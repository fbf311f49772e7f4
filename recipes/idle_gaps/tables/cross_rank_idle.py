"""Idle time of all ranks aligned: when the whole job is idle.

A rank that waits inside a collective runs its kernel and is busy: what is seen here is ranks that
have nothing to run at all. Which rank the others wait for is in `rank_verdicts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray, total_length_ns
from nsys_llm.report.columns import Columns
from nsys_llm.trace.identity import Rank, clock_offsets

from ..partials import IdleIntervals, RankIdle

#: The clock of ranks that share a report: the same for all.
ONE_REPORT: Final = "one profile"

_RankRows = Sequence[tuple[Rank, RankIdle]]


@dataclass(frozen=True)
class _AlignedRanks:
    """Ranks in one clock.

    Attributes:
        ranks: At least two, with what is known of each.
        offset_ns: What to add to the clock of each one's report.
        span: When all of them were watched.
    """

    ranks: Sequence[tuple[Rank, IdleIntervals]]
    offset_ns: Sequence[int]
    clock: str
    span: tuple[int, int]

    def place(self, start_ns: int, end_ns: int) -> dict[str, Any]:
        """Return where to look: in the clock of the first rank's report."""
        return {
            "window_rank": self.ranks[0][0].number,
            "window_start_ns": start_ns - self.offset_ns[0],
            "window_end_ns": end_ns - self.offset_ns[0],
        }


def cross_rank_idle_tables(rows: _RankRows, options: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the tables common_idle and common_gaps; without rows where there is no one clock."""
    aligned = _aligned(rows, bool(options["disable_alignment"]))
    sums, gaps = [], []
    if aligned is not None:
        idle = [
            intervals.idle_ns + at
            for (_, intervals), at in zip(aligned.ranks, aligned.offset_ns, strict=True)
        ]
        every = common_intervals(idle, aligned.span)
        longest = every[np.argsort(every[:, 0] - every[:, 1], kind="stable")].tolist()
        sums.append(_sums(aligned, every, longest[:1]))
        gaps = [
            {"start_ns": start, "duration_ns": end - start, **aligned.place(start, end)}
            for start, end in longest[: options["top"]]
        ]
    return {
        "common_idle": {name: [row[name] for row in sums] for name in _SUMS},
        "common_gaps": {name: [row[name] for row in gaps] for name in _GAPS},
    }


_PLACE: Final = ("window_rank", "window_start_ns", "window_end_ns")
_GAPS: Final = ("start_ns", "duration_ns", *_PLACE)
_COUNTED: Final = ("clock", "ranks_n", "span_ns", "intervals_n", "total_ns", "total_pct")
_SUMS: Final = (*_COUNTED, "longest_ns", *_PLACE, "left_out_ns")


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


def _sums(
    aligned: _AlignedRanks, every: IntArray, longest: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    span_ns, total_ns = aligned.span[1] - aligned.span[0], total_length_ns(every)
    place: dict[str, Any] = dict.fromkeys(("longest_ns", *_PLACE))
    for start, end in longest:
        place = {"longest_ns": end - start, **aligned.place(start, end)}
    return {
        "clock": aligned.clock,
        "ranks_n": len(aligned.ranks),
        "span_ns": span_ns,
        "intervals_n": len(every),
        "total_ns": total_ns,
        "total_pct": 100.0 * total_ns / span_ns,
        **place,
        "left_out_ns": max(intervals.left_out_ns for _, intervals in aligned.ranks),
    }


def common_intervals(intervals: Sequence[IntArray], span: tuple[int, int]) -> IntArray:
    """Return when every rank is in a state: shape (k, 2), sorted and disjoint.

    Args:
        intervals: For each rank, shape (n, 2), sorted and disjoint; all in one clock.
        span: When all ranks were watched; nothing outside it counts.
    """
    starts, ends = np.concatenate(intervals).T
    inside = (starts < span[1]) & (ends > span[0])
    starts = np.sort(np.maximum(starts[inside], span[0]))
    ends = np.sort(np.minimum(ends[inside], span[1]))
    ended_n = np.searchsorted(ends, starts, side="right")
    every = np.arange(1, starts.size + 1) - ended_n == len(intervals)
    return np.stack((starts[every], ends[ended_n[every]])).T
