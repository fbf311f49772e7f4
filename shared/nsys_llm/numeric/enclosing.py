"""Which interval is open at an instant, the innermost of them. Pure numpy.

It needs no nesting. Beyond one pass over the intervals the work is a few steps a doubling of their
number, for all instants together.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray

#: Of so many groups each is searched by itself, which is fastest; of more all at once.
_FEW_GROUPS: Final = 64


def innermost(at_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return for each instant the last interval that starts by then and ends after it, or -1.

    Of intervals that are properly nested, as the ranges of a thread are, that is the innermost one.

    Args:
        at_ns: Shape (k,).
        start_ns: Shape (n,), ascending; of equal starts the outer comes first.
        end_ns: Shape (n,), `end_ns > start_ns`, since an empty interval is never open.
    """
    position = np.searchsorted(start_ns, at_ns, side="right")
    position -= 1
    return last_open(position, at_ns, end_ns)


def last_open(position: IntArray, at_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return for each instant the last interval up to a position that ends after it, or -1.

    Args:
        position: Shape (k,), the last interval that may be it; -1 for none.
        at_ns: Shape (k,).
    """
    if end_ns.size == 0:
        return np.full(at_ns.shape, -1, dtype=np.int64)
    # Mostly it is the last one itself: what was opened there was launched there.
    place = np.where((position >= 0) & (end_ns[position] > at_ns), position, -1)
    waiting = np.flatnonzero((place < 0) & (position > 0))
    if not waiting.size:
        return place
    levels = maxima(end_ns)
    for block in small_blocks(waiting.size):
        some = waiting[block]
        place[some] = last_above(position[some], at_ns[some], levels)
    return place


def first_above(
    values: IntArray, limit: IntArray, group: npt.NDArray[Any], bounds: IntArray
) -> IntArray:
    """Return the first position of a group whose value is above a limit; its end where none is.

    Args:
        values: Shape (n,), ascending within each group.
        limit: Shape (k,).
        group: Shape (k,), the group in which to look.
        bounds: Shape (groups + 1,): group g lies at bounds[g] to bounds[g + 1].

    Returns:
        Shape (k,), positions in `values`.
    """
    used = distinct(group)
    if used.size <= _FEW_GROUPS:
        place = np.empty(limit.shape, dtype=np.int64)
        for value in used.tolist():
            rows = slice(None) if used.size == 1 else np.flatnonzero(group == value)
            part = values[bounds[value] : bounds[value + 1]]
            place[rows] = bounds[value] + np.searchsorted(part, limit[rows], side="right")
        return place
    low, high = bounds[group], bounds[group + 1]
    while (low < high).any():
        middle = (low + high) // 2  # below `high`, but for groups that have been searched
        above = values[np.minimum(middle, values.size - 1)] > limit
        searching = low < high
        high = np.where(searching & above, middle, high)
        low = np.where(searching & ~above, middle + 1, low)
    return low


def last_above(position: IntArray, limit: IntArray, levels: list[IntArray]) -> IntArray:
    """Return the last place up to each position whose value is above the limit, or -1.

    Args:
        position: Shape (k,), at least 0.
        limit: Shape (k,).
    """
    place = np.full(position.shape, -1, dtype=np.int64)
    waiting, node = np.arange(position.size), position
    for level, largest in enumerate(levels):
        above = largest[node] > limit[waiting]
        rows = waiting[above]
        place[rows] = _descend(node[above], level, levels, limit[rows])
        # None of this node is: look at what holds the one before it. That may hold this node
        # too, which does no harm, and nothing that comes later.
        left = ~above & (node > 0)
        waiting, node = waiting[left], (node[left] - 1) // 2
    return place


def maxima(values: IntArray) -> list[IntArray]:
    """Return the values, then the larger of each two, and so on up to a single value."""
    levels = [values]
    while levels[-1].size > 1:
        below = levels[-1]
        if below.size % 2:
            below = np.append(below, np.iinfo(np.int64).min)
        levels.append(np.maximum(below[::2], below[1::2]))
    return levels


def _descend(node: IntArray, level: int, levels: list[IntArray], limit: IntArray) -> IntArray:
    """Return the last leaf below each node that is above its limit."""
    for below in levels[level - 1 :: -1] if level else ():
        right = np.minimum(2 * node + 1, below.size - 1)
        node = np.where(below[right] > limit, right, 2 * node)
    return node
