"""Walks of the job: paths that run through ranks, from one collective to the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .job import Job
from .job_trail import Arrivals, Legs, RankSegments, Trail, trail_of
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
    return trail_of(rows, meetings, of_ranks, np.array(visited, dtype=np.int64), all_legs, until_ns)


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
            back = int(segments.forest.member_start_ns[member]) - last_ns
            legs.append((len(visited), place, rank, back, left_ns, last_ns, met))
            if min(left_ns, last_ns) <= until_ns:
                break
            segment = int(segments.forest.member_segment[member])
        visited.append(segment)
        if segments.bottom[segment] - back <= until_ns:
            break
        segment = segments.next[segment]
