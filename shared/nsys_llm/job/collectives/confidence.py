"""How sure it is that ranks had their collectives together, and nobody else took part. Pure.

High and medium need all four: the ranks meet in nearly all of the collectives, they are certainly
one communicator (`cohesion`), no rank outside leaves with them, and nothing tells of more members
(`Told`). Sums and findings leave out what has low confidence. A communicator that lacks one of its
ranks, or that shares a stream with a larger one, looks well by itself; but some rank outside leaves
collectives at the same instants, and not because it happened to come last at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.job.collectives.alignment import WALL_CLOCK_NS, Executions, likely_lags
from nsys_llm.job.collectives.cohesion import slope_between
from nsys_llm.job.collectives.matching import Lane, Matched
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV, members_n, operation_of

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
#: Clocks that are slewed run apart by so much (500 ppm each, as NTP does at most), beside the
#: scatter of ends; looked at over so much time, or from one collective to the next.
_MOST_SLEW: Final = 1000e-6
_SCATTER_NS: Final = 3_000
_STRIDE_NS: Final = 5_000_000
#: The slope of parts of one communicator is 0, and of two 1.
_HALF: Final = 0.5
#: Fewer collectives lie on any line.
_LEAST: Final = 5
#: Parties that one is compared with, those with about as many collectives.
_MOST_OTHERS: Final = 16
LOW_CONFIDENCE: Final = "low"

#: Collectives and share that overlap, in percent, from which ranks do meet.
_SURE: Final = (10, 99)
_LIKELY: Final = (3, 90)


@dataclass(frozen=True)
class Party:
    """Ranks that leave together, or one rank alone; on the common clock, in order of first ends.

    Attributes:
        root: The clock that theirs are tied to.
        last_start_ns: When the last of them comes; shape (collectives,).
    """

    owners: frozenset[int]
    root: int
    last_start_ns: IntArray
    first_end_ns: IntArray
    last_end_ns: IntArray

    @classmethod
    def of(
        cls,
        owners: Sequence[int],
        root: int,
        start_ns: Sequence[IntArray],
        end_ns: Sequence[IntArray],
    ) -> Party:
        """Return the party of ranks by when each comes and leaves; shape (collectives,) each."""
        start, first = np.maximum.reduce(start_ns), np.minimum.reduce(end_ns)
        order = np.argsort(first, kind="stable")
        last = np.maximum.reduce(end_ns)
        return cls(frozenset(owners), root, start[order], first[order], last[order])

    def only(self, kept: IntArray) -> Party:
        """Return it with some of its collectives."""
        times = (self.last_start_ns, self.first_end_ns, self.last_end_ns)
        return Party(self.owners, self.root, *(at_ns[kept] for at_ns in times))

    def __len__(self) -> int:
        return self.first_end_ns.size


def shared_with_outsiders(parties: Sequence[Party], judged: Sequence[int]) -> list[bool]:
    """Return whether somebody else may take part in the collectives of parties.

    Args:
        parties: All ranks that run one kernel, together or alone.
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


def is_cut(party: Party, others: Sequence[Party]) -> bool:
    """Return whether ranks on clocks that nothing ties to those of a party may be part of it."""
    apart = [other for other in others if other.root != party.root]
    apart.sort(key=lambda other: abs(len(other) - len(party)))
    return any(_goes_along(party, other) for other in apart[:_MOST_OTHERS])


def _goes_along(party: Party, other: Party) -> bool:
    """Return whether two parties leave together, as far as clocks can tell that are slewed."""
    if min(len(party), len(other)) <= _LEAST:
        return False
    mine, theirs = (Executions(some.last_start_ns, some.first_end_ns) for some in (party, other))
    lags, pairs_n = likely_lags(mine, theirs, WALL_CLOCK_NS)
    lags, pairs_n = lags[pairs_n > _LEAST], pairs_n[pairs_n > _LEAST]
    period_ns = int(np.ptp(other.first_end_ns)) // (len(other) - 1)
    stride = int(np.clip(_STRIDE_NS // max(period_ns, 1), 1, pairs_n.min() // 2))
    sample = np.arange(min(_SAMPLE, int(pairs_n.max() - stride)))
    rows = np.maximum(0, -lags)[:, None] + ((pairs_n - stride)[:, None] * sample) // sample.size

    def moved(of_other: IntArray, of_party: IntArray, later_n: int) -> IntArray:
        """Return how much farther apart both are some collectives later, shape (lags, sample)."""
        there, rest = rows + lags[:, None], rows + later_n
        apart_later = of_other[rest] - of_party[there + later_n]
        return np.asarray(apart_later - (of_other[rows] - of_party[there]))

    ends = other.first_end_ns, party.first_end_ns
    away = np.median(np.abs(moved(*ends, stride)), axis=1)
    best = int(away.argmin())
    if away[best] > _SCATTER_NS + _MOST_SLEW * period_ns * stride:
        return False
    started = moved(other.last_start_ns, party.last_start_ns, 1)[best]
    return slope_between(started, moved(*ends, 1)[best]).value < _HALF


def met_confidence(collectives_n: int, met_n: int) -> str:
    """Return high, medium or low, by how often all ranks of a sequence meet."""
    met_pct = 100 * met_n / max(collectives_n, 1)
    for word, (least_n, least_pct) in (("high", _SURE), ("medium", _LIKELY)):
        if collectives_n >= least_n and met_pct >= least_pct:
            return word
    return LOW_CONFIDENCE


@dataclass(frozen=True)
class Told:
    """What ids, sizes and names tell of communicators.

    Attributes:
        owners: Of each id, the devices whose calls name it.
        sizes: Of those that were made in the capture, how many ranks.
    """

    owners: Mapping[int, frozenset[int]]
    sizes: Mapping[int, int]

    @classmethod
    def of(cls, lanes: Sequence[Lane], sizes: Iterable[tuple[int, int]]) -> Told:
        """Take it from all lanes, and from pairs of an id and a number of ranks."""
        owners: dict[int, frozenset[int]] = {}
        for lane in lanes:
            for comm in np.unique(lane.comm).tolist():
                owners[comm] = owners.get(comm, frozenset()) | {lane.owner}
        return cls(owners, dict(sizes))

    def doubted(self, matched: Matched) -> Matched:
        """Return a sequence, doubted if its communicator has other members, too."""
        kernel, here = matched.lanes[0].kernel, {lane.owner for lane in matched.lanes}
        if operation_of(kernel) == SEND_RECV:  # of two at a time
            return matched
        pairs = zip(matched.lanes, matched.rows, strict=True)
        ids = [np.unique(lane.comm[rows]).tolist() for lane, rows in pairs if lane.comm.size]
        comms = {comm for some in ids for comm in some}
        least_n = max([members_n(kernel), *(self.sizes.get(comm, 0) for comm in comms)])
        has_more = len(here) < least_n or any(self.owners[comm] - here for comm in comms)
        return replace(matched, is_doubted=matched.is_doubted or has_more)
