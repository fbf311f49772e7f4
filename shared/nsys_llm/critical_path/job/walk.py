"""Walks of the job: paths that run through ranks, from one collective to the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.critical_path.job.meetings import Meetings, TimedSteps
from nsys_llm.critical_path.path.blocks import Charge, unrecorded
from nsys_llm.critical_path.path.classes import BY_COLLECTIVE, TRANSFER, UNCLEAR_ARRIVAL
from nsys_llm.critical_path.path.forest import PathForest
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.path.outline import WalkPositions, crossed
from nsys_llm.critical_path.rank.rank import RankRows
from nsys_llm.numeric.intervals import IntArray

#: The rank of time that no rank has.
NO_RANK: Final = -1


@dataclass(frozen=True)
class JobWalk:
    """One walk: from where to where, on the common clock, and on which rank and device it begins.

    Attributes:
        rank: Position of the rank; -1 for a walk of no length.
    """

    rank: int
    device: int
    step: int
    from_ns: int
    until_ns: int


@dataclass(frozen=True)
class Trail:
    """Where walks went: visits of segments, and what they charged outside of any.

    Attributes:
        visits: Shape (visits, 7): walk, rank, segment, high and low instant of the rank's own
            clock, what takes the common clock to that, and whether an edge before was inferred.
        others: Shape (others, 7): the visit before which it stands, walk, rank, charge, begin and
            end on the common clock, and whether an edge before was inferred.
        charges: What codes in `others` stand for.
    """

    visits: IntArray
    others: IntArray
    charges: tuple[Charge, ...]


@dataclass(frozen=True)
class Legs:
    """Parts of walks inside one rank; arrays of shape (legs,).

    Attributes:
        first: The first visit of each.
        back_ns: What takes the common clock to the rank's own.
        left_ns: Where the leg before is left at the latest, on the common clock.
        joined_ns: When the last rank came; the begin of a walk on its first leg.
        met: The collective by which a walk came there; -1 on its first leg.
    """

    first: IntArray
    walk: IntArray
    rank: IntArray
    back_ns: IntArray
    left_ns: IntArray
    joined_ns: IntArray
    met: IntArray


@dataclass(frozen=True)
class RankSegments:
    """The segments of a rank, and as plain numbers what a loop reads.

    Attributes:
        bottom_ns: Shape (segments,), where each ends on its own clock.
        met: The collective that it is; -1 for none.
        seen: The last walk that visited it; -1 for none.
    """

    forest: PathForest
    bottom_ns: IntArray
    bottom: memoryview
    top: memoryview
    next: memoryview
    met: memoryview
    seen: list[int]

    @classmethod
    def of(cls, forest: PathForest, of_member: IntArray) -> RankSegments:
        """Return those of a rank; `of_member` has the collective of each member."""
        bottom_ns = forest.begin_ns[forest.first[1:] - 1]
        met = np.append(of_member, -1)[forest.member]
        top, seen = forest.top_ns.data, [-1] * len(forest)
        return cls(forest, bottom_ns, bottom_ns.data, top, forest.next.data, met.data, seen)


def step_walks(job: TimedSteps) -> list[JobWalk]:
    """Return the walk of every step, and last the one over all steps that count."""
    walks = []
    ends, begins = job.edge_ns[1:].tolist(), job.edge_ns[:-1].tolist()
    for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        walks.append(_walk(job, k, begin, end))
    counted = job.counted.tolist()
    if counted:
        walks.append(_walk(job, counted[-1], begins[counted[0]], ends[counted[-1]]))
    return walks


def _walk(job: TimedSteps, k: int, begin: int, end: int) -> JobWalk:
    rank = int(job.end_rank[k])
    if job.edge_ns[k + 1] == job.edge_ns[k]:
        return JobWalk(-1, -1, -1, end, begin)
    return JobWalk(rank, int(job.end_device[k]), int(job.step[rank, k]), end, begin)


def follow_job(rows: RankRows, meetings: Meetings, walks: Sequence[JobWalk]) -> Trail:
    """Follow walks through ranks; return where they went."""
    of_ranks = [
        RankSegments.of(budget.forest, members)
        for (_, budget), members in zip(rows, meetings.of_member, strict=True)
    ]
    visited: list[int] = []
    legs: list[tuple[int, ...]] = []
    for place, walk in enumerate(walks):
        if walk.rank >= 0:
            _follow(place, walk, rows, meetings, of_ranks, (visited, legs))
    all_legs = Legs(*np.array(legs, dtype=np.int64).reshape(-1, 7).T)
    until_ns = np.array([walk.until_ns for walk in walks], dtype=np.int64)[all_legs.walk]
    return _trail_of(
        rows, meetings, of_ranks, np.array(visited, dtype=np.int64), all_legs, until_ns
    )


def _follow(
    place: int,
    walk: JobWalk,
    rows: RankRows,
    meetings: Meetings,
    of_ranks: Sequence[RankSegments],
    into: tuple[list[int], list[tuple[int, ...]]],
) -> None:
    """Note what one walk visits, and its legs, see `Legs`; its positions follow from these."""
    visited, legs = into
    device, segments = rows[walk.rank][1].devices[walk.device], of_ranks[walk.rank]
    segment, until_ns = int(device.tail[walk.step]), walk.until_ns
    back = int(device.edge_ns[walk.step + 1]) - walk.from_ns
    legs.append((len(visited), place, walk.rank, back, walk.from_ns, walk.from_ns, -1))
    # Broken rows may make a circle; no path visits anything twice.
    while segment >= 0 and walk.from_ns > until_ns and segments.seen[segment] != place:
        segments.seen[segment] = place
        met = segments.met[segment]
        if met >= 0:
            left_ns, last_ns = segments.top[segment] - back, int(meetings.last_ns[met])
            rank, member = int(meetings.last_rank[met]), int(meetings.last_member[met])
            segments = of_ranks[rank]
            back = int(segments.forest.members.start_ns[member]) - last_ns
            legs.append((len(visited), place, rank, back, left_ns, last_ns, met))
            if min(left_ns, last_ns) <= until_ns:
                break
            segment = int(segments.forest.members.segment[member])
        visited.append(segment)
        if segments.bottom[segment] - back <= until_ns:
            break
        segment = segments.next[segment]


def _trail_of(
    rows: RankRows,
    meetings: Meetings,
    of_ranks: Sequence[RankSegments],
    visited: IntArray,
    legs: Legs,
    until_ns: IntArray,
) -> Trail:
    """Return where walks went.

    Args:
        visited: Shape (visits,), the segments that walks visited, one walk after the other.
        until_ns: Shape (legs,), where the walk of each ends.
    """
    leg = np.repeat(np.arange(legs.walk.size), np.diff(np.append(legs.first, visited.size)))
    rank, back = legs.rank[leg], legs.back_ns[leg]
    top, bottom, inferred = _of_visits(of_ranks, rank, visited)
    counts = np.bincount(leg, minlength=legs.walk.size)
    at = WalkPositions.of(
        legs.walk, counts, legs.left_ns, legs.joined_ns, top - back, bottom - back
    )
    doubts = _doubts(meetings, legs, leg, inferred)
    low = until_ns[leg] + back
    columns = legs.walk[leg], rank, visited, at.high_ns + back, low, back, doubts.on_visit
    others, charges = _others(rows, meetings, legs, at, until_ns, counts, doubts)
    return Trail(np.column_stack(columns), others, charges)


def _of_visits(
    of_ranks: Sequence[RankSegments], rank: IntArray, visited: IntArray
) -> tuple[IntArray, IntArray, Bools]:
    """Return where visited segments begin and end, and whether they have an inferred edge."""
    top, bottom = np.empty((2, visited.size), dtype=np.int64)
    inferred = np.empty(visited.size, dtype=bool)
    for place in np.unique(rank).tolist():
        segments, at = of_ranks[place], np.flatnonzero(rank == place)
        segment = visited[at]
        top[at], bottom[at] = segments.forest.top_ns[segment], segments.bottom_ns[segment]
        inferred[at] = segments.forest.doubtful[segments.forest.first[segment + 1] - 1]
    return top, bottom, inferred


@dataclass(frozen=True)
class _Doubts:
    """Where inferred edges were crossed.

    Attributes:
        on_visit: Shape (visits,), whether before it.
        on_leg: Shape (legs,), whether before it.
        after: Shape (legs,), whether up to its end.
        unclear: Shape (legs,), whether it is not clear who came last where it begins.
    """

    on_visit: Bools
    on_leg: Bools
    after: Bools
    unclear: Bools


def _doubts(meetings: Meetings, legs: Legs, leg: IntArray, inferred: Bools) -> _Doubts:
    """Return where inferred edges were crossed."""
    unclear = (legs.met >= 0) & (np.append(meetings.is_clear, 1)[legs.met] == 0)
    places = np.arange(legs.walk.size)
    joined, visits = legs.first + places, np.arange(leg.size) + leg + 1
    edges, walk = np.zeros((2, places.size + leg.size), dtype=np.int64)
    edges[joined], edges[visits] = unclear, inferred
    walk[joined], walk[visits] = legs.walk, legs.walk[leg]
    total = crossed(edges, walk)
    if not meetings.collectives.is_aligned:  # a walk begins where another rank may have ended
        total[:] = 2
    last = np.append(joined, total.size)[1:] - 1
    return _Doubts(total[visits] > inferred, total[joined] > unclear, total[last] > 0, unclear)


def _others(
    rows: RankRows,
    meetings: Meetings,
    legs: Legs,
    at: WalkPositions,
    until_ns: IntArray,
    visits_n: IntArray,
    doubts: _Doubts,
) -> tuple[IntArray, tuple[Charge, ...]]:
    """Return what is charged outside of segments: transfer, and what is not recorded."""
    begin_ns = np.maximum(np.append(meetings.last_ns, 0)[legs.met], until_ns)
    moved = np.flatnonzero((legs.met >= 0) & (at.left_ns > begin_ns))
    is_last = np.append(legs.walk[1:] != legs.walk[:-1], True)[: legs.walk.size]
    lost = np.flatnonzero(is_last & (at.end_ns > until_ns))
    named = [
        _transfer(rows, meetings, met, is_unclear=unclear)
        for met, unclear in zip(
            legs.met[moved].tolist(), doubts.unclear[moved].tolist(), strict=True
        )
    ]
    named += [unrecorded()] * lost.size
    code = {charge: index for index, charge in enumerate(dict.fromkeys(named))}
    leg = np.concatenate((moved, lost))
    before = np.concatenate((legs.first[moved], legs.first[lost] + visits_n[lost]))
    begin = np.concatenate((begin_ns[moved], until_ns[lost]))
    end = np.concatenate((at.left_ns[moved], at.end_ns[lost]))
    doubtful = np.concatenate((doubts.on_leg[moved], doubts.after[lost]))
    codes = np.array([code[charge] for charge in named], dtype=np.int64)
    # What a leg begins with comes before what is lost at its end.
    order = np.lexsort((np.arange(leg.size), leg))
    columns = (before, legs.walk[leg], legs.rank[leg], codes, begin, end, doubtful)
    return np.column_stack(columns)[order].astype(np.int64), tuple(code)


def _transfer(rows: RankRows, meetings: Meetings, met: int, *, is_unclear: bool) -> Charge:
    """Return what the transfer of a collective is charged to: that of the rank that came last."""
    member, forest = int(meetings.last_member[met]), rows[int(meetings.last_rank[met])][1].forest
    name = forest.charges[int(forest.code[forest.first[forest.members.segment[member]]])]
    edge = UNCLEAR_ARRIVAL if is_unclear else BY_COLLECTIVE
    return Charge(TRANSFER, edge, name.detail, int(forest.members.device[member]))
