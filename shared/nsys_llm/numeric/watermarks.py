"""How much memory is in use over time, from allocations and frees. Pure numpy, integers only."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.grouping import begins_group
from nsys_llm.numeric.intervals import IntArray, bin_edges

#: Stands where no event follows.
NEVER: Final = -1


def matched_frees(
    address: IntArray, at_ns: IntArray, is_free: npt.NDArray[np.bool_]
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return the event that ends each allocation, and which frees end none.

    An allocation ends with the next event at its address. That is its free; where it is another
    allocation, the free was not recorded, and the memory must have been given back before.

    Args:
        address: Shape (n,), unique in a process while in use.
        at_ns: Shape (n,); events of one ns keep the order of their rows.

    Returns:
        The row of the ending event, or NEVER, which is also what frees have; and for each event
        whether it is a free of memory that was not allocated while recording.
    """
    order = np.lexsort((np.arange(address.size), at_ns, address))
    same = np.concatenate((address[order][1:] == address[order][:-1], [False]))[: order.size]
    following = np.append(order[1:], NEVER)[: order.size]
    ended_by = np.full(address.size, NEVER, dtype=np.int64)
    ended_by[order] = np.where(same & ~is_free[order], following, NEVER)
    ends_some = np.zeros(address.size, dtype=bool)
    ends_some[ended_by[ended_by != NEVER]] = True
    return ended_by, is_free & ~ends_some


def levels(at_ns: IntArray, change_bytes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the instants at which the level changes, ascending, and the level from each on.

    Changes of one ns are one step: what is allocated and freed within it was never in use.
    """
    if at_ns.size == 0:
        return at_ns, change_bytes
    order = np.argsort(at_ns, kind="stable")
    times = at_ns[order]
    first = np.flatnonzero(begins_group(times))
    return times[first], np.cumsum(np.add.reduceat(change_bytes[order], first))


def level_at(at_ns: IntArray, times: IntArray, level: IntArray) -> IntArray:
    """Return the level at some instants, 0 before the first change.

    Args:
        times: Shape (m,), as `levels` gives it.
        level: Shape (m,), likewise.
    """
    index = np.searchsorted(times, at_ns, side="right")
    return np.concatenate(([0], level))[index]


def notable_steps(times: IntArray, level: IntArray, most_bins: int) -> IntArray:
    """Return the steps that tell the course, at most two for each of some equal parts of the time.

    These are the highest of each part and its last one: so the highest level, and the level at the
    end of each part, are exact.

    Returns:
        Positions in `times`, ascending, each once.
    """
    if times.size == 0:
        return np.empty(0, dtype=np.int64)
    edges = bin_edges(int(times[0]), int(times[-1]) + 1, most_bins)
    part = np.searchsorted(edges[1:-1], times, side="right")
    last = np.flatnonzero(np.append(part[1:] != part[:-1], True))
    # Of equally high steps of a part the first: it is the one that reached the height.
    order = np.lexsort((-np.arange(times.size), level, part))
    highest = order[last]
    return np.unique(np.concatenate((highest, last))).astype(np.int64)
