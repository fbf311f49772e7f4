"""Interval arithmetic on integer nanoseconds. Pure: numpy in, numpy out.

Intervals are half-open, [start, end). All arrays are int64. A zero-length interval covers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import small_blocks

IntArray = npt.NDArray[np.int64]

_FEW: Final = 64


def bounds(intervals: IntArray) -> tuple[int | None, int | None]:
    """Return the begin of the first of sorted intervals and the end of the last; None for none."""
    return (int(intervals[0, 0]), int(intervals[-1, 1])) if len(intervals) else (None, None)


def union_intervals(start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the union as sorted, disjoint, non-touching intervals.

    Args:
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.

    Returns:
        Shape (m, 2), m <= n. Touching intervals are joined and zero-length ones left out, so the
        lengths add up to the time covered by at least one interval.
    """
    real = end_ns > start_ns
    starts, ends = (start_ns, end_ns) if real.all() else (start_ns[real], end_ns[real])
    if starts.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    starts, ends = _in_order(starts, ends)
    return _joined_where_none_is_open(starts, np.maximum.accumulate(ends))


def merged_unions(unions: Sequence[IntArray]) -> IntArray:
    """Return the union of sets of intervals, as `union_intervals` does.

    Args:
        unions: Shape (n, 2) each, sorted and disjoint, without zero-length intervals.
    """
    filled = [spans for spans in unions if len(spans)]
    if len(filled) < 2:
        return filled[0] if filled else np.empty((0, 2), dtype=np.int64)
    # Before the nth start all is over if n - 1 have ended: which end is whose does not matter.
    starts, ends = (np.concatenate([spans[:, side] for spans in filled]) for side in (0, 1))
    starts.sort(kind="stable")  # which merges what is in order
    ends.sort(kind="stable")
    return _joined_where_none_is_open(starts, ends)


def _joined_where_none_is_open(starts: IntArray, reach: IntArray) -> IntArray:
    """Return intervals joined where they overlap or touch, shape (m, 2).

    Args:
        starts: Shape (n,), ascending, at least one.
        reach: Shape (n,), ascending: all that has begun with the nth has ended then, unless the
            next starts earlier.
    """
    opens = starts[1:] > reach[:-1]
    # Starts lie together, and so do ends: what follows reads one of the two at a time.
    joined = np.empty((2, np.count_nonzero(opens) + 1), dtype=np.int64)
    joined[0, 0], joined[1, -1] = starts[0], reach[-1]
    at = 0
    for block in small_blocks(opens.size):
        rows = block.start + np.flatnonzero(opens[block])
        joined[0, at + 1 : at + 1 + rows.size] = starts[rows + 1]
        joined[1, at : at + rows.size] = reach[rows]
        at += rows.size
    return joined.T


def union_length_ns(start_ns: IntArray, end_ns: IntArray) -> int:
    """Return the time covered by at least one interval, as the lengths of `union_intervals` sum.

    Args:
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.
    """
    return sum(int(added_ns.sum()) for _, _, added_ns in _growth(*_in_order(start_ns, end_ns)))


def union_before_ns(at_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return how much of the time before each instant at least one interval covers.

    As `covered_ns` of `union_intervals`, without making the union, which takes twice as long.

    Args:
        at_ns: Shape (k,), any instants, far fewer than intervals.
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.
    """
    starts, ends = _in_order(start_ns, end_ns)
    begun = np.searchsorted(starts, at_ns, side="right")
    covered = np.zeros(at_ns.shape, dtype=np.int64)
    before_ns = 0
    for first, reach, added_ns in _growth(starts, ends):
        some = np.flatnonzero((begun > first) & (begun <= first + reach.size))
        last = begun[some] - 1 - first
        covered[some] = before_ns + np.cumsum(added_ns)[last]
        covered[some] -= np.maximum(reach[last] - at_ns[some], 0)
        before_ns += int(added_ns.sum())
    return covered


def _growth(starts: IntArray, ends: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield blocks of sorted intervals: what each adds to the time that those before it cover.

    Yields:
        The first interval of the block; for each of its intervals the latest end up to it; and what
        it reaches beyond all that started before it, in ns. The latter add up to the union.
    """
    reached_ns = int(starts[0]) if starts.size else 0
    for block in small_blocks(starts.size):
        reach = np.maximum(np.maximum.accumulate(ends[block]), reached_ns)
        before = np.concatenate(([reached_ns], reach[:-1]))
        yield block.start, reach, reach - np.maximum(before, np.minimum(starts[block], reach))
        reached_ns = int(reach[-1])


def total_length_ns(intervals: IntArray) -> int:
    """Return the summed length of disjoint intervals of shape (n, 2)."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def intersect_intervals(left: IntArray, right: IntArray) -> IntArray:
    """Return the time in both of two sets of intervals.

    Args:
        left: Shape (n, 2), sorted and disjoint (see `union_intervals`).
        right: Shape (m, 2), likewise.

    Returns:
        Shape (k, 2), sorted and disjoint.
    """
    _, starts, ends = clip_to_windows(left[:, 0], left[:, 1], right)
    return np.column_stack((starts, ends))


def subtract_intervals(left: IntArray, right: IntArray) -> IntArray:
    """Return the time in one set of intervals and not in another.

    Args:
        left: Shape (n, 2), sorted and disjoint (see `union_intervals`). Best the shorter one.
        right: Shape (m, 2), likewise.

    Returns:
        Shape (k, 2), sorted and disjoint, without zero-length intervals; none reaches over the end
        of one in `left`.
    """
    _, starts, ends = clip_to_windows(left[:, 0], left[:, 1], right)
    # What is left begins where `left` begins or a piece taken out ends; the nth begin and the nth
    # end belong together.
    begins = np.sort(np.concatenate((left[:, 0], ends)))
    stops = np.sort(np.concatenate((left[:, 1], starts)))
    real = stops > begins
    return np.column_stack((begins[real], stops[real]))


def clip_to_windows(
    start_ns: IntArray, end_ns: IntArray, windows: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Cut intervals into the pieces that lie inside windows.

    Args:
        start_ns: Shape (n,), in any order, overlapping or not.
        end_ns: Shape (n,).
        windows: Shape (m, 2), sorted and disjoint.

    Returns:
        For each piece: the interval that it comes from, its start and its end; shape (k,) each.
    """
    first = np.searchsorted(windows[:, 1], start_ns, side="right")
    last = np.searchsorted(windows[:, 0], end_ns, side="left")
    pieces_n = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(start_ns.size), pieces_n)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(pieces_n) - pieces_n, pieces_n)
    window = first[owner] + nth
    starts = np.maximum(start_ns[owner], windows[window, 0])
    ends = np.minimum(end_ns[owner], windows[window, 1])
    return owner, starts, ends


def covered_ns(at_ns: IntArray, windows: IntArray) -> IntArray:
    """Return how much of the windows lies before each instant.

    Args:
        at_ns: Shape (n,), any instants.
        windows: Shape (m, 2), sorted and disjoint.

    Returns:
        Shape (n,). The difference of two values is the window time between their instants.
    """
    if len(windows) == 0:
        return np.zeros(at_ns.shape, dtype=np.int64)
    until = windows[:, 1] - windows[:, 0]
    np.cumsum(until, out=until)
    index = np.maximum(np.searchsorted(windows[:, 0], at_ns, side="right") - 1, 0)
    starts, ends = windows[index, 0], windows[index, 1]
    return np.asarray(until[index] - (ends - np.clip(at_ns, starts, ends)))


def covered_in(windows: IntArray, spans: IntArray) -> IntArray:
    """Return how much of each window, shape (n, 2), spans cover that are sorted and disjoint."""
    return covered_ns(windows[:, 1], spans) - covered_ns(windows[:, 0], spans)


def clipped_lengths(start_ns: IntArray, end_ns: IntArray, windows: IntArray) -> IntArray:
    """Return the part of each interval, in ns, that lies inside the windows (sorted, disjoint)."""
    if len(windows) <= _FEW:
        return covered_ns(end_ns, windows) - covered_ns(start_ns, windows)
    lengths = np.empty_like(start_ns)
    # In order of time they meet few windows at a time (5M of each: 0.35 s, 0.65 s in one piece).
    for block in small_blocks(start_ns.size):
        starts, ends = start_ns[block], end_ns[block]
        low = np.searchsorted(windows[:, 1], starts.min(), side="right")
        high = np.searchsorted(windows[:, 0], ends.max(), side="left")
        near = windows[low:high]
        lengths[block] = covered_ns(ends, near) - covered_ns(starts, near)
    return lengths


def starts_inside(start_ns: IntArray, windows: IntArray) -> npt.NDArray[np.bool_]:
    """Return for each instant whether it lies in a window (sorted, disjoint, half-open)."""
    if len(windows) == 0:
        return np.zeros(start_ns.shape, dtype=bool)
    index = np.searchsorted(windows[:, 0], start_ns, side="right") - 1
    return np.asarray((index >= 0) & (start_ns < windows[np.maximum(index, 0), 1]))


def _in_order(start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return starts, ascending, and their ends; what is in order already, as most rows are."""
    if (start_ns[1:] >= start_ns[:-1]).all():
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    return start_ns[order], end_ns[order]


def bin_edges(start_ns: int, end_ns: int, most_n: int) -> IntArray:
    """Return the edges of at most `most_n` parts of [start, end), none of them empty.

    Returns:
        Shape (parts + 1,), ascending; lengths differ by at most 1 ns. One part of no length where
        the span has none.
    """
    length = max(end_ns - start_ns, 0)
    parts = max(min(most_n, length), 1)
    nth = np.arange(parts + 1, dtype=np.int64)
    # Quotient and rest apart: their product with the whole length could outgrow 64 bits.
    each, rest = divmod(length, parts)
    return start_ns + nth * each + nth * rest // parts


def span_quarters(start_ns: int, end_ns: int) -> IntArray:
    """Return the ends of the four quarters of a span, shape (4,)."""
    return bin_edges(start_ns, max(end_ns, start_ns + 4), 4)[1:]


def nesting_lanes(start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return a lane for each interval, the lowest that is free.

    Two of one lane lie apart, or one lies inside the other: none overlaps another in part.

    Args:
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.

    Returns:
        Shape (n,), int64, from 0.
    """
    order = np.lexsort((-end_ns, start_ns))
    starts, ends = start_ns[order], end_ns[order]
    lane = np.zeros(start_ns.size, dtype=np.int64)
    if not (starts[1:] < np.maximum.accumulate(ends)[:-1]).any():
        return lane
    # Ends of the intervals that are open in each lane, the innermost last.
    lanes: list[list[int]] = []
    lane[order] = [
        _placed(lanes, start, end)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return lane


def _placed(lanes: list[list[int]], start_ns: int, end_ns: int) -> int:
    """Open an interval in the first lane that takes it, and return which."""
    for number, open_ends in enumerate(lanes):
        while open_ends and open_ends[-1] <= start_ns:
            open_ends.pop()
        if not open_ends or end_ns <= open_ends[-1]:
            open_ends.append(end_ns)
            return number
    lanes.append([end_ns])
    return len(lanes) - 1
