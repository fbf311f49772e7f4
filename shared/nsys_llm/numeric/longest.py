"""Where the longest of each group lie, a bounded number, ties in a fixed order. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import begins_group, order_by_code, position_in_group, summed
from nsys_llm.numeric.intervals import IntArray

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
    earliest_ns = np.full(len(longest_ns), _NEVER, dtype=np.int64)
    for block in small_blocks(group.size):
        selected = group[block]
        rows = np.flatnonzero(counted[block] & (duration_ns[block] == longest_ns[selected]))
        np.minimum.at(earliest_ns, selected[rows], start_ns[block][rows])
    return np.where(earliest_ns == _NEVER, NULL_INT, earliest_ns)


def longest_of_each(
    group: IntArray, value: IntArray, ties: Sequence[IntArray], most: int
) -> IntArray:
    """Return the rows of the `most` largest values of each group, by group, largest first.

    Args:
        group: Shape (n,).
        value: Shape (n,).
        ties: Columns of shape (n,) that order equal values, the smaller first.
    """
    order = np.lexsort((*ties[::-1], -value, group))
    return order[position_in_group(group[order]) < most]


def among_largest(value: IntArray, most: int) -> npt.NDArray[np.bool_]:
    """Return which values are among the `most` largest, or equal to the last of these."""
    if value.size <= most:
        return np.ones(value.size, dtype=bool)
    return np.asarray(value >= np.partition(value, -most)[-most])


def candidate_rows(
    group: IntArray, value: IntArray, start_ns: IntArray, counts: ValueCounts, most: int
) -> IntArray:
    """Return rows among which are the `most` largest values of each group, the earliest of equals.

    Few rows more than those: all with the start of the last one taken. One pass and no sort of
    `value`: the counts tell from which value on a group has enough.

    Args:
        group: Shape (n,), codes from 0.
        value: Shape (n,).
        start_ns: Shape (n,), ascending.
        most: Rows of a group, at least 1.

    Returns:
        Ascending.
    """
    if group.size == 0:
        return np.empty(0, dtype=np.int64)
    least, above_n = _thresholds(counts, int(group.max()) + 1, most)
    limit = least[group]
    rows = np.flatnonzero(value >= limit)
    equal = value[rows] == limit[rows]
    tied = rows[equal]
    tied = tied[order_by_code(group[tied])]
    tied_group, position = group[tied], position_in_group(group[tied])
    wanted_n = most - above_n[tied_group]
    # Of equal values the earliest; what starts with the last of them is left for the caller.
    last = np.flatnonzero(position == wanted_n - 1)
    latest_ns = np.full(least.size, _NEVER, dtype=np.int64)
    latest_ns[tied_group[last]] = start_ns[tied[last]]
    kept = start_ns[tied] <= latest_ns[tied_group]
    return np.sort(np.concatenate((rows[~equal], tied[kept])))


def _thresholds(counts: ValueCounts, groups_n: int, most: int) -> tuple[IntArray, IntArray]:
    """Return of each group the value at which it has enough, and how many rows are above it."""
    total = summed(counts.group, counts.count, groups_n)
    until_n = np.cumsum(counts.count)
    # Rows of the group with this value or a larger one, and with a larger one.
    above_n = np.cumsum(total)[counts.group] - until_n
    taken = above_n < most
    first = np.flatnonzero(
        taken & np.concatenate(([True], ~taken[:-1] | begins_group(counts.group)[1:]))
    )
    least, more_n = np.zeros(groups_n, dtype=np.int64), np.zeros(groups_n, dtype=np.int64)
    least[counts.group[first]] = counts.value[first]
    more_n[counts.group[first]] = above_n[first]
    return least, more_n
