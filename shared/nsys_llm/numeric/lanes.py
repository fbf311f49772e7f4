"""Lanes for intervals that overlap, so that those of one lane nest or lie apart. Pure numpy."""

from __future__ import annotations

import numpy as np

from nsys_llm.numeric.intervals import IntArray


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
