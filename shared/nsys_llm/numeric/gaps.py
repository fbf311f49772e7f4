"""Gaps between operations: stretches in which none runs, and what ran before and after. Pure numpy.

An operation of no length covers nothing, but it runs: it ends one gap and begins the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import blocks, small_blocks
from nsys_llm.numeric.intervals import IntArray, clip_to_windows, intersect_intervals
from nsys_llm.numeric.stacking import Rows, stacked

_LOWEST: Final = int(np.iinfo(np.int64).min)
_HIGHEST: Final = int(np.iinfo(np.int64).max)

#: Of operations or calls, of which there are fewer than 2^31.
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Gaps(Rows):
    """Stretches without an operation, in order of time; all but `spans` of shape (n,).

    Attributes:
        spans: Shape (n, 2), sorted and disjoint: begin of the gap, and its end, which is later.
        before: Position of the operation that ended last before it; -1 before the first one.
        after: Position of the operation that ends it; -1 after the last one.
        since_ns: Begin of the gap before it was cut to a window.
    """

    spans: IntArray
    before: Positions
    after: Positions
    since_ns: IntArray

    @property
    def start_ns(self) -> IntArray:
        """Begin of each gap."""
        return self.spans[:, 0]

    @property
    def end_ns(self) -> IntArray:
        """End of each."""
        return self.spans[:, 1]

    def __len__(self) -> int:
        return len(self.spans)

    def inside(self, windows: IntArray) -> Gaps:
        """Return the parts that lie in windows, shape (m, 2), sorted and disjoint."""
        owner, starts, ends = clip_to_windows(self.start_ns, self.end_ns, windows)
        spans = np.stack((starts, ends)).T
        return Gaps(spans, self.before[owner], self.after[owner], self.since_ns[owner])


def start_order(
    start_ns: IntArray, ties: Callable[[IntArray], Sequence[IntArray]]
) -> IntArray | None:
    """Return the order of starts; None if that is how they are.

    Args:
        start_ns: Shape (n,).
        ties: What orders operations of one start, most significant first: for some of them, which
            are few, arrays of their shape.
    """
    order, ordered = None, start_ns
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        ordered = start_ns[order]
    equal = ordered[1:] == ordered[:-1]
    del ordered
    if not equal.any():
        return order
    order = np.arange(start_ns.size) if order is None else order
    places = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    rows = order[places]
    order[places] = rows[np.lexsort((*ties(rows)[::-1], start_ns[rows]))]
    return order


def find_gaps(start_ns: IntArray, end_ns: IntArray, windows: IntArray) -> Gaps:
    """Return the gaps inside windows.

    Args:
        start_ns: Shape (n,), ascending (see `start_order`).
        end_ns: Shape (n,), `end_ns >= start_ns`.
        windows: Shape (m, 2), sorted and disjoint. What lies in a window before the first or after
            the last operation is a gap too; one that reaches into two windows is two gaps.

    Returns:
        Their lengths and those of the union of the operations inside the windows add up to the
        length of the windows.
    """
    if not len(windows):
        return _gaps([], [], [], [])
    reach = np.maximum.accumulate(end_ns)
    whole = _between(start_ns, end_ns, reach)
    whole = _with_edges(whole, start_ns, end_ns, reach, windows)
    low, high = windows[0, 0], windows[-1, 1]
    if len(windows) == 1 and len(whole) and low <= whole.start_ns[0] and whole.end_ns[-1] <= high:
        return whole
    return whole.inside(windows)


def _between(start_ns: IntArray, end_ns: IntArray, reach: IntArray) -> Gaps:
    """Return the gaps between operations; `reach` is the latest end up to each."""
    opens = start_ns[1:] > reach[:-1]
    gaps_n = int(np.count_nonzero(opens))
    # Starts lie together, and so do ends, as in `nsys_llm.numeric.intervals.union_intervals`.
    spans = np.empty((2, gaps_n), dtype=np.int64)
    before, after = np.empty((2, gaps_n), dtype=np.int32)
    at = 0
    for block in small_blocks(opens.size):
        rows = block.start + np.flatnonzero(opens[block])
        some = slice(at, at + rows.size)
        spans[0, some], spans[1, some] = reach[rows], start_ns[rows + 1]
        before[some], after[some] = _last_ended(end_ns, reach, rows), rows + 1
        at += rows.size
    return Gaps(spans.T, before, after, spans[0])


def gap_blocks(
    start_ns: IntArray, end_ns: IntArray, order: IntArray | None, windows: IntArray
) -> Iterator[Gaps]:
    """Yield the gaps of `find_gaps` some operations at a time, in order of time.

    Args:
        start_ns: Shape (n,).
        end_ns: Shape (n,).
        order: Shape (n,), see `start_order`; positions of operations count in it.
    """
    rows_n = start_ns.size
    last, edges = -1, np.array([[_LOWEST, _HIGHEST]])
    for block in blocks(rows_n) if rows_n else [slice(0, 0)]:
        rows = np.arange(block.start, block.stop)
        if last >= 0:  # first what ended last of all that began before the block
            rows = np.insert(rows, 0, last)
        at = rows if order is None else order[rows]
        starts, ends = start_ns[at], end_ns[at]
        edges[0, 1] = ends.max() if block.stop < rows_n else _HIGHEST
        gaps = find_gaps(starts, ends, intersect_intervals(windows, edges))
        yield replace(gaps, before=_places(rows, gaps.before), after=_places(rows, gaps.after))
        last, edges[0, 0] = rows[ends.argmax()] if rows.size else -1, edges[0, 1]


def _places(rows: IntArray, position: Positions) -> Positions:
    return np.append(rows, -1)[position].astype(np.int32)


def _last_ended(end_ns: IntArray, reach: IntArray, at: IntArray) -> IntArray:
    """Return which operation ended last of those up to some; of equal ones, the first begun."""
    last, ends = at.copy(), end_ns[at]
    # Where operations do not overlap, each ended last of those before it.
    earlier = np.where(at > 0, reach[np.maximum(at - 1, 0)], ends - 1)
    other = np.flatnonzero(earlier >= ends)
    last[other] = np.searchsorted(reach, reach[at[other]], side="left")
    return last


def _with_edges(
    gaps: Gaps, start_ns: IntArray, end_ns: IntArray, reach: IntArray, windows: IntArray
) -> Gaps:
    """Add what the windows hold before the first and after the last operation."""
    low, high = int(windows[0, 0]), int(windows[-1, 1])
    first = int(start_ns[0]) if start_ns.size else high
    parts = [gaps]
    if low >= first and start_ns.size and high <= int(reach[-1]):
        return gaps
    if low < first:
        after = 0 if start_ns.size else -1
        parts.insert(0, _gaps([[low, first]], [-1], [after], [low]))
    if start_ns.size and high > int(reach[-1]):
        last = _last_ended(end_ns, reach, np.array([end_ns.size - 1]))
        parts.append(_gaps([[int(reach[-1]), high]], last, [-1], reach[-1:]))
    return stacked(Gaps, parts)


def _gaps(
    spans: npt.ArrayLike, before: npt.ArrayLike, after: npt.ArrayLike, since_ns: npt.ArrayLike
) -> Gaps:
    return Gaps(
        np.array(spans, dtype=np.int64).reshape(-1, 2),
        np.array(before, dtype=np.int32),
        np.array(after, dtype=np.int32),
        np.array(since_ns, dtype=np.int64),
    )
