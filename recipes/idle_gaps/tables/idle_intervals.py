"""When all of some ranks are in a state at once, or all but one. Pure numpy.

Memory and time grow with the number of intervals of all ranks together, not with ranks times time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray, clip_to_windows, total_length_ns, union_intervals

#: How often the ranks are turned against each other to see how much chance gives: what is beyond
#: all of them is chance once in a hundred times. Of many intervals, fewer turns, so that they take
#: a second at most; with too many for any, chance hardly varies, and twice as much is beyond it.
_TURNS: Final = 99
_MOST_TURNED: Final = 4_000_000
_WITHOUT_TURNS: Final = 2.0


@dataclass(frozen=True)
class Chance:
    """Which part of the time ranks that have nothing to do with each other would be in a state.

    Attributes:
        share: The part: the product of each rank's own.
        largest: The largest part that was seen in ranks turned against each other; where one rank
            is not in the state, of any such rank.
        possible: The largest part there could be, from each rank's own.
    """

    share: float
    largest: float
    possible: float


@dataclass(frozen=True)
class Chances:
    """What chance gives.

    Attributes:
        every: That every rank is in the state.
        alone: That every rank but this one is, by its position.
    """

    every: Chance
    alone: Sequence[Chance]


def common_intervals(
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
    clipped = [_clipped(interval, span) for interval in intervals]
    rank = np.repeat(np.arange(ranks_n), [len(item) for item in clipped])
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
        missing_rank: union_intervals(starts[part], ends[part])
        for missing_rank, part in zip(ranks.tolist(), parts, strict=False)
    }
    return union_intervals(starts[every], ends[every]), alone


def intervals_by_chance(intervals: Sequence[IntArray], span: tuple[int, int]) -> Chances:
    """Return how much of `common_intervals` ranks would give that know nothing of each other.

    Args:
        intervals: As for `common_intervals`.
        span: Likewise; not empty.
    """
    length = span[1] - span[0]
    clipped = [_clipped(interval, span) - span[0] for interval in intervals]
    shares = [total_length_ns(item) / length for item in clipped]
    every = math.prod(shares)
    alone = [
        math.prod([*shares[:rank], *shares[rank + 1 :], 1 - share])
        for rank, share in enumerate(shares)
    ]
    largest = _largest(clipped, length)
    every_most, alone_most = largest or (_WITHOUT_TURNS * every, _WITHOUT_TURNS * max(alone))
    return Chances(
        Chance(every, every_most, min(shares)),
        [
            Chance(share, alone_most, min([*shares[:rank], *shares[rank + 1 :], 1 - shares[rank]]))
            for rank, share in enumerate(alone)
        ],
    )


def _largest(intervals: Sequence[IntArray], length: int) -> tuple[float, float] | None:
    """Return the largest shares when each rank is turned by a time of its own.

    A turn leaves a rank's own pattern as it is, periods too, and breaks what ties it to the others.
    """
    rng = np.random.default_rng(0)
    turns_n = min(_TURNS, _MOST_TURNED // max(sum(map(len, intervals)), 1))
    shares = []
    for _ in range(turns_n):
        turned = [_turned(interval, int(rng.integers(length)), length) for interval in intervals]
        every, alone = common_intervals(turned, (0, length))
        most_ns = max((total_length_ns(spans) for spans in alone.values()), default=0)
        shares.append((total_length_ns(every) / length, most_ns / length))
    return (
        (max(share for share, _ in shares), max(share for _, share in shares)) if shares else None
    )


def _turned(intervals: IntArray, by_ns: int, length: int) -> IntArray:
    """Return intervals in 0 .. length moved on, and from the end to the beginning."""
    moved = intervals + by_ns
    inside, beyond = moved[moved[:, 0] < length], moved[moved[:, 1] > length] - length
    # One interval may lie across the end, and stands in both.
    return np.concatenate((np.maximum(beyond, 0), np.minimum(inside, length)))


def _clipped(intervals: IntArray, span: tuple[int, int]) -> IntArray:
    window = np.array([span], dtype=np.int64)
    if span[1] <= span[0]:
        return np.empty((0, 2), dtype=np.int64)
    _, starts, ends = clip_to_windows(intervals[:, 0], intervals[:, 1], window)
    return np.column_stack((starts, ends))
