"""Which interval is open at an instant, the innermost of them. Pure numpy.

For few instants and many intervals: the work beyond one pass over the intervals is a few steps a
doubling of their number, for all instants together.
"""

from __future__ import annotations

import numpy as np

from nsys_llm.intervals import IntArray

__all__ = ["innermost"]


def innermost(at_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return for each instant the last interval that starts by then and ends after it, or -1.

    Of intervals that are properly nested, as the ranges of a thread are, that is the innermost one;
    it needs no nesting.

    Args:
        at_ns: Shape (k,).
        start_ns: Shape (n,), ascending; of equal starts the outer comes first.
        end_ns: Shape (n,), `end_ns > start_ns`, since an empty interval is never open.
    """
    position = np.searchsorted(start_ns, at_ns, side="right") - 1
    if start_ns.size == 0:
        return position
    levels = _maxima(end_ns)
    found = np.full(at_ns.shape, -1, dtype=np.int64)
    waiting = np.flatnonzero(position >= 0)
    node = position[waiting]
    for level, ends in enumerate(levels):
        is_open = ends[node] > at_ns[waiting]
        rows = waiting[is_open]
        found[rows] = _descend(node[is_open], level, levels, at_ns[rows])
        # All of this node is closed: look at what holds the one before it. That may hold this node
        # too, which does no harm, and nothing that starts later.
        left = ~is_open & (node > 0)
        waiting, node = waiting[left], (node[left] - 1) // 2
    return found


def _maxima(values: IntArray) -> list[IntArray]:
    """Return the values, then the larger of each two, and so on up to one."""
    levels = [values]
    while levels[-1].size > 1:
        below = levels[-1]
        if below.size % 2:
            below = np.append(below, np.iinfo(np.int64).min)
        levels.append(np.maximum(below[::2], below[1::2]))
    return levels


def _descend(node: IntArray, level: int, levels: list[IntArray], at_ns: IntArray) -> IntArray:
    """Return the last leaf below each node that is open."""
    for below in levels[level - 1 :: -1] if level else ():
        right = np.minimum(2 * node + 1, below.size - 1)
        node = np.where(below[right] > at_ns, right, 2 * node)
    return node
