"""Which windows of a rank a timeline has room for. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys_llm.numeric.intervals import IntArray, subtract_intervals, union_intervals

Window = tuple[int, int]


@dataclass(frozen=True)
class Room:
    """The windows that fit.

    Attributes:
        windows_ns: Shape (n, 2), sorted and disjoint.
        left_out_n: Rows that start in the wanted windows and not in these.
    """

    windows_ns: IntArray
    left_out_n: int


def windows_with_room(
    wanted: Sequence[Window], at_ns: IntArray, weight: IntArray, most: int
) -> Room:
    """Take windows, the shortest first, until their events are too many; the last one is cut short.

    Args:
        wanted: Start and end of each, in any order; they may overlap.
        at_ns: Shape (rows,), when each row starts.
        weight: Shape (rows,), how many events it becomes.
        most: How many events there may be; what is less than none is none.
    """
    most = max(most, 0)
    order = np.argsort(at_ns, kind="stable")
    at_ns = at_ns[order]
    before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(weight[order])))
    taken = np.empty((0, 2), dtype=np.int64)
    for window in sorted(wanted, key=lambda window: (window[1] - window[0], window)):
        for start_ns, end_ns in subtract_intervals(np.array([window]), taken).tolist():
            low, high = np.searchsorted(at_ns, (start_ns, end_ns), side="left")
            fits = int(np.searchsorted(before, before[low] + most, side="right")) - 1
            if fits < high:
                end_ns, most = int(at_ns[fits]), 0
            else:
                most -= int(before[high] - before[low])
            taken = union_intervals(*np.concatenate((taken, [[start_ns, end_ns]])).T)
    whole = union_intervals(*np.array(list(wanted), dtype=np.int64).reshape(-1, 2).T)
    return Room(taken, _rows_n(at_ns, whole) - _rows_n(at_ns, taken))


def _rows_n(at_ns: IntArray, windows: IntArray) -> int:
    """Return how many rows start in sorted disjoint windows; `at_ns` ascending."""
    low, high = (np.searchsorted(at_ns, windows[:, side], side="left") for side in (0, 1))
    return int((high - low).sum())
