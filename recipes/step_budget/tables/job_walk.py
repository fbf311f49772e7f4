"""Walks of the job: paths that run through ranks, from one collective to the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nsys_llm.analyses.path.classes import (
    BY_COLLECTIVE,
    LAST_CERTAIN,
    TRANSFER,
    UNCLEAR_ARRIVAL,
)
from nsys_llm.analyses.path.forest import Charge, PathForest, unrecorded
from nsys_llm.numeric.intervals import IntArray

from .job import Job
from .meetings import Meetings, RankRows

#: The rank of time that no rank has.
NO_RANK: Final = -1


@dataclass(frozen=True)
class JobWalk:
    """One walk: from where to where, on the common clock, and on which rank and device it begins.

    Attributes:
        rank: Position of the rank; -1 for a walk of no length.
        device: Position of the device there.
        step: Step of that rank.
        from_ns: Where it begins.
        until_ns: Where it ends, earlier.
    """

    rank: int
    device: int
    step: int
    from_ns: int
    until_ns: int


@dataclass(frozen=True)
class Arrivals:
    """Where walks went on in the rank that came last; arrays of shape (arrivals,).

    Attributes:
        walk: Position of the walk.
        rank: Position of that rank.
        late_ns: How much later it came than the median rank.
        at_ns: When it came, on the common clock.
        path_ns: How long the walk then stayed on what led to its arrival.
    """

    walk: IntArray
    rank: IntArray
    late_ns: IntArray
    at_ns: IntArray
    path_ns: IntArray


@dataclass
class Trail:
    """Where walks went: visits of segments, and what they charged outside of any.

    Attributes:
        visits: Walk, rank, segment, high and low instant of the rank's own clock, what takes the
            common clock to that, and whether an edge before was inferred.
        others: The visit before which it stands, walk, rank, charge, begin and end on the common
            clock, and whether an edge before was inferred.
        charges: What codes in `others` stand for.
        arrivals: See `Arrivals`; the instant of the arrival third.
    """

    visits: list[tuple[int, int, int, int, int, int, bool]] = field(default_factory=list)
    others: list[tuple[int, int, int, int, int, int, bool]] = field(default_factory=list)
    charges: dict[Charge, int] = field(default_factory=dict)
    arrivals: list[list[int]] = field(default_factory=list)

    def arrive(self, walk: int, rank: int, late_ns: int, at_ns: int) -> None:
        """Add that a walk goes on in the rank that came last."""
        self.arrivals.append([walk, rank, late_ns, at_ns])

    def leave(self, walk: int, at_ns: int) -> None:
        """Say where a walk left what led to its last arrival, if there was one."""
        if self.arrivals and self.arrivals[-1][0] == walk and len(self.arrivals[-1]) == 4:
            self.arrivals[-1].append(self.arrivals[-1][3] - at_ns)

    def arrays(self) -> tuple[IntArray, IntArray]:
        """Return visits and others as arrays, shape (n, 7) each."""
        visits, others = (
            np.array(rows, dtype=np.int64).reshape(-1, 7) for rows in (self.visits, self.others)
        )
        return visits, others

    def visit(
        self, walk: int, rank: int, segment: int, high: int, low: int, back: int, doubt: bool
    ) -> None:
        """Add what a walk charges in a segment, between two instants of the rank's own clock."""
        self.visits.append((walk, rank, segment, high, low, back, doubt))

    def other(
        self, walk: int, rank: int, charge: Charge, start: int, end: int, doubt: bool
    ) -> None:
        """Add a piece that is in no segment."""
        if end > start:
            code = self.charges.setdefault(charge, len(self.charges))
            self.others.append((len(self.visits), walk, rank, code, start, end, doubt))


def step_walks(job: Job) -> list[JobWalk]:
    """Return the walk of every step, and last the one over all steps that count."""
    walks = []
    ends, begins = job.edge_ns[1:].tolist(), job.edge_ns[:-1].tolist()
    for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        walks.append(_walk(job, k, begin, end))
    counted = job.counted.tolist()
    if counted:
        walks.append(_walk(job, counted[-1], begins[counted[0]], ends[counted[-1]]))
    return walks


def _walk(job: Job, k: int, begin: int, end: int) -> JobWalk:
    rank = int(job.end_rank[k])
    if job.edge_ns[k + 1] == job.edge_ns[k]:
        return JobWalk(-1, -1, -1, end, begin)
    return JobWalk(rank, int(job.end_device[k]), int(job.step[rank, k]), end, begin)


def follow_job(
    rows: RankRows, meetings: Meetings, walks: Sequence[JobWalk]
) -> tuple[Trail, Arrivals]:
    """Follow walks through ranks; return where they went, and who came last."""
    trail = Trail()
    of_ranks = [
        _Segments.of(one.forest, members)
        for (_, one), members in zip(rows, meetings.of_member, strict=True)
    ]
    for place, walk in enumerate(walks):
        if walk.rank >= 0:
            _follow(place, walk, rows, meetings, of_ranks, trail)
        else:
            lost = unrecorded()
            trail.other(place, NO_RANK, lost, walk.until_ns, walk.from_ns, doubt=True)
    arrivals = np.array(trail.arrivals, dtype=np.int64).reshape(-1, 5).T
    return trail, Arrivals(*arrivals)


@dataclass(frozen=True)
class _Segments:
    """The segments of a rank as plain numbers, which a loop reads faster than an array's.

    Attributes:
        top_ns: Where each begins on its own clock.
        bottom_ns: Where it ends.
        next: The one below.
        doubtful: Whether it has an inferred edge.
        met: The collective that it is; -1 for none.
    """

    top_ns: memoryview
    bottom_ns: memoryview
    next: memoryview
    doubtful: memoryview
    met: memoryview

    @classmethod
    def of(cls, forest: PathForest, of_member: IntArray) -> _Segments:
        """Return those of a rank; `of_member` has the collective of each member."""
        last = forest.first[1:] - 1
        met = np.append(of_member, -1)[forest.member]
        return cls(
            forest.top_ns.data,
            forest.begin_ns[last].data,
            forest.next.data,
            forest.doubtful[last].data,
            met.data,
        )


def _follow(
    place: int,
    walk: JobWalk,
    rows: RankRows,
    meetings: Meetings,
    of_ranks: Sequence[_Segments],
    trail: Trail,
) -> None:
    """Follow one walk. Positions are on the common clock, `back` takes them to the rank's own."""
    rank, at_ns, doubt = walk.rank, walk.from_ns, False
    device = rows[rank][1].devices[walk.device]
    segment = int(device.tail[walk.step])
    back = int(device.edge_ns[walk.step + 1]) - at_ns
    seen: set[tuple[int, int]] = set()
    while segment >= 0 and at_ns > walk.until_ns and (rank, segment) not in seen:
        seen.add((rank, segment))
        own = of_ranks[rank]
        high = min(at_ns + back, own.top_ns[segment])
        met = own.met[segment]
        if met >= 0:
            at_ns = min(at_ns, high - back)
            trail.leave(place, at_ns)
            last_ns = int(meetings.last_ns[met])
            rank = int(meetings.last_rank[met])
            forest = rows[rank][1].forest
            member = int(meetings.last_member[met])
            clear = bool(meetings.is_clear[met])
            name = forest.charges[int(forest.code[forest.first[forest.member_segment[member]]])]
            edge = BY_COLLECTIVE if clear else UNCLEAR_ARRIVAL
            charge = Charge(TRANSFER, edge, name.detail, int(forest.member_device[member]))
            trail.other(place, rank, charge, max(last_ns, walk.until_ns), at_ns, doubt)
            doubt = doubt or edge > LAST_CERTAIN
            start = int(forest.member_start_ns[member])
            at_ns, back = min(at_ns, last_ns), start - last_ns
            trail.arrive(place, rank, last_ns - int(meetings.median_ns[met]), at_ns)
            segment, own = int(forest.member_segment[member]), of_ranks[rank]
            if at_ns <= walk.until_ns:
                break
            high = at_ns + back
        trail.visit(place, rank, segment, high, walk.until_ns + back, back, doubt)
        at_ns = min(at_ns, max(own.bottom_ns[segment] - back, walk.until_ns), high - back)
        doubt = doubt or bool(own.doubtful[segment])
        segment = own.next[segment]
    trail.leave(place, max(at_ns, walk.until_ns))
    trail.other(place, rank, unrecorded(), walk.until_ns, at_ns, doubt)
