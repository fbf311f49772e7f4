"""Windows that hold more events than chance would put there: a scan statistic. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: Bursts that chance alone would give once in so many sets of events are reported.
LARGEST_CHANCE: Final = 0.01
#: Two events make no burst.
_LEAST_EVENTS: Final = 3
#: Windows are a quarter of the time at most, and half as long each time, down to this: what is
#: shorter than a kernel's launch takes is no burst but one disturbance. 1 us.
_LONGEST_PART: Final = 4
_SHORTEST_NS: Final = 1_000
#: Events beside a burst belong to it up to so many of its longest distance.
_AS_CLOSE: Final = 2

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Burst:
    """One burst.

    Attributes:
        first: Position of its first event; the others follow.
        expected: How many chance would put into its time.
        chance: At most how many windows as full chance would give, of all that were looked at.
    """

    first: int
    events_n: int
    expected: float
    chance: float


def find_bursts(start_ns: IntArray, end_ns: IntArray, busy_ns: int) -> list[Burst]:
    """Return the windows with too many events to be spread by chance, in order of time.

    From each event on, windows of every length are looked at. Of n events spread evenly at random
    over a time T, a window of length w that begins with one holds each of the others with the
    probability w / T. The probability of as many as there are, times the number of windows looked
    at, bounds how many as full chance gives. Fullest windows first; none overlap.

    Args:
        start_ns: Shape (n,), ascending; an event is in a window where it starts in it.
        end_ns: Shape (n,), ends of the events.
        busy_ns: T, the time in which there can be events.
    """
    events_n = start_ns.size
    lengths = _window_lengths(busy_ns)
    if events_n < _LEAST_EVENTS or not lengths:
        return []
    counts = [
        np.searchsorted(start_ns, start_ns + length, side="right") - np.arange(events_n)
        for length in lengths
    ]
    looked_at = np.log(windows_n(events_n, busy_ns))
    logs = [
        looked_at + log_chance(count - 1, events_n - 1, length / busy_ns)
        for count, length in zip(counts, lengths, strict=True)
    ]
    best = np.argmin(np.stack(logs), axis=0)
    every = np.arange(events_n)
    log, count = np.stack(logs)[best, every], np.stack(counts)[best, every]
    likely = np.flatnonzero((log < np.log(LARGEST_CHANCE)) & (count >= _LEAST_EVENTS))
    chosen = _apart(likely[np.lexsort((likely, log[likely]))].tolist(), count)
    reach = np.maximum.accumulate(end_ns)
    bursts: list[Burst] = []
    for first in chosen:
        low, high = _grown(start_ns, first, first + int(count[first]), busy_ns / events_n)
        if bursts and low < bursts[-1].first + bursts[-1].events_n:
            continue  # they have grown together
        length_ns = int(reach[high - 1] - start_ns[low])
        expected = events_n * length_ns / busy_ns
        bursts.append(Burst(low, high - low, expected, float(np.exp(log[first]))))
    return bursts


def _grown(start_ns: IntArray, low: int, high: int, mean_ns: float) -> tuple[int, int]:
    """Return a burst with the events beside it that are about as close as its own.

    The fullest window of a burst need not hold all of it.
    """
    gaps = np.diff(start_ns)
    near_ns = min(_AS_CLOSE * int(gaps[low : high - 1].max()), mean_ns / _LONGEST_PART)
    while low > 0 and gaps[low - 1] <= near_ns:
        low -= 1
    while high < start_ns.size and gaps[high - 1] <= near_ns:
        high += 1
    return low, high


def log_chance(others: IntArray, events_n: int, part: float) -> _Floats:
    """Return a bound of the logarithm of the chance that so many of some events are in a window.

    Chernoff's bound of the binomial distribution, by the divergence of the two shares.

    Args:
        others: Events in the window.
        part: Probability of each to be there, above 0.
    """
    if part >= 1 or events_n < 1:
        return np.zeros(others.shape)
    share = np.minimum(others / events_n, 1.0)
    inside = share * np.log(np.maximum(share, 1e-300) / part)
    left = 1.0 - share
    outside = left * np.log(np.maximum(left, 1e-300) / (1.0 - part))
    return np.where(share > part, -events_n * (inside + outside), 0.0)


def windows_n(events_n: int, busy_ns: int) -> int:
    """Return how many windows are looked at."""
    return events_n * len(_window_lengths(busy_ns))


def _window_lengths(busy_ns: int) -> list[int]:
    lengths, length = [], busy_ns // _LONGEST_PART
    while length >= _SHORTEST_NS:
        lengths.append(length)
        length //= 2
    return lengths


def _apart(ranked: list[int], count: IntArray) -> list[int]:
    """Return windows, by their first events, that share no event with one that came before."""
    taken = np.zeros(count.size, dtype=np.bool_)
    chosen = []
    for first in ranked:
        events = slice(first, first + int(count[first]))
        if not taken[events].any():
            taken[events] = True
            chosen.append(first)
    return sorted(chosen)
