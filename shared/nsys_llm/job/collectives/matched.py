"""All ranks' communication kernels matched, on one clock; what the tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.lanes import LaneRows, RankLanes
from nsys_llm.job.collectives.alignment import STEADY_CLOCK_NS, WALL_CLOCK_NS, Executions
from nsys_llm.job.collectives.clocks import ClockFit, fit_clocks, residual_ns
from nsys_llm.job.collectives.cohesion import is_one_communicator
from nsys_llm.job.collectives.confidence import (
    LOW_CONFIDENCE,
    Party,
    Told,
    is_cut,
    met_confidence,
    shared_with_outsiders,
)
from nsys_llm.job.collectives.matching import Lane, Matched
from nsys_llm.job.collectives.p2p_matching import match_communication
from nsys_llm.job.collectives.p2p_streams import programs
from nsys_llm.job.collectives.waits import Waits, collective_waits
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import operation_of
from nsys_llm.trace.identity import Rank, RankKey, clock_offsets, one_clock
from nsys_llm.view.text import runs

#: Where a rank's clock comes from, for ranks that no collective links with others.
_OFF: Final = "off"
_UNKNOWN: Final = "none"
_STEADY: Final = "systemClockNs"
#: Operations that some members may leave before others.
_ROOTED: Final = ("broadcast", "reduce", "send_recv", "other")


@dataclass(frozen=True)
class Device:
    """One device of one rank, in the order of ranks: what takes part in collectives.

    Attributes:
        clock: Position of its report's clock.
    """

    rank: Rank
    device_id: int
    clock: int
    lanes: tuple[LaneRows, ...]


@dataclass(frozen=True)
class Sequenced:
    """One sequence of matched collectives, its times on the clock of the root report.

    Attributes:
        matched: The lanes; their owners are positions in `MatchedCollectives.devices`.
        start_ns: For each lane, shape (collectives,).
        residual_ns: By how much the ends disagree between reports; 0 within one report.
        ahead_ns: For each lane, its report's own clock minus the root's; shape (collectives,).
        left_out_ns: For each lane, time in them before the captures of all ranks had begun, when
            it could be the profiler's start that a rank waited for: `start_ns` is after it.
        is_sure: Whether these ranks, and no others, certainly had them together.
    """

    matched: Matched
    start_ns: tuple[IntArray, ...]
    end_ns: tuple[IntArray, ...]
    residual_ns: int
    ahead_ns: tuple[IntArray, ...]
    left_out_ns: tuple[int, ...] = ()
    is_sure: bool = False

    @property
    def kernel(self) -> str:
        """What all of them run."""
        return self.matched.lanes[0].kernel

    @property
    def operation(self) -> str:
        """The operation of that kernel."""
        return operation_of(self.kernel)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Devices that take part, by position."""
        return tuple(lane.owner for lane in self.matched.lanes)

    @cached_property
    def waits(self) -> Waits:
        """Waiting and transfer of each collective."""
        return collective_waits(self.start_ns, self.end_ns)

    @property
    def confidence(self) -> str:
        """How sure it is that these ranks had these collectives together: high, medium or low."""
        word = met_confidence(len(self), int(self.waits.met.sum()))
        return word if self.is_sure else LOW_CONFIDENCE

    @property
    def by_length(self) -> bool:
        """Whether lengths tell more of who came when than clocks do: how they drift is no matter.

        All leave at almost the same time, unless one is the root; so who was in there for longer
        came sooner by as much.
        """
        clocks = {lane.clock for lane in self.matched.lanes}
        return len(clocks) > 1 and self.operation not in _ROOTED

    def own_end_ns(self, place: int) -> IntArray:
        """Return when a member left each, its report's clock."""
        return self.end_ns[place] + self.ahead_ns[place]

    @cached_property
    def shortest_ns(self) -> IntArray:
        """For how long the last one to come was in each; shape (collectives,)."""
        lengths = [end - start for start, end in zip(self.start_ns, self.end_ns, strict=True)]
        return np.asarray(np.min(lengths, axis=0))

    def __len__(self) -> int:
        return self.start_ns[0].size


@dataclass(frozen=True)
class MatchedCollectives:
    """Everything that the tables are made of.

    Attributes:
        sequences: In the order of kernel and first device.
        clocks: How each clock was fitted; reports of one session share one.
        sources: For each clock, what its offset rests on.
        shift_ns: For each clock, itself minus the root's, in the middle of its collectives.
        coarse_ns: For each clock, how much later its capture began than the first one.
        recorded_ns: For each clock, when its first record is, on the root's clock.
        is_aligned: Whether instants of all clocks can be compared. Where neither collectives nor
            the steady clock of one host tie them, they are as far apart as the wall clocks of
            machines: up to 0.4 ms where NTP or PTP holds them.
    """

    devices: tuple[Device, ...]
    sequences: tuple[Sequenced, ...]
    clocks: tuple[ClockFit, ...]
    sources: tuple[str, ...]
    shift_ns: tuple[int, ...]
    coarse_ns: tuple[int, ...]
    clock_of: Mapping[str, int]
    recorded_ns: Mapping[int, int]
    is_aligned: bool

    @cached_property
    def owners(self) -> Mapping[tuple[RankKey, int], int]:
        """The position of each device, by rank and CUDA id."""
        return {(item.rank.key, item.device_id): at for at, item in enumerate(self.devices)}

    def common_ns(self, clock: int, at_ns: IntArray) -> IntArray:
        """Return instants of a clock on that which all have in common: the first one's."""
        rough_ns = at_ns + self.coarse_ns[clock]
        return rough_ns - self.clocks[clock].line.ahead_ns(rough_ns)


def match_collectives(
    lanes_of: RankLanes, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> MatchedCollectives:
    """Match the collectives of all ranks and align their clocks.

    Args:
        ranks: Those with GPU work, in order.
        options: disable_alignment takes all times as they are, as those of one clock.
    """
    aligned = not options["disable_alignment"]
    facts = {rank.key.path: rank.facts for rank in ranks if rank.facts is not None}
    known_ns, source = clock_offsets(facts) if aligned else ({}, None)
    clock_of = one_clock({rank.key.path: rank.facts for rank in ranks})
    coarse_ns = [0] * len(set(clock_of.values()))
    for path, clock in clock_of.items():
        coarse_ns[clock] = known_ns.get(path, 0)
    devices = _devices(lanes_of, ranks, clock_of)
    lanes = _lanes(devices, coarse_ns, aligned=aligned)
    trust_ns = STEADY_CLOCK_NS if source == _STEADY else WALL_CLOCK_NS
    kinds = programs([device.lanes for device in devices])
    told = Told.of(lanes, [pair for one in devices for lane in one.lanes for pair in lane.sizes])
    matched = [
        told.doubted(item) for item in match_communication(lanes, trust_ns, len(coarse_ns), kinds)
    ]
    fits = fit_clocks([item.meeting for item in matched], len(coarse_ns))
    # Common time = own time + coarse - fitted; shown times are those of the root's own clock.
    ahead_ns = [
        fits[clock].offset_ns - coarse_ns[clock] + coarse_ns[fits[clock].root]
        for clock in range(len(coarse_ns))
    ]
    recorded_ns = _recorded_ns(devices, fits, coarse_ns)
    shown = [_sequenced(sequence, fits, coarse_ns, recorded_ns) for sequence in matched]
    is_aligned = not aligned or source == _STEADY or len({fit.root for fit in fits}) < 2
    shown = _with_confidence(shown, lanes, fits, coarse_ns, is_aligned=is_aligned)
    sources = _sources(fits, source or _UNKNOWN if aligned else _OFF)
    return MatchedCollectives(
        devices=tuple(devices),
        sequences=tuple(shown),
        clocks=tuple(fits),
        sources=tuple(sources),
        shift_ns=tuple(ahead_ns),
        coarse_ns=tuple(coarse_ns),
        clock_of=clock_of,
        recorded_ns=recorded_ns,
        is_aligned=is_aligned,
    )


def _lanes(devices: Sequence[Device], coarse_ns: Sequence[int], *, aligned: bool) -> list[Lane]:
    """Return the lanes of all devices that have executions, on coarsely aligned clocks."""
    return [
        Lane(
            owner=place,
            clock=device.clock if aligned else 0,
            kernel=lane.kernel,
            stream=lane.stream_id,
            track=Executions.ordered(
                lane.start_ns + coarse_ns[device.clock], lane.end_ns + coarse_ns[device.clock]
            ),
            comm=lane.comm[np.lexsort((lane.start_ns, lane.end_ns))]
            if lane.comm.size
            else lane.comm,
        )
        for place, device in enumerate(devices)
        for lane in device.lanes
        if lane.start_ns.size
    ]


def meets_and_leaves(sequence: Sequenced, owner: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return when a device came, when all were there, and when it left, in its report's clock.

    Args:
        sequence: Matched collectives; what is not met tells nothing.
        owner: A member: its position in `MatchedCollectives.devices`.

    Returns:
        Shape (collectives,) each.
    """
    place = sequence.owners.index(owner)
    ahead_ns = sequence.ahead_ns[place]
    begin_ns, leave_ns = sequence.start_ns[place] + ahead_ns, sequence.end_ns[place] + ahead_ns
    if sequence.by_length:
        return begin_ns, np.maximum(leave_ns - sequence.shortest_ns, begin_ns), leave_ns
    return begin_ns, sequence.waits.last_start_ns + ahead_ns, leave_ns


def communicator(devices: Sequence[Device], owners: Sequence[int]) -> str:
    """Return what a communicator is called by its ranks: `0-7`, or `0/0, 0/1` with devices."""
    ranks = [devices[owner].rank.number for owner in owners]
    if len(set(ranks)) < len(ranks):
        return ", ".join(
            f"{devices[owner].rank.number}/{devices[owner].device_id}" for owner in owners
        )
    numbers = [-1 if number is None else number for number in ranks]
    return ", ".join(runs(numbers))


def _devices(
    lanes_of: RankLanes, ranks: Sequence[Rank], clock_of: Mapping[str, int]
) -> list[Device]:
    devices = []
    for rank in ranks:
        lanes = lanes_of.get(rank.key, ())
        for device_id in sorted({lane.device_id for lane in lanes}):
            device_lanes = tuple(lane for lane in lanes if lane.device_id == device_id)
            devices.append(Device(rank, device_id, clock_of[rank.key.path], device_lanes))
    return devices


def _sequenced(
    matched: Matched,
    fits: Sequence[ClockFit],
    coarse_ns: Sequence[int],
    recorded_ns: Mapping[int, int],
) -> Sequenced:
    starts, ends, aheads, left_out = [], [], [], []
    root = fits[matched.lanes[0].clock].root
    all_from_ns = max(
        (at_ns for clock, at_ns in recorded_ns.items() if fits[clock].root == root),
        default=NULL_INT,
    )
    for lane, rows in zip(matched.lanes, matched.rows, strict=True):
        fit, end_ns = fits[lane.clock], lane.track.end_ns[rows]
        # As of the end for the start too: a duration stays what its report has.
        back_ns = fit.line.ahead_ns(end_ns) + coarse_ns[fit.root]
        start_ns = lane.track.start_ns[rows] - back_ns
        starts.append(np.maximum(start_ns, np.minimum(end_ns - back_ns, all_from_ns)))
        left_out.append(int((starts[-1] - start_ns).sum()))
        ends.append(end_ns - back_ns)
        aheads.append(back_ns - coarse_ns[lane.clock])
    residual = (
        residual_ns(matched.meeting, [fit.line for fit in fits]) if matched.rows[0].size else 0
    )
    return Sequenced(matched, tuple(starts), tuple(ends), residual, tuple(aheads), tuple(left_out))


def _recorded_ns(
    devices: Sequence[Device], fits: Sequence[ClockFit], coarse_ns: Sequence[int]
) -> dict[int, int]:
    """Return when the first record of each clock is, on its root's; none where it is not known.

    Reports of one session share a clock: who comes late there is late, and not recorded late.
    """
    recorded: dict[int, int] = {}
    for device in devices:
        fit, first_ns = fits[device.clock], min(lane.recorded_ns for lane in device.lanes)
        if first_ns == NULL_INT:
            continue
        rough_ns = np.array([first_ns + coarse_ns[device.clock]], dtype=np.int64)
        at_ns = int((rough_ns - fit.line.ahead_ns(rough_ns))[0]) - coarse_ns[fit.root]
        recorded[device.clock] = min(at_ns, recorded.get(device.clock, at_ns))
    return recorded


def _with_confidence(
    shown: Sequence[Sequenced],
    lanes: Sequence[Lane],
    fits: Sequence[ClockFit],
    coarse_ns: Sequence[int],
    *,
    is_aligned: bool,
) -> list[Sequenced]:
    sure = [
        place for place, item in enumerate(shown) if is_one_communicator(item.start_ns, item.end_ns)
    ]
    parties: dict[str, list[Party]] = {}
    for item in (shown[place] for place in sure):
        root = fits[item.matched.lanes[0].clock].root
        # As the lanes of others: on one clock as far as the reports tell.
        times = ([at_ns + coarse_ns[root] for at_ns in of] for of in (item.start_ns, item.end_ns))
        party = Party.of(item.owners, root, *times)
        parties.setdefault(item.kernel, []).append(party)
    judged_n = {kernel: len(some) for kernel, some in parties.items()}
    for lane in _unmatched([shown[place] for place in sure], lanes):
        fit = fits[lane.clock]
        ahead_ns = fit.line.ahead_ns(lane.track.end_ns)
        start, end = lane.track.start_ns - ahead_ns, lane.track.end_ns - ahead_ns
        if lane.kernel in parties:
            parties[lane.kernel].append(Party.of((lane.owner,), fit.root, (start,), (end,)))
    shared = {}
    for kernel, some in parties.items():
        of_kernel = shared_with_outsiders(some, range(judged_n[kernel]))
        if not is_aligned:
            of_kernel = [
                is_one or is_cut(party, some)
                for is_one, party in zip(of_kernel, some, strict=False)
            ]
        shared[kernel] = iter(of_kernel)
    sequences = list(shown)
    for place in sure:
        is_shared = next(shared[shown[place].kernel]) or shown[place].matched.is_doubted
        sequences[place] = replace(shown[place], is_sure=not is_shared)
    return sequences


def _unmatched(shown: Sequence[Sequenced], lanes: Sequence[Lane]) -> list[Lane]:
    """Return the lanes that are in no sequence; one of all streams of a device is all of them."""
    every_n: dict[tuple[int, str], int] = {}
    for lane in lanes:
        key = lane.owner, lane.kernel
        every_n[key] = every_n.get(key, 0) + len(lane.track)
    held: dict[tuple[int, str], dict[int, int]] = {}
    for lane in (lane for item in shown for lane in item.matched.lanes):
        held.setdefault((lane.owner, lane.kernel), {})[lane.stream] = len(lane.track)
    streams = {
        (*key, stream)
        for key, sizes in held.items()
        for stream in (None if sum(sizes.values()) >= every_n[key] else stream for stream in sizes)
    }
    return [
        lane
        for lane in lanes
        if not {(lane.owner, lane.kernel, stream) for stream in (None, lane.stream)} & streams
    ]


def _sources(fits: Sequence[ClockFit], otherwise: str) -> list[str]:
    linked = {fit.root for clock, fit in enumerate(fits) if fit.root != clock or len(fits) == 1}
    return [
        "collectives" if fit.root != clock else "reference" if clock in linked else otherwise
        for clock, fit in enumerate(fits)
    ]
