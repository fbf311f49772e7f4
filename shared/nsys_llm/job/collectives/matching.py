"""Which ranks meet in which collectives: communicators, detected from who leaves together. Pure.

A plain trace names the kernel of a collective and nothing else. Executions of one kernel on one
rank and stream are a lane. Lanes of several ranks that line up (see `alignment`) are
one sequence of collectives; the ranks that have it are its communicator. Where a tensor-parallel
and a data-parallel group use the same kernel, their lanes do not line up, and stay apart.

Limits. Groups in lockstep whose ranks never hold each other up cannot be told apart, and count as
one (see `cohesion`). Ranks that receive what others sent long before do not overlap with
them, and stay unmatched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.alignment import SAME_CLOCK_NS, Alignment, Executions, align
from nsys_llm.job.collectives.clocks import Meeting
from nsys_llm.job.collectives.cohesion import MISSING, members, places
from nsys_llm.numeric.intervals import IntArray

#: Streams count as one only if that pairs so much more, in percent.
_FAR_MORE_PCT: Final = 110
#: Streams of a device with one kernel; of more no communicator has its own, and each would be
#: compared with each.
_MOST_STREAMS: Final = 128
#: A cut rank ends with its kernels; what others have beyond takes at least so many times longer.
_CUT: Final = 2
#: Pairs below which a small distance may be chance, as `align` weighs it.
_CHANCE: Final = 64
#: Pairs that always lie close.
_FEW: Final = 8
#: A lane of another stream number has to leave so many times more closely to be preferred.
_OTHER_STREAM: Final = 2

#: Sorts fits: whether they are more than a few pairs, then how well they fit.
_Closeness = tuple[int, float, int]


@dataclass(frozen=True, eq=False)
class Lane:
    """Executions of one communication kernel on one stream of one device.

    Attributes:
        owner: The device that runs them, in the order of ranks.
        clock: The report whose clock they are in, by position.
        stream: CUDA stream; of several, the first.
        track: When, brought to one clock as far as the reports tell.
        comm: Ids of communicators, in the order of the track; empty where not all are known.
    """

    owner: int
    clock: int
    kernel: str
    stream: int
    track: Executions
    comm: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def only(self, kept: npt.NDArray[np.bool_]) -> Lane:
        """Return it with some of its executions."""
        track = Executions(self.track.start_ns[kept], self.track.end_ns[kept])
        return replace(self, track=track, comm=self.comm[kept[: self.comm.size]])


@dataclass(frozen=True)
class Matched:
    """One sequence of collectives and the lanes that take part in it.

    Attributes:
        lanes: At least two, in the order of owners.
        rows: For each lane, its execution in each collective that all lanes have; shape
            (collectives,) each, ascending.
        cut_n: For each lane, executions before the first or after the last of those that another
            lane lacks: a window or the capture cut it off there.
        is_doubted: Whether some of them may be another sequence's.
    """

    lanes: tuple[Lane, ...]
    rows: tuple[IntArray, ...]
    cut_n: tuple[int, ...]
    is_doubted: bool = False

    @property
    def meeting(self) -> Meeting:
        """When its ranks left them."""
        ends = [lane.track.end_ns[row] for lane, row in zip(self.lanes, self.rows, strict=True)]
        return Meeting(tuple(lane.clock for lane in self.lanes), tuple(ends))


def match_lanes(lanes: Sequence[Lane], trust_ns: int) -> list[Matched]:
    """Find the sequences of collectives that lanes of different devices have in common.

    Args:
        lanes: Of all devices, none empty.
        trust_ns: How far apart the clocks of two reports may be; see `align`.

    Returns:
        In the order of kernel and first owner. A lane is in one of them or in none.
    """
    by_kernel: dict[str, list[Lane]] = {
        kernel: [] for kernel in sorted({lane.kernel for lane in lanes})
    }
    for lane in lanes:
        by_kernel[lane.kernel].append(lane)
    return [
        item
        for kernel_lanes in by_kernel.values()
        for item in _of_one_kernel(kernel_lanes, trust_ns)
    ]


def _of_one_kernel(lanes: Sequence[Lane], trust_ns: int) -> list[Matched]:
    """Take each stream for itself, or all streams of a device together if that pairs far more.

    A communicator usually has its own stream, but one may also change streams, as when a graph
    that was captured on another stream is replayed.
    """
    streams_n = Counter(lane.owner for lane in lanes)
    if max(streams_n.values()) > _MOST_STREAMS:
        return _grouped(_joined(lanes), trust_ns)
    apart = _grouped(lanes, trust_ns)
    if len(streams_n) == len(lanes):
        return apart
    together = _grouped(_joined(lanes), trust_ns)
    spans = _spans(lanes)
    far_more = 100 * _told_n(together, spans) > _FAR_MORE_PCT * _told_n(apart, spans)
    return together if far_more else apart


def _spans(lanes: Iterable[Lane]) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    for lane in lanes:
        first, last = int(lane.track.end_ns[0]), int(lane.track.end_ns[-1])
        low, high = spans.get(lane.owner, (first, last))
        spans[lane.owner] = min(low, first), max(high, last)
    return spans


def _told_n(matched: Iterable[Matched], spans: Mapping[int, tuple[int, int]]) -> int:
    """Return the executions that have their collective, or lack it as another's capture is cut."""
    return sum(
        len(item.lanes) * item.rows[0].size + _lost_n(item, spans, 0) + _lost_n(item, spans, -1)
        for item in matched
        if item.rows[0].size
    )


def _lost_n(sequence: Matched, spans: Mapping[int, tuple[int, int]], side: int) -> int:
    """Return the executions at the begin (0) or the end (-1) that a cut on another rank lost.

    Where the other rank goes on with the kernel on another stream, nothing was cut.
    """
    extra_n, extra_ns, beyond_ns = [], [], []
    for lane, rows in zip(sequence.lanes, sequence.rows, strict=True):
        ends, row = lane.track.end_ns, int(rows[side])
        extra_n.append(row if side == 0 else len(lane.track) - 1 - row)
        extra_ns.append(abs(int(ends[side]) - int(ends[row])))
        beyond_ns.append(abs(spans[lane.owner][side] - int(ends[row])))
    least_n = min(extra_n)
    goes_on_ns = min(ns for n, ns in zip(extra_n, beyond_ns, strict=True) if n == least_n)
    return sum(
        n - least_n for n, ns in zip(extra_n, extra_ns, strict=True) if ns > _CUT * goes_on_ns
    )


def _joined(lanes: Sequence[Lane]) -> list[Lane]:
    by_owner: dict[int, list[Lane]] = {}
    for lane in sorted(lanes, key=lambda lane: (lane.owner, lane.stream)):
        by_owner.setdefault(lane.owner, []).append(lane)
    return [joined_lane(owner_lanes) for owner_lanes in by_owner.values()]


def joined_lane(lanes: Sequence[Lane]) -> Lane:
    """Return all executions of some lanes of a device as those of the first one."""
    starts = np.concatenate([lane.track.start_ns for lane in lanes])
    ends = np.concatenate([lane.track.end_ns for lane in lanes])
    comm = np.concatenate([lane.comm for lane in lanes])
    is_known = comm.size == ends.size
    return replace(
        lanes[0],
        track=Executions.ordered(starts, ends),
        comm=comm[np.lexsort((starts, ends))] if is_known else comm[:0],
    )


def _grouped(lanes: Sequence[Lane], trust_ns: int) -> list[Matched]:
    """Group lanes around the longest one that is left, again and again."""
    waiting = dict(
        enumerate(sorted(lanes, key=lambda lane: (-len(lane.track), lane.owner, lane.stream)))
    )
    groups: list[Matched] = []
    # The group found last on each stream: groups of one kind have one stream.
    shapes: dict[int, tuple[int, ...]] = {}
    placed: dict[int, set[int]] = {}
    while waiting:
        reference = waiting.pop(next(iter(waiting)))
        stream = reference.stream
        if reference.owner in placed.setdefault(stream, set()):
            # Another lane of a rank that has its group: from here on, groups of another kind.
            shapes[stream], placed[stream] = (), set()
        fits = _like_before(reference, waiting, shapes.get(stream, ()), trust_ns)
        fits = fits or _belonging(reference, waiting, trust_ns)
        if not fits:
            continue
        fitted = {waiting.pop(place): fit for place, fit in fits.items()}
        groups.append(_complete(reference, fitted))
        shapes[stream] = tuple(lane.owner for lane in groups[-1].lanes)
        placed[stream] |= set(shapes[stream])
    return sorted(groups, key=lambda group: (group.lanes[0].owner, group.lanes[0].stream))


def _like_before(
    reference: Lane, waiting: Mapping[int, Lane], shape: Sequence[int], trust_ns: int
) -> dict[int, Alignment]:
    """Try the owners that lie to the reference as those of the group before lay to each other.

    Groups of one kind are alike (ranks 0-7, 8-15, ...), and trying every lane against every group
    takes too long with a thousand ranks.
    """
    by_owner: dict[int, list[int]] = {}
    for place, lane in waiting.items():
        by_owner.setdefault(lane.owner, []).append(place)
    tried: dict[int, dict[int, Alignment]] = {}
    best: dict[int, Alignment] = {}
    for base in shape:
        owners = {owner - base + reference.owner for owner in shape} - {reference.owner}
        if not owners <= by_owner.keys():
            continue
        for owner in owners - tried.keys():
            tried[owner] = _fitting(reference, waiting, by_owner[owner], trust_ns)
        fits = {place: fit for owner in owners for place, fit in tried[owner].items()}
        if len(fits) == len(owners) and (not best or _worst_ns(fits) < _worst_ns(best)):
            best = fits
    return best


def _belonging(reference: Lane, waiting: Mapping[int, Lane], trust_ns: int) -> dict[int, Alignment]:
    aligned = list(_fitting(reference, waiting, waiting, trust_ns).items())
    chosen = members(reference.track, [(waiting[place].track, fit) for place, fit in aligned])
    return dict(aligned[item] for item in chosen)


def _fitting(
    reference: Lane, waiting: Mapping[int, Lane], places: Iterable[int], trust_ns: int
) -> dict[int, Alignment]:
    """Return the lanes that line up with the reference, the best one of each other owner.

    A lane that lines up better with another lane of the reference's owner belongs to that.
    """
    rivals = [
        lane
        for lane in waiting.values()
        if lane.owner == reference.owner and lane.stream != reference.stream
    ]
    best: dict[int, tuple[_Closeness, int, Alignment]] = {}
    for place in places:
        lane = waiting[place]
        if lane.owner == reference.owner:
            continue
        fit = _aligned(reference, lane, trust_ns)
        if fit is None:
            continue
        closeness = _closeness(reference, lane, fit)
        before = best.get(lane.owner)
        if before is None or closeness > before[0]:
            best[lane.owner] = closeness, place, fit
    return {
        place: fit
        for closeness, place, fit in best.values()
        if not any(_closer(rival, waiting[place], trust_ns, closeness) for rival in rivals)
    }


def _aligned(reference: Lane, lane: Lane, trust_ns: int) -> Alignment | None:
    trust = SAME_CLOCK_NS if lane.clock == reference.clock else trust_ns
    return align(reference.track, lane.track, trust)


def _closer(rival: Lane, lane: Lane, trust_ns: int, closeness: _Closeness) -> bool:
    fit = _aligned(rival, lane, trust_ns)
    return fit is not None and _closeness(rival, lane, fit) > closeness


def _worst_ns(fits: Mapping[int, Alignment]) -> int:
    return max(fit.spread_ns for fit in fits.values())


def _closeness(reference: Lane, lane: Lane, fit: Alignment) -> _Closeness:
    """Return how closely two lanes leave together, less where they are few pairs or other streams.

    How many pairs they have says little: a capture that was cut has fewer of its own, and may meet
    as many of another communicator's. Only very few always lie close, after some shift of clocks.
    """
    if fit.met_n < _FEW:
        return 0, fit.met_n, -fit.spread_ns
    chance = 1 + (_CHANCE / fit.met_n) ** 2
    other = 1 if lane.stream == reference.stream else _OTHER_STREAM
    return 1, -(fit.spread_ns + 1) * chance * other, fit.met_n


def _complete(reference: Lane, fits: Mapping[Lane, Alignment]) -> Matched:
    """Keep the collectives that all lanes have, and count what is cut off before and after."""
    lanes = sorted([reference, *fits], key=lambda lane: (lane.owner, lane.stream))
    place_of = {lane: places(fit, len(reference.track)) for lane, fit in fits.items()}
    place_of[reference] = np.arange(len(reference.track))
    everywhere = np.ones(len(reference.track), dtype=bool)
    for row in place_of.values():
        everywhere &= row != MISSING
    rows = [place_of[lane][everywhere] for lane in lanes]
    return Matched(tuple(lanes), tuple(rows), _cut(lanes, rows))


def _cut(lanes: Sequence[Lane], rows: Sequence[IntArray]) -> tuple[int, ...]:
    if rows[0].size == 0:
        return tuple(len(lane.track) for lane in lanes)
    before = [int(row[0]) for row in rows]
    after = [len(lane.track) - 1 - int(row[-1]) for lane, row in zip(lanes, rows, strict=True)]
    # What every lane has there was not cut off; it could not be paired.
    return tuple(
        before_n - min(before) + after_n - min(after)
        for before_n, after_n in zip(before, after, strict=True)
    )
