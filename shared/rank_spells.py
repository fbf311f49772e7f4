"""When all of some ranks are in a state at once, or all but one. Pure numpy.

Memory and time grow with the number of intervals of all ranks together, not with ranks times time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys_llm.intervals import IntArray, clip_to_windows, union_intervals

__all__ = ["spells_together"]


def spells_together(
    intervals: Sequence[IntArray], span: tuple[int, int]
) -> tuple[IntArray, dict[int, IntArray]]:
    """Return when every rank is in the state, and when every rank but one is.

    Args:
        intervals: For each rank, shape (n, 2), sorted and disjoint: when it is in the state; all in
            one clock.
        span: When all ranks were watched; nothing outside it counts.

    Returns:
        Shape (k, 2), sorted and disjoint; and the same for each rank that is the one that is not in
        the state, by its position. The order of ranks changes nothing but the positions.
    """
    ranks_n = len(intervals)
    clipped = [_clipped(one, span) for one in intervals]
    rank = np.repeat(np.arange(ranks_n), [len(one) for one in clipped])
    spans = np.concatenate([*clipped, np.empty((0, 2), dtype=np.int64)])
    at_ns = np.concatenate((spans[:, 0], spans[:, 1], span))
    step = np.repeat([1, -1], len(spans))
    order = np.argsort(at_ns, kind="stable")
    # How many are in the state from each instant to the next, and the sum of their positions.
    count = np.cumsum(np.append(step, [0, 0])[order])[:-1]
    places = np.cumsum(np.concatenate((rank, -rank, [0, 0]))[order])[:-1]
    starts, ends = at_ns[order][:-1], at_ns[order][1:]
    every = count == ranks_n
    lone = np.flatnonzero((count == ranks_n - 1) & (ends > starts))
    missing = ranks_n * (ranks_n - 1) // 2 - places[lone]
    by_rank = np.argsort(missing, kind="stable")
    ranks, first = np.unique(missing[by_rank], return_index=True)
    parts = np.split(lone[by_rank], first[1:])
    alone = {
        one: union_intervals(starts[part], ends[part])
        for one, part in zip(ranks.tolist(), parts, strict=False)
    }
    return union_intervals(starts[every], ends[every]), alone


def _clipped(intervals: IntArray, span: tuple[int, int]) -> IntArray:
    window = np.array([span], dtype=np.int64)
    if span[1] <= span[0]:
        return np.empty((0, 2), dtype=np.int64)
    _, starts, ends = clip_to_windows(intervals[:, 0], intervals[:, 1], window)
    return np.column_stack((starts, ends))
