"""Interval arithmetic on integer nanoseconds. Pure: numpy in, numpy out.

Intervals are half-open, [start, end). All arrays are int64. A zero-length interval covers nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
    starts, ends = _in_order(starts, ends)
    reach = np.maximum.accumulate(ends)
    opens = np.flatnonzero(starts[1:] > reach[:-1])
    # Starts lie together, and so do ends: what follows reads one of the two at a time.
    return np.stack((starts[np.insert(opens + 1, 0, 0)], reach[np.append(opens, -1)])).T


def union_before_ns(at_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return how much of the time before each instant at least one interval covers.

    Args:
        at_ns: Shape (k,), any instants.
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.
    """
    return covered_ns(at_ns, union_intervals(start_ns, end_ns))


def total_length_ns(intervals: IntArray) -> int:
    """Return the summed length of disjoint intervals of shape (n, 2)."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def intersect_intervals(left: IntArray, right: IntArray) -> IntArray:
    """Return the time in both of two sets of intervals.

    Args:
        left: Shape (n, 2), sorted and disjoint (see `union_intervals`).
        right: Shape (m, 2), sorted and disjoint.

    Returns:
        Shape (k, 2), sorted and disjoint.
    """
    _, starts, ends = clip_to_windows(left[:, 0], left[:, 1], right)
    return np.column_stack((starts, ends))


def subtract_intervals(left: IntArray, right: IntArray) -> IntArray:
    """Return the time in one set of intervals and not in another.

    Args:
        left: Shape (n, 2), sorted and disjoint (see `union_intervals`). Best the shorter one.
        right: Shape (m, 2), sorted and disjoint.

    Returns:
        Shape (k, 2), sorted and disjoint, without zero-length intervals.
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


def gaps_within(busy: IntArray, windows: IntArray) -> IntArray:
    """Return the time of windows in which nothing is busy, in order of time.

    Args:
        busy: Shape (n, 2), sorted and disjoint; what lies outside the windows is left out.
        windows: Shape (m, 2), sorted and disjoint.

    Returns:
        Shape (k, 2), sorted and disjoint; no gap reaches over the end of a window.
    """
    inside = intersect_intervals(busy, windows)
    # Each window's begin and each busy interval's end opens a gap, which the next of the other
    # kind closes; both lists come in the same order.
    opens = np.sort(np.concatenate((windows[:, 0], inside[:, 1])))
    closes = np.sort(np.concatenate((inside[:, 0], windows[:, 1])))
    real = closes > opens
    return np.column_stack((opens[real], closes[real]))


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


def clipped_lengths(start_ns: IntArray, end_ns: IntArray, windows: IntArray) -> IntArray:
    """Return the part of each interval, in ns, that lies inside the windows (sorted, disjoint)."""
    return covered_ns(end_ns, windows) - covered_ns(start_ns, windows)


def starts_inside(start_ns: IntArray, windows: IntArray) -> npt.NDArray[np.bool_]:
    """Return for each instant whether it lies in a window (sorted, disjoint, half-open)."""
    if len(windows) == 0:
        return np.zeros(start_ns.shape, dtype=bool)
    index = np.searchsorted(windows[:, 0], start_ns, side="right") - 1
    return np.asarray((index >= 0) & (start_ns < windows[np.maximum(index, 0), 1]))


def _in_order(start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return starts, ascending, and their ends; what is in order already, as most rows are."""
    if not (start_ns[1:] < start_ns[:-1]).any():
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    return start_ns[order], end_ns[order]
