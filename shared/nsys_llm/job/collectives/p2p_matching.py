"""Point-to-point transfers: which send belongs to which receive, when neither names its peer.

A plain trace has one kernel for all sends and receives, and no peer. A member of a collective meets
all others each time; a stage of a pipeline meets one neighbor at a time, so its transfers are no
sequence that another rank has as a whole. They are matched one by one: two ranks end a transfer
together, within what the clocks and the pair's own scatter allow, and neither ends another one with
somebody else then. What may belong to two peers stays unmatched. A pair of which more than a few
transfers do is undecided as a whole, so that no sum is made of a part of it.

Not handled: kernels that exchange data with two peers at once (a group of sends and receives of
both neighbors) end with neither alone, and stay unmatched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from nsys_llm.job.collectives.alignment import SAME_CLOCK_NS, Executions
from nsys_llm.job.collectives.clocks import ClockFit, fit_clocks
from nsys_llm.job.collectives.matching import Lane, Matched, joined_lane, match_lanes
from nsys_llm.job.collectives.p2p_edges import TransferEdges
from nsys_llm.job.collectives.p2p_pairs import (
    END_SKEW_NS,
    PeerFit,
    fit_peers,
    linked_groups,
    strides,
)
from nsys_llm.job.collectives.p2p_streams import (
    WHOLE_PCT,
    by_communicator,
    common_streams,
    doubted,
    is_all_of,
    without,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV, operation_of

#: Two ranks have but one peer each: what they exchange is a sequence, matched as one.
_LEAST_OWNERS: Final = 3
#: Ranks that meet so many others at the same instants, on average, meet as a collective.
_COLLECTIVE_PEERS: Final = 1.5
#: From so many on, that is beyond doubt before any transfer is looked at.
_CROWD: Final = 3.0
#: Fewer transfers, or a smaller part of those of both ranks in percent, are no pair; ours. A stage
#: has two neighbors at most, and one of its replicas in lockstep coincides with it now and then.
_LEAST_OF_A_PAIR: Final = 8
_LEAST_PART_PCT: Final = 20
#: Two stages that end a transfer together now and then do so less often than this part of what
#: peers do. Equal ones in lockstep do so more often: who has fewer than this chooses last; ours.
_FAR_FEWER: Final = 1 / 3
_FEWER: Final = 2 / 3
#: Ends lie within so many median distances of what few collectives say about two clocks.
_DOUBT: Final = 3
#: Share of a pair's time in transfers that may be another one's, from which nothing is said of it.
_UNDECIDED_PCT: Final = 1.0


def match_communication(
    lanes: Sequence[Lane], trust_ns: int, clocks_n: int, programs: Mapping[int, int] | None = None
) -> list[Matched]:
    """Match collectives as sequences, and point-to-point transfers pair by pair.

    Args:
        lanes: Of all devices, none empty.
        programs: Of owners, which of them launch the same between two transfers; None: none.

    Returns:
        Collectives first. A set of ranks whose transfers cannot be told apart is there without
        any of them.
    """
    transfers = [lane for lane in lanes if operation_of(lane.kernel) == SEND_RECV]
    owners = {lane.owner for lane in transfers}
    if len(owners) < _LEAST_OWNERS:
        return match_lanes(lanes, trust_ns)
    rest = match_lanes([lane for lane in lanes if lane not in set(transfers)], trust_ns)
    known = fit_clocks([item.meeting for item in rest], clocks_n)
    if named := by_communicator(transfers):
        parts = [
            match_lanes(some, trust_ns)
            if len({lane.owner for lane in some}) < _LEAST_OWNERS
            else _matched_transfers(some, known, trust_ns)
            for some in named
        ]
        return [*rest, *(item for some in parts for item in some)]
    kinds = {owner: (programs or {}).get(owner, -1 - owner) for owner in owners}
    if not 1 < len(set(kinds.values())) < len(owners):
        return [*rest, *_matched_transfers(transfers, known, trust_ns)]
    alike, unlike = (_Apart(kinds, same=same) for same in (True, False))
    done, every = list[Matched](), transfers
    streams, have_others = common_streams(transfers)
    # Where both kinds of peers have streams of their own, those of stages come first: by time alone
    # ranks of one stage meet in all they do.
    for apart in (alike,) if have_others else (unlike, alike):
        for some in streams:
            if some[0] not in transfers or (apart is alike and not have_others and not done):
                continue
            matched = _matched_transfers(some, known, trust_ns, apart)
            if is_all_of(some, matched):
                done += matched
                transfers = [lane for lane in transfers if lane not in some]
    if transfers:
        # Ranks of one stage send at the same time. So who runs another program is the peer, and
        # only what is left is exchanged within a stage.
        matched = _matched_transfers(transfers, known, trust_ns, unlike)
        left = without(transfers, matched)
        within = _matched_transfers(left, known, trust_ns, alike) if left else []
        done += [*(item for item in matched if item.rows[0].size), *within]
    return [*rest, *doubted(done, kinds, every)]


@dataclass(frozen=True)
class _Apart:
    """Which pairs of devices may be peers: those of one program, or of different ones."""

    kinds: Mapping[int, int]
    same: bool

    def chosen(self, fits: Sequence[PeerFit], members: _Members) -> list[PeerFit]:
        """Return the fits that may be; of several devices that run one program, one in turn."""
        kind = [self.kinds[lane.owner] for lane in members.lanes]
        if self.same:
            return [fit for fit in fits if kind[fit.left] == kind[fit.right]]
        fits = [fit for fit in fits if kind[fit.left] != kind[fit.right]]
        together_n = [fit.share * len(members.tracks[fit.left]) for fit in fits]
        most_n: dict[int, float] = {}
        for fit, n in zip(fits, together_n, strict=True):
            for place in (fit.left, fit.right):
                most_n[place] = max(most_n.get(place, 0.0), n)
        taken: set[tuple[int, int]] = set()
        chosen = []
        shares = [
            n / max(most_n[fit.left], most_n[fit.right])
            for fit, n in zip(fits, together_n, strict=True)
        ]
        for fit, share in sorted(
            zip(fits, shares, strict=True),
            key=lambda pair: (pair[1] < _FEWER, pair[0].left, pair[0].right),
        ):
            ends = {(fit.left, kind[fit.right]), (fit.right, kind[fit.left])}
            if share >= _FAR_FEWER and not ends & taken:
                taken |= ends
                chosen.append(fit)
        return chosen


@dataclass(frozen=True)
class _Members:
    """Devices that send and receive, each with all its transfers in one track.

    Attributes:
        lanes: One a device, in the order of owners; positions below are places in it.
        sources: For each, the lanes it was made of.
        trust_ns: How far apart clocks may be that no collective links.
        tracks: For each, its transfers on the clock of the root, as far as that is known.
    """

    lanes: tuple[Lane, ...]
    sources: tuple[tuple[Lane, ...], ...]
    known: Sequence[ClockFit]
    trust_ns: int
    tracks: tuple[Executions, ...]

    @property
    def streams(self) -> list[IntArray]:
        """For each device, which of its lanes each transfer is from."""
        by_device = []
        for lanes in self.sources:
            ends = np.concatenate([lane.track.end_ns for lane in lanes])
            starts = np.concatenate([lane.track.start_ns for lane in lanes])
            number = np.repeat(np.arange(len(lanes)), [len(item.track) for item in lanes])
            by_device.append(number[np.lexsort((starts, ends))])
        return by_device

    def expected(self, left: int, right: int) -> tuple[int, int]:
        """Return by how much the right one's ends should come later, and how wrong that may be."""
        left_clock, right_clock = (self.lanes[place].clock for place in (left, right))
        if left_clock == right_clock:
            return 0, END_SKEW_NS + SAME_CLOCK_NS
        first, second = self.known[left_clock], self.known[right_clock]
        if first.root != second.root:
            return 0, END_SKEW_NS + self.trust_ns
        return 0, END_SKEW_NS + _DOUBT * (first.residual_ns + second.residual_ns)


def _matched_transfers(
    lanes: Sequence[Lane], known: Sequence[ClockFit], trust_ns: int, apart: _Apart | None = None
) -> list[Matched]:
    members = _members(lanes, known, trust_ns)
    fits = _fits(members, members.expected)
    fits = _fits(members, _linked(members, fits))
    fits = fits if apart is None else apart.chosen(fits, members)
    matched: list[Matched] = []
    for group in linked_groups(fits, len(members.lanes)):
        group_fits = [fit for fit in fits if fit.left in group]
        crowded = 2 * sum(fit.share for fit in group_fits) >= _CROWD * len(group)
        edges = None if crowded else _edges(group_fits, members)
        if (
            edges is None
            or edges.rows_n
            >= _COLLECTIVE_PEERS * sum(len(members.lanes[place].track) for place in group) / 2
        ):
            matched += _as_collective(group, members, trust_ns)
        else:
            matched += _as_pairs(group, group_fits, edges, members)
    return sorted(matched, key=lambda sequence: [lane.owner for lane in sequence.lanes])


def _members(lanes: Sequence[Lane], known: Sequence[ClockFit], trust_ns: int) -> _Members:
    ordered = sorted(lanes, key=lambda lane: (lane.owner, lane.kernel, lane.stream))
    sources = [
        tuple(owner_lanes) for _, owner_lanes in groupby(ordered, key=lambda lane: lane.owner)
    ]
    joined = [joined_lane(owner_lanes) for owner_lanes in sources]
    tracks = []
    for lane in joined:
        ahead_ns = known[lane.clock].line.ahead_ns(lane.track.end_ns)
        tracks.append(Executions(lane.track.start_ns - ahead_ns, lane.track.end_ns - ahead_ns))
    return _Members(tuple(joined), tuple(sources), known, trust_ns, tuple(tracks))


def _edges(fits: Sequence[PeerFit], members: _Members) -> TransferEdges:
    clocks = [lane.clock for lane in members.lanes]
    return TransferEdges.of(fits, members.tracks, members.streams, clocks)


def _fits(members: _Members, expected: Callable[[int, int], tuple[int, int]]) -> list[PeerFit]:
    ranks_n, tracks = len(members.lanes), members.tracks
    return [
        fit
        for stride in strides(ranks_n)
        for left in range(ranks_n - stride)
        if (fit := fit_peers(left, left + stride, tracks, *expected(left, left + stride)))
    ]


def _linked(members: _Members, fits: Sequence[PeerFit]) -> Callable[[int, int], tuple[int, int]]:
    """Return what is expected of a pair once those that meet most have linked the clocks."""
    clock = [lane.clock for lane in members.lanes]
    group, ahead_ns = np.arange(len(members.known)), np.zeros(len(members.known), dtype=np.int64)
    for fit in sorted(fits, key=lambda fit: (-fit.pairs_n, fit.spread_ns, fit.left, fit.right)):
        left, right = clock[fit.left], clock[fit.right]
        if group[left] != group[right]:
            moved = group == group[right]
            ahead_ns[moved] += ahead_ns[left] + fit.offset_ns - ahead_ns[right]
            group[moved] = group[left]

    def expected(left: int, right: int) -> tuple[int, int]:
        before, reach_ns = members.expected(left, right)
        left_clock, right_clock = clock[left], clock[right]
        if group[left_clock] != group[right_clock] or reach_ns <= END_SKEW_NS:
            return before, reach_ns
        return int(ahead_ns[right_clock] - ahead_ns[left_clock]), END_SKEW_NS

    return expected


def _as_collective(group: set[int], members: _Members, trust_ns: int) -> list[Matched]:
    """Match ranks that meet all together, as an all-to-all of sends and receives does."""
    lanes = [lane for place in sorted(group) for lane in members.sources[place]]
    matched = match_lanes(lanes, trust_ns)
    whole = [item for item in matched if _is_whole(item)]
    if len(whole) == len(matched) and matched:
        return matched
    return [_undecided(group, members)]


def _is_whole(sequence: Matched) -> bool:
    """Return whether an all-to-all is what its lanes consist of; two ranks may be two of others."""
    return len(sequence.lanes) >= _LEAST_OWNERS and all(
        100 * row.size >= WHOLE_PCT * (len(lane.track) - cut_n)
        for lane, row, cut_n in zip(sequence.lanes, sequence.rows, sequence.cut_n, strict=True)
    )


def _undecided(group: set[int], members: _Members) -> Matched:
    """Return the ranks of a group without any of their transfers."""
    lanes = tuple(members.lanes[place] for place in sorted(group))
    nothing = tuple(np.empty(0, dtype=np.int64) for _ in lanes)
    return Matched(lanes, nothing, tuple(0 for _ in lanes))


def _as_pairs(
    group: set[int], fits: Sequence[PeerFit], edges: TransferEdges, members: _Members
) -> list[Matched]:
    """Match transfers that have one possible peer each; none of a pair with too many others."""
    sole, still_open = edges.sole()
    matched, unsure = [], []
    for number, fit in enumerate(fits):
        selected = edges.fit == number
        rows = edges.rows(number, selected & sole)
        open_ns = _time_ns(fit, edges.rows(number, selected & still_open), members)
        if 100 * open_ns > _UNDECIDED_PCT * (open_ns + _time_ns(fit, rows, members)):
            unsure.append(fit)
        elif _is_proven(fit, rows, members):
            lanes = members.lanes[fit.left], members.lanes[fit.right]
            matched.append(Matched(lanes, rows, (0, 0)))
    rest = linked_groups(unsure, len(members.lanes))
    return [*matched, *(_undecided(item, members) for item in rest)]


def _is_proven(fit: PeerFit, rows: tuple[IntArray, IntArray], members: _Members) -> bool:
    """Return whether a pair has too many transfers for chance: a fair part of those of a rank."""
    least_n = min(len(members.tracks[fit.left]), len(members.tracks[fit.right]))
    return rows[0].size >= max(_LEAST_OF_A_PAIR, _LEAST_PART_PCT * least_n / 100)


def _time_ns(fit: PeerFit, rows: tuple[IntArray, IntArray], members: _Members) -> int:
    tracks = members.lanes[fit.left].track, members.lanes[fit.right].track
    sides = [(track, np.unique(row)) for track, row in zip(tracks, rows, strict=True)]
    return sum(int((track.end_ns[row] - track.start_ns[row]).sum()) for track, row in sides)
