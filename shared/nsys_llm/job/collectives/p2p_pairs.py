"""Which two ranks end point-to-point kernels together, and how exactly. Pure numpy.

A send and its receive end on both ranks at almost the same time, whenever each of them started. So
of all differences between the ends of two ranks that exchange data, many are alike: they form a
peak, whose place is the offset between the clocks and whose width says how closely they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.job.collectives.alignment import Executions
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.intervals import IntArray

#: How far apart two ranks on one clock end one transfer, at most: the median of two H100 is up to
#: 22 us, and this is twice that.
END_SKEW_NS: Final = 50_000
#: Half the widths in which a peak is searched; the ends of one transfer scatter by a few us.
_PEAK_NS: Final = (3_000, 10_000)
#: Fewer transfers than these form a peak by chance.
_LEAST: Final = 8
#: A peak holds more than chance puts there, by so many standard deviations of that.
_SIGMAS: Final = 6
#: Transfers of a rank that a peak is searched with.
_SAMPLE: Final = 512
#: Ends of a pair lie within so many median distances of their offset, and never closer than 1 us.
_TOLERANCE: Final = 6
_CLOSEST_NS: Final = 1_000
#: Up to so many ranks, each is compared with each; beyond, those that lie apart as stages do.
_ALL_PAIRS: Final = 64


@dataclass(frozen=True)
class PeerFit:
    """Two ranks that end transfers together.

    Attributes:
        offset_ns: The right one's ends minus the left one's, median.
        spread_ns: Median distance from that.
        pairs_n: Transfers of the left one that it was found with.
        share: Those as a part of all that were tried.
    """

    left: int
    right: int
    offset_ns: int
    spread_ns: int
    pairs_n: int
    share: float

    @property
    def tolerance_ns(self) -> int:
        """How far from the offset two ends of one transfer may lie."""
        return min(max(_TOLERANCE * self.spread_ns, _CLOSEST_NS), 2 * _PEAK_NS[-1])


def strides(ranks_n: int) -> Iterable[int]:
    """Return how far apart ranks may lie that exchange data, by position.

    Launchers number stages by a stride that divides the ranks; the last stage of an interleaved
    schedule sends to the first. Trying each rank with each takes too long with a thousand.
    """
    if ranks_n <= _ALL_PAIRS:
        return range(1, ranks_n)
    divisors = [index for index in range(1, ranks_n) if ranks_n % index == 0]
    return sorted({*divisors, *(ranks_n - divisor for divisor in divisors)})


def fit_peers(
    left: int, right: int, tracks: Sequence[Executions], center_ns: int, reach_ns: int
) -> PeerFit | None:
    """Return how two ranks end together; None where they do not.

    Args:
        center_ns: What the right one's ends minus the left one's are expected to be.
        reach_ns: By how much that may be wrong.
    """
    ends, theirs = tracks[left].end_ns, tracks[right].end_ns
    tried = ends[:: -(-ends.size // _SAMPLE)]
    row, other = _within(tried + center_ns, theirs, reach_ns)
    if row.size < _LEAST:
        return None
    apart = theirs[other] - tried[row]
    for half_ns in _PEAK_NS:
        center_ns = _densest(np.sort(apart), 2 * half_ns)
        inside = np.abs(apart - center_ns) <= half_ns
        offsets = apart[inside]
        chance_n = (apart.size - offsets.size) * half_ns / max(reach_ns - half_ns, 1)
        if offsets.size < max(_LEAST, chance_n + _SIGMAS * np.sqrt(chance_n)):
            continue
        offset_ns = lower_median(offsets)
        spread_ns = lower_median(np.abs(offsets - offset_ns))
        paired_n = np.unique(row[inside]).size
        return PeerFit(left, right, offset_ns, spread_ns, paired_n, paired_n / tried.size)
    return None


def _densest(ordered: IntArray, width_ns: int) -> int:
    """Return the middle of the interval of that width that holds most values."""
    inside_n = np.searchsorted(ordered, ordered + width_ns, side="right")
    inside_n -= np.arange(ordered.size)
    first = int(inside_n.argmax())
    return int(ordered[first] + ordered[first + int(inside_n[first]) - 1]) // 2


def coinciding(fit: PeerFit, tracks: Sequence[Executions]) -> tuple[IntArray, IntArray]:
    """Return the transfers of both ranks that end together and overlap, each with each."""
    left, right = tracks[fit.left], tracks[fit.right]
    row, other = _within(left.end_ns + fit.offset_ns, right.end_ns, fit.tolerance_ns)
    last_start = np.maximum(left.start_ns[row] + fit.offset_ns, right.start_ns[other])
    first_end = np.minimum(left.end_ns[row] + fit.offset_ns, right.end_ns[other])
    met = last_start <= first_end
    return row[met], other[met]


def _within(wanted: IntArray, ordered: IntArray, reach_ns: int) -> tuple[IntArray, IntArray]:
    """Return all (row of wanted, row of ordered) that lie no farther apart than that."""
    low = np.searchsorted(ordered, wanted - reach_ns, side="left")
    count = np.searchsorted(ordered, wanted + reach_ns, side="right") - low
    row = np.repeat(np.arange(wanted.size), count)
    before = np.cumsum(count) - count
    return row, np.arange(row.size) - np.repeat(before - low, count)


def linked_groups(fits: Sequence[PeerFit], ranks_n: int) -> list[set[int]]:
    """Return sets of ranks that exchange data with each other, directly or through others."""
    group = list(range(ranks_n))
    for fit in fits:
        low, high = sorted((group[fit.left], group[fit.right]))
        if low != high:
            group = [low if item == high else item for item in group]
    sets = [{at for at, label in enumerate(group) if label == root} for root in sorted(set(group))]
    return [item for item in sets if len(item) > 1]
