"""Whether a rank is late to its collectives throughout, for a while, or by chance. Pure numpy.

Ranks that are alike come last in turn, and now and then one of them does so several times running,
or causes most of the waiting of a few collectives. So a rank is named only where chance gives what
it does in fewer than one of a hundred communicators (a bound: simulated ones are named less often):
by chance each of R ranks is last with probability 1 / R, however long a collective waits. That is
looked at in all collectives, and in those alone that wait long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.collectives.waits import THIRDS
from nsys_llm.numeric.intervals import IntArray

from .bursts import log_chance
from .collective_classes import (
    INCONCLUSIVE,
    NONE,
    PERSISTENT,
    TRANSIENT,
    telling_late_pct,
    third_sizes,
)

#: Fewer collectives than these in each third of the run show no pattern.
_LEAST_PER_THIRD: Final = 5
LEAST_COLLECTIVES: Final = THIRDS * _LEAST_PER_THIRD
#: A collective waits long from so many times the median waiting on, and so many times longer yet.
_LONG: Final = 2
_LONGER: Final = 4
#: Two latenesses are no burst.
_LEAST_LATE: Final = 3
#: Windows hold so many collectives, times powers of two.
_LENGTHS: Final = (3, 4)
#: What chance gives in more communicators than this says nothing; ours.
_LOG_LARGEST: Final = math.log(0.01)

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Lateness:
    """How one rank is late.

    Attributes:
        pattern: One of the words of `collective_classes`.
        burst: First and last collective of the time in which it is late beyond chance; None where
            it is no transient straggler, or is one again and again.
    """

    pattern: str
    burst: tuple[int, int] | None = None


@dataclass(frozen=True)
class Lasts:
    """The collectives of one communicator that are met, in order of time.

    Attributes:
        rank: Shape (n,), which rank was clearly last, by position; -1 where clocks cannot tell.
        wait_ns: Shape (n,), waiting of all ranks.
        unclear_n: For each rank, how often it was last by no more than the clocks can tell.
        caused_ns: For each rank, waiting that it caused.
    """

    rank: IntArray
    wait_ns: IntArray
    unclear_n: Sequence[int]
    caused_ns: Sequence[int]

    @property
    def ranks_n(self) -> int:
        """How many ranks take part."""
        return len(self.unclear_n)


def lateness_patterns(lasts: Lasts) -> list[Lateness]:
    """Return how each rank of a communicator is late."""
    n, ranks = lasts.rank.size, range(lasts.ranks_n)
    if n < LEAST_COLLECTIVES:
        return [Lateness(INCONCLUSIVE)] * lasts.ranks_n
    every = np.ones(n, dtype=bool)
    throughout = [_is_throughout(lasts, rank, every) for rank in ranks]
    levels = _levels(lasts.wait_ns)
    bursts = [None if throughout[rank] else _burst(lasts, rank, levels) for rank in ranks]
    # Who is late throughout is hidden where another one is later for a while.
    throughout = [
        throughout[rank] or _is_throughout(lasts, rank, _outside(bursts, rank, n)) for rank in ranks
    ]
    return [_lateness(lasts, rank, levels, throughout[rank], bursts[rank]) for rank in ranks]


def _lateness(
    lasts: Lasts,
    rank: int,
    levels: Sequence[_Bools],
    throughout: bool,
    burst: tuple[int, int] | None,
) -> Lateness:
    late_n, unclear_n = int((lasts.rank == rank).sum()), lasts.unclear_n[rank]
    telling_n = telling_late_pct(lasts.ranks_n) * lasts.rank.size / 100
    if unclear_n > late_n and unclear_n + late_n >= telling_n:
        return Lateness(INCONCLUSIVE)
    if throughout:
        return Lateness(PERSISTENT)
    if burst is not None:
        return Lateness(TRANSIENT, burst)
    return Lateness(TRANSIENT if _is_again_and_again(lasts, rank, levels) else NONE)


def _is_throughout(lasts: Lasts, rank: int, counted: _Bools) -> bool:
    """Return whether a rank stands out as the last in each third of the collectives."""
    late = counted & (lasts.rank == rank)
    places = np.cumsum(third_sizes(late.size))[:-1]
    late_n = np.array([part.sum() for part in np.split(late, places)])
    all_n = np.array([part.sum() for part in np.split(counted, places)])
    telling = telling_late_pct(lasts.ranks_n)
    if (all_n < _LEAST_PER_THIRD).any() or (100 * late_n < telling * all_n).any():
        return False
    log = log_chance(late_n.sum(keepdims=True), int(all_n.sum()), 1 / lasts.ranks_n)
    return bool(log[0] + math.log(lasts.ranks_n) < _LOG_LARGEST)


def _outside(bursts: Sequence[tuple[int, int] | None], rank: int, n: int) -> _Bools:
    """Return the collectives that are in no other rank's burst."""
    counted = np.ones(n, dtype=bool)
    for place, burst in enumerate(bursts):
        if burst is not None and place != rank:
            counted[burst[0] : burst[1] + 1] = False
    return counted


def _levels(wait_ns: IntArray) -> list[_Bools]:
    """Return all collectives, those that wait long, those that wait longer, and so on."""
    least = _LONG * float(np.median(wait_ns))
    levels = [np.ones(wait_ns.size, dtype=bool)]
    # Where most do not wait at all, those that do are long.
    while least > 0 and (long := wait_ns > least).any():
        levels.append(long)
        least *= _LONGER
    return levels if least > 0 else [*levels, wait_ns > 0]


def _burst(lasts: Lasts, rank: int, levels: Sequence[_Bools]) -> tuple[int, int] | None:
    """Return the first and last collective of the least likely window of a rank's latenesses.

    Of the collectives that wait long, a rank is by chance last in one of R. So in a window that
    begins with one of those, each other collective holds one with the share of the long ones in
    all, over R. The probability of as many as there are, times the windows looked at, is the bound.
    """
    n = lasts.rank.size
    lengths = [
        item << by for item in _LENGTHS for by in range(n.bit_length()) if item << by <= n // 2
    ]
    best, window = _LOG_LARGEST, None
    for long in levels:
        late = np.flatnonzero(long & (lasts.rank == rank))
        if late.size < _LEAST_LATE:
            continue
        part = float(long.mean()) / lasts.ranks_n
        looked_at = math.log(int(long.sum()) * len(lengths) * len(levels))
        for length in lengths:
            last = np.searchsorted(late, late + length) - 1
            others_n = last - np.arange(late.size)
            log = looked_at + log_chance(others_n, length - 1, part)
            log[others_n < _LEAST_LATE - 1] = 0.0
            first = int(log.argmin())
            if log[first] < best:
                best, window = float(log[first]), _grown(late, first, int(last[first]))
    return window


def _grown(late: IntArray, first: int, last: int) -> tuple[int, int]:
    """Return a window with the latenesses beside it that are as close as its own."""
    gaps = np.diff(late)
    near = int(gaps[first:last].max())
    while first > 0 and gaps[first - 1] <= near:
        first -= 1
    while last < gaps.size and gaps[last] <= near:
        last += 1
    return int(late[first]), int(late[last])


def _is_again_and_again(lasts: Lasts, rank: int, levels: Sequence[_Bools]) -> bool:
    """Return whether a rank caused most waiting, and more of the long ones than its turn."""
    whole_ns = sum(lasts.caused_ns)
    if 100 * lasts.caused_ns[rank] < telling_late_pct(lasts.ranks_n) * whole_ns or not whole_ns:
        return False
    tests = math.log(lasts.ranks_n * len(levels))
    for long in levels:
        late_n = (long & (lasts.rank == rank)).sum(keepdims=True)
        if tests + log_chance(late_n, int(long.sum()), 1 / lasts.ranks_n)[0] < _LOG_LARGEST:
            return True
    return False
