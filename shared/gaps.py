"""Gaps between operations: stretches in which none runs, and what ran before and after. Pure numpy.

An operation of no length covers nothing, but it runs: it ends one gap and begins the next.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.intervals import IntArray, clip_to_windows

__all__ = ["Gaps", "find_gaps", "start_order"]


@dataclass(frozen=True)
class Gaps:
    """Stretches without an operation, in order of time; all of shape (n,).

    Attributes:
        start_ns: Begin of the gap.
        end_ns: Its end, later than its begin.
        before: Position of the operation that ended last before it; -1 before the first one.
        after: Position of the operation that ends it; -1 after the last one.
        since_ns: Begin of the gap before it was cut to a window.
    """

    start_ns: IntArray
    end_ns: IntArray
    before: IntArray
    after: IntArray
    since_ns: IntArray

    def __len__(self) -> int:
        return self.start_ns.size

    def take(self, rows: npt.NDArray[Any] | slice) -> Gaps:
        """Return the gaps that a mask, an index array or a slice selects."""
        return Gaps(*(getattr(self, one.name)[rows] for one in fields(self)))


def start_order(start_ns: IntArray, *ties: IntArray) -> IntArray:
    """Return the order of starts; equal ones by the first of `ties` that differs.

    Args:
        start_ns: Shape (n,).
        ties: Of shape (n,) each, most significant first.
    """
    order = np.arange(start_ns.size)
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
    ordered = start_ns[order]
    equal = ordered[1:] == ordered[:-1]
    if ties and equal.any():
        # Few operations share a start; only those are sorted again.
        places = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
        rows = order[places]
        order[places] = rows[np.lexsort((*(tie[rows] for tie in ties[::-1]), start_ns[rows]))]
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
        nothing = np.empty(0, dtype=np.int64)
        return Gaps(nothing, nothing, nothing, nothing, nothing)
    reach = np.maximum.accumulate(end_ns)
    opens = np.flatnonzero(start_ns[1:] > reach[:-1])
    # Which operation the reach is that of; of those that end together, the one that began first.
    longer = np.concatenate((end_ns[:1] == end_ns[:1], end_ns[1:] > reach[:-1]))
    last = np.maximum.accumulate(np.where(longer, np.arange(end_ns.size), 0))
    begins = reach[opens]
    whole = Gaps(begins, start_ns[opens + 1], last[opens], opens + 1, begins)
    whole = _with_edges(whole, start_ns, reach, last, windows)
    if len(windows) == 1 and len(whole) and _holds(windows[0], whole):
        return whole
    owner, starts, ends = clip_to_windows(whole.start_ns, whole.end_ns, windows)
    return Gaps(starts, ends, whole.before[owner], whole.after[owner], whole.since_ns[owner])


def _holds(window: IntArray, gaps: Gaps) -> bool:
    """Tell whether gaps, in order of time, all lie inside a window."""
    return bool(window[0] <= gaps.start_ns[0] and gaps.end_ns[-1] <= window[1])


def _with_edges(
    gaps: Gaps, start_ns: IntArray, reach: IntArray, last: IntArray, windows: IntArray
) -> Gaps:
    """Add what the windows hold before the first and after the last operation."""
    low, high = int(windows[0, 0]), int(windows[-1, 1])
    first = int(start_ns[0]) if start_ns.size else high
    parts = [gaps]
    if low >= first and start_ns.size and high <= int(reach[-1]):
        return gaps
    if low < first:
        parts.insert(0, _one(low, first, -1, 0 if start_ns.size else -1))
    if start_ns.size and high > int(reach[-1]):
        parts.append(_one(int(reach[-1]), high, int(last[-1]), -1))
    return Gaps(
        *(np.concatenate([getattr(one, name.name) for one in parts]) for name in fields(Gaps))
    )


def _one(start_ns: int, end_ns: int, before: int, after: int) -> Gaps:
    values = (start_ns, end_ns, before, after, start_ns)
    return Gaps(*(np.array([value], dtype=np.int64) for value in values))
