"""Interval arithmetic on integer nanoseconds. Pure: numpy in, numpy out.

Intervals are half-open, [start, end). All arrays are int64. A zero-length interval covers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import small_blocks

IntArray = npt.NDArray[np.int64]


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
    if (starts[1:] < starts[:-1]).any():  # most rows are in order already
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
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


def merged_unions(unions: Sequence[IntArray]) -> IntArray:
    """Return the union of sets of intervals, shape (n, 2) each, as `union_intervals` does."""
    if len(filled := [spans for spans in unions if len(spans)]) == 1:
        return filled[0]
    merged = np.concatenate([np.empty((0, 2), dtype=np.int64), *filled])
    return union_intervals(merged[:, 0], merged[:, 1])


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
    return covered_ns(end_ns, windows) - covered_ns(start_ns, windows)


def starts_inside(start_ns: IntArray, windows: IntArray) -> npt.NDArray[np.bool_]:
    """Return for each instant whether it lies in a window (sorted, disjoint, half-open)."""
    if len(windows) == 0:
        return np.zeros(start_ns.shape, dtype=bool)
    index = np.searchsorted(windows[:, 0], start_ns, side="right") - 1
    return np.asarray((index >= 0) & (start_ns < windows[np.maximum(index, 0), 1]))


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
