"""Runs of events that stand closer together than chance would put them. Pure numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.intervals import IntArray

__all__ = ["LARGEST_CHANCE", "Burst", "find_bursts"]

#: Runs that chance alone would give once in so many sets of events are told of.
LARGEST_CHANCE: Final = 0.01
#: Two events make no run.
_LEAST_EVENTS: Final = 3
#: Events of one run are closer than the mean distance by this factor, and never further apart than
#: `_LONGEST_GAP_NS`: what disturbs a GPU for a while (a copy, another process, a clock that drops)
#: lasts milliseconds.
_CLOSER: Final = 10
_LONGEST_GAP_NS: Final = 1_000_000


@dataclass(frozen=True)
class Burst:
    """One run.

    Attributes:
        first: Position of its first event; the others follow.
        events_n: How many.
        expected: How many chance would put into its time.
        chance: How many runs as long chance would give in the whole set.
    """

    first: int
    events_n: int
    expected: float
    chance: float


def find_bursts(start_ns: IntArray, end_ns: IntArray, busy_ns: int) -> list[Burst]:
    """Return the runs of events that are too close together to be spread by chance.

    Spread evenly at random over a time T, n events lie T / n apart in the mean, and a distance is
    at most g with the probability p = 1 - exp(-g n / T), each by itself; so k events in a run are
    expected n p^(k - 1) times.

    Args:
        start_ns: Shape (n,), ascending.
        end_ns: Shape (n,), ends of the events.
        busy_ns: T, the time in which there can be events.
    """
    events_n = start_ns.size
    if events_n < _LEAST_EVENTS or busy_ns <= 0:
        return []
    mean_ns = busy_ns / events_n
    gap_ns = min(mean_ns / _CLOSER, _LONGEST_GAP_NS)
    probability = -math.expm1(-gap_ns / mean_ns)
    reach = np.maximum.accumulate(end_ns)
    first = np.flatnonzero(np.append(True, start_ns[1:] - reach[:-1] > gap_ns))
    sizes = np.diff(np.append(first, events_n))
    found = []
    for at, size in zip(first.tolist(), sizes.tolist(), strict=True):
        chance = events_n * probability ** (size - 1)
        if size < _LEAST_EVENTS or chance >= LARGEST_CHANCE:
            continue
        length_ns = int(reach[at + size - 1] - start_ns[at])
        found.append(Burst(at, size, length_ns / mean_ns, chance))
    return found
