"""Whether a rank outside of a communicator leaves its collectives too. Pure numpy.

A communicator that lacks one of its ranks, or that shares a stream with a larger one, looks well by
itself. But some rank outside leaves collectives at the same instants, and not because it happened
to come last at the same time (see `cohesion`). Then it is not known whose collectives these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.cohesion import slope_between
from nsys_llm.numeric.intervals import IntArray

#: Collectives of a communicator that are looked at, evenly spread.
_SAMPLE: Final = 256
#: Share of them, in percent, that an outsider leaves too before it matters; ours.
_SHARED_PCT: Final = 5
#: Standard deviations that this has to exceed chance by.
_SIGMAS: Final = 4
#: What time stamps do not resolve.
_LEAST_NS: Final = 1_000
#: The slope of two communicators is 1, within this and two errors.
_STEEP: Final = 0.9
_ERRORS: Final = 2.0


@dataclass(frozen=True)
class Party:
    """Ranks that leave together, or one rank alone; on the common clock, in order of first ends.

    Attributes:
        owners: Devices, by position.
        last_start_ns: When the last of them comes; shape (collectives,).
    """

    owners: frozenset[int]
    last_start_ns: IntArray
    first_end_ns: IntArray
    last_end_ns: IntArray

    @classmethod
    def of(
        cls, owners: Sequence[int], start_ns: Sequence[IntArray], end_ns: Sequence[IntArray]
    ) -> Party:
        """Return the party of ranks by when each comes and leaves; shape (collectives,) each."""
        start, first = np.maximum.reduce(start_ns), np.minimum.reduce(end_ns)
        order = np.argsort(first, kind="stable")
        last = np.maximum.reduce(end_ns)
        return cls(frozenset(owners), start[order], first[order], last[order])

    def only(self, kept: IntArray) -> Party:
        """Return it with some of its collectives."""
        return Party(
            self.owners, self.last_start_ns[kept], self.first_end_ns[kept], self.last_end_ns[kept]
        )

    def __len__(self) -> int:
        return self.first_end_ns.size


def shared_with_outsiders(parties: Sequence[Party], judged: Sequence[int]) -> list[bool]:
    """Return whether somebody else may take part in the collectives of parties.

    Args:
        parties: All ranks that run one kernel, together or alone.
        judged: Positions of those to judge.
    """
    ends = np.concatenate([party.first_end_ns for party in parties])
    party = np.repeat(np.arange(len(parties)), [len(party) for party in parties])
    order = np.argsort(ends, kind="stable")
    ends, party = ends[order], party[order]
    return [_is_shared(place, parties, ends, party) for place in judged]


def _is_shared(place: int, parties: Sequence[Party], ends: IntArray, party: IntArray) -> bool:
    whole = parties[place]
    if not len(whole):
        return False
    n = min(len(whole), _SAMPLE)
    sample = whole.only((len(whole) * np.arange(n)) // n)
    width = sample.last_end_ns - sample.first_end_ns
    skew_ns = int(np.median(width)) + _LEAST_NS
    low = np.searchsorted(ends, sample.first_end_ns - skew_ns)
    count = np.searchsorted(ends, sample.last_end_ns + skew_ns, side="right") - low
    row = np.repeat(np.arange(n), count)
    at = np.arange(row.size) + np.repeat(low - (np.cumsum(count) - count), count)
    seen = np.unique(party[at] * n + row)
    shared_n = np.bincount(seen // n, minlength=len(parties))
    window_ns = int((width + 2 * skew_ns).sum()) // n
    return any(
        _takes_part(sample, parties[other], int(shared_n[other]), window_ns)
        for other in np.flatnonzero(100 * shared_n > _SHARED_PCT * n).tolist()
        if other != place and not sample.owners & parties[other].owners
    )


def _takes_part(party: Party, other: Party, shared_n: int, window_ns: int) -> bool:
    """Return whether two parties leave together more often than chance and their starts explain."""
    inside = party.first_end_ns >= other.first_end_ns[0] - window_ns
    inside &= party.first_end_ns <= other.first_end_ns[-1] + window_ns
    n = max(int(inside.sum()), 1)
    period_ns = int(np.ptp(other.first_end_ns)) // max(len(other) - 1, 1)
    chance = min(window_ns / max(period_ns, 1), 1.0)
    if shared_n <= n * chance + _SIGMAS * np.sqrt(n * chance) + n * _SHARED_PCT / 100:
        return False
    above = np.searchsorted(other.first_end_ns, party.first_end_ns)
    low, high = np.maximum(above - 1, 0), np.minimum(above, len(other) - 1)
    before = party.first_end_ns - other.first_end_ns[low]
    row = np.where(before <= other.first_end_ns[high] - party.first_end_ns, low, high)
    left = other.first_end_ns[row] - party.first_end_ns
    near = inside & (2 * np.abs(left) <= period_ns)
    slope = slope_between((other.last_start_ns[row] - party.last_start_ns)[near], left[near])
    return not (slope.is_two and slope.value >= _STEEP - _ERRORS * slope.error)
