"""Where the longest of each group lies. Pure numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray

#: So many rows at once stay in the processor's cache.
_BLOCK = 1 << 16
_NEVER = int(np.iinfo(np.int64).max)


def longest_starts(
    group: IntArray,
    start_ns: IntArray,
    duration_ns: IntArray,
    counted: npt.NDArray[np.bool_],
    longest_ns: IntArray,
) -> IntArray:
    """Return when the longest row of each group starts, the earliest of equals.

    Args:
        group: Shape (n,), codes from 0.
        start_ns: Shape (n,).
        duration_ns: Shape (n,).
        counted: Shape (n,): which rows count.
        longest_ns: Shape (groups,), the longest duration of each group.

    Returns:
        Shape (groups,); NULL_INT where no row of the group counts.
    """
    found = np.full(len(longest_ns), _NEVER, dtype=np.int64)
    for first in range(0, group.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        mine = group[block]
        rows = np.flatnonzero(counted[block] & (duration_ns[block] == longest_ns[mine]))
        np.minimum.at(found, mine[rows], start_ns[block][rows])
    return np.where(found == _NEVER, NULL_INT, found)
