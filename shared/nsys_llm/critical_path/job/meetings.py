"""What ranks did together: which communication is one, who came last, and the steps of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.critical_path.path.forest import PathForest
from nsys_llm.critical_path.rank.rank import RankRows
from nsys_llm.facts.steps.steps import COUNTED, EMPTY, WARMUP
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced
from nsys_llm.job.job_steps import LEAST_AGREEING, ahead_of_first, common_step, usual_difference
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import Rank

#: Operations of one device that begin at the same instant; more are not told apart.
_ALIKE: Final = 4
#: Why a step is in no statistic beside what its ranks tell: not all of them have it.
PARTIAL: Final = "partial"


@dataclass(frozen=True)
class Meetings:
    """Collectives that ranks had together, those that there is an instant at which all are in.

    Attributes:
        of_member: For each rank, shape (members,), the collective; -1 for none.
        starts_ns: For each rank, shape (members,), when its member began, on the common clock; 0
            where it is in no collective.
        last_ns: Shape (collectives,), when the last rank came, on the common clock.
        last_rank: Shape (collectives,), position of that rank.
        last_member: Shape (collectives,), its member.
        is_clear: Shape (collectives,), whether clocks are sure who came last.
        pairs: For two ranks, steps of the one minus those of the other in the collectives that
            they had together: value and how often.
    """

    of_member: tuple[IntArray, ...]
    starts_ns: tuple[IntArray, ...]
    last_ns: IntArray
    last_rank: IntArray
    last_member: IntArray
    is_clear: IntArray
    pairs: Mapping[tuple[int, int], tuple[int, float]]
    collectives: MatchedCollectives

    def common_ns(self, rank: Rank, at_ns: IntArray) -> IntArray:
        """Return instants of a rank's profile on the common clock."""
        return self.collectives.common_ns(self.collectives.clock_of[rank.key.path], at_ns)


def meet(rows: RankRows, collectives: MatchedCollectives) -> Meetings:
    """Return what ranks did together."""
    place = {rank.key: index for index, (rank, _) in enumerate(rows)}
    of_member = [np.full(budget.forest.members.start_ns.size, -1, np.int64) for _, budget in rows]
    starts = [np.zeros_like(item) for item in of_member]
    parts: list[IntArray] = []
    differences: dict[tuple[int, int], list[IntArray]] = {}
    begun = 0
    for sequence in collectives.sequences:
        if sequence.confidence == LOW_CONFIDENCE or not len(sequence):
            continue
        ranks = [place[collectives.devices[owner].rank.key] for owner in sequence.owners]
        members = _members(sequence, collectives, [rows[rank][1].forest for rank in ranks])
        known = sequence.waits.met & (members >= 0).all(axis=0)
        n = int(known.sum())
        root_ns = collectives.coarse_ns[
            collectives.clocks[collectives.devices[sequence.owners[0]].clock].root
        ]
        for rank, member, start in zip(ranks, members, sequence.start_ns, strict=True):
            of_member[rank][member[known]] = np.arange(begun, begun + n)
            starts[rank][member[known]] = start[known] + root_ns
        begun += n
        parts.append(_arrivals(sequence, root_ns, ranks, members)[:, known])
        first, *others = (
            rows[rank][1].forest.members.step[member]
            for rank, member in zip(ranks, members[:, known], strict=True)
        )
        for rank, step in zip(ranks[1:], others, strict=True):
            both = (first >= 0) & (step >= 0)
            if both.any() and rank != ranks[0]:
                differences.setdefault((ranks[0], rank), []).append((step - first)[both])
    arrivals = np.concatenate([np.empty((4, 0), dtype=np.int64), *parts], axis=1)
    last_ns, last_rank, last_member, is_clear = arrivals
    return Meetings(
        of_member=tuple(of_member),
        starts_ns=tuple(starts),
        last_ns=last_ns,
        last_rank=last_rank,
        last_member=last_member,
        is_clear=is_clear,
        pairs={pair: usual_difference(np.concatenate(some)) for pair, some in differences.items()},
        collectives=collectives,
    )


def _members(
    sequence: Sequenced, collectives: MatchedCollectives, forests: Sequence[PathForest]
) -> IntArray:
    """Return the member of each rank in each collective, shape (ranks, collectives); -1: none."""
    members = []
    for lane, rows, forest in zip(
        sequence.matched.lanes, sequence.matched.rows, forests, strict=True
    ):
        device = collectives.devices[lane.owner]
        back_ns = collectives.coarse_ns[device.clock]
        start, end = lane.track.start_ns[rows] - back_ns, lane.track.end_ns[rows] - back_ns
        first = np.searchsorted(forest.members.start_ns, start)
        member = np.full(start.shape, -1, dtype=np.int64)
        for further in range(_ALIKE):
            at = np.minimum(first + further, max(forest.members.start_ns.size - 1, 0))
            if not forest.members.start_ns.size:
                break
            same = (forest.members.start_ns[at] == start) & (forest.members.end_ns[at] == end)
            same &= forest.members.device[at] == device.device_id
            member = np.where(same & (member < 0), at, member)
        members.append(member)
    return np.stack(members)


def _arrivals(
    sequence: Sequenced, root_ns: int, ranks: Sequence[int], members: IntArray
) -> IntArray:
    """Return when the last rank came, which it is, its member, and whether that is clear."""
    late = sequence.waits.late
    clear = sequence.waits.late_by_ns >= sequence.residual_ns
    return np.stack(
        (
            sequence.waits.last_start_ns + root_ns,
            np.array(ranks, dtype=np.int64)[late],
            np.take_along_axis(members, late[None, :], axis=0)[0],
            clear.astype(np.int64),
        )
    )


@dataclass(frozen=True)
class TimedSteps:
    """The steps of the job, on the common clock; arrays of shape (steps,) unless said otherwise.

    Attributes:
        edge_ns: Shape (steps + 1,), ascending: step k lies from edge k to edge k + 1.
        step: Shape (ranks, steps), the step of each rank; -1 where it has none.
        mark: Why each is in no statistic; "" for one that counts.
        end_rank: Position of the rank on which it ended, the lowest of several.
    """

    edge_ns: IntArray
    step: IntArray
    mark: tuple[str, ...]
    ranks_n: IntArray
    end_rank: IntArray
    end_device: IntArray

    @property
    def counted(self) -> IntArray:
        """The steps that count, by position."""
        return np.flatnonzero([mark == COUNTED for mark in self.mark])

    def median_end_ns(self, end_ns: IntArray) -> IntArray:
        """Return when steps end on the median rank of those that have them, shape (steps,).

        Args:
            end_ns: Shape (ranks, steps), on the common clock; whatever where a rank lacks a step.
        """
        has = self.step >= 0
        known_ns = np.sort(np.where(has, end_ns, np.iinfo(np.int64).max), axis=0)
        middle = (np.maximum(np.count_nonzero(has, axis=0), 1) - 1) // 2
        return np.take_along_axis(known_ns, middle[None], axis=0)[0]


def job_steps(rows: RankRows, meetings: Meetings) -> tuple[TimedSteps | None, str | None]:
    """Return the steps of the job, of several groups of the largest, or why there are none."""
    own = [place for place, (rank, _) in enumerate(rows) if not rank.group]
    kind = common_step({place: rows[place][1].step for place in own})
    others = {} if kind is None else kind.others
    working = [place for place in own if rows[place][1].devices and place not in others]
    if not working:
        return None, "no rank has GPU work"
    offsets, reason = _offsets(rows, working, meetings.pairs)
    if offsets is None:
        return None, reason
    counts = {place: len(rows[place][1].mark) for place in working}
    low = min(-offsets[place] for place in working)
    high = max(counts[place] - offsets[place] for place in working)
    step = np.full((len(rows), high - low), -1, dtype=np.int64)
    for place in working:
        first = -offsets[place] - low
        step[place, first : first + counts[place]] = np.arange(counts[place])
    return _timed(rows, step, meetings), None


def _offsets(
    rows: RankRows, working: list[int], pairs: Mapping[tuple[int, int], tuple[int, float]]
) -> tuple[dict[int, int] | None, str | None]:
    """Return by how many steps each rank is ahead of the first one of the job."""
    # The steps of others are of another kind, or they have none.
    linked = {pair: usual for pair, usual in pairs.items() if set(pair) <= set(working)}
    if any(share < LEAST_AGREEING for _, share in linked.values()):
        return None, "collectives of one step of a rank belong to several steps of another"
    found = ahead_of_first({pair: ahead for pair, (ahead, _) in linked.items()}, working)
    offsets = {place: ahead for place, (_, ahead) in found.items()}
    if any(offsets[right] != offsets[left] + n for (left, right), (n, _) in linked.items()):
        return None, "collectives do not agree on which steps of ranks are one"
    counts = {len(rows[place][1].mark) for place in working}
    if len(counts) > 1 and len({first for first, _ in found.values()}) > 1:
        return None, "ranks have different numbers of steps, and no collective links them"
    return offsets, None


def _timed(rows: RankRows, step: IntArray, meetings: Meetings) -> TimedSteps:
    steps_n = step.shape[1]
    end_ns = np.full(steps_n, np.iinfo(np.int64).min)
    rank_of, device_of = np.full((2, steps_n), -1, dtype=np.int64)
    begins = []
    for place, (rank, budget) in enumerate(rows):
        has = np.flatnonzero(step[place] >= 0)
        if not has.size:
            continue
        for index, device in enumerate(budget.devices):
            edges = meetings.common_ns(rank, device.edge_ns)
            begins.append(int(edges[0]))
            ends = edges[1:][step[place, has]]
            later = ends > end_ns[has]
            at = has[later]
            end_ns[at], rank_of[at], device_of[at] = ends[later], place, index
    edge_ns = np.maximum.accumulate(np.concatenate(([min(begins)], end_ns)))
    ranks_n = (step >= 0).sum(axis=0)
    marks = _marks(rows, step, edge_ns, ranks_n)
    return TimedSteps(edge_ns, step, marks, ranks_n, rank_of, device_of)


def _marks(rows: RankRows, step: IntArray, edge_ns: IntArray, ranks_n: IntArray) -> tuple[str, ...]:
    wall_ns = np.diff(edge_ns)
    marks = [COUNTED] * step.shape[1]
    most_n = int(ranks_n.max())
    for k in range(len(marks)):
        there = np.flatnonzero(step[:, k] >= 0).tolist()
        rank_marks = [rows[place][1].mark[step[place, k]] for place in there]
        warm = WARMUP if WARMUP in rank_marks else COUNTED
        job_mark = next((mark for mark in rank_marks if mark not in (COUNTED, WARMUP)), warm)
        if job_mark == COUNTED and ranks_n[k] < most_n:
            job_mark = PARTIAL
        if job_mark == COUNTED and wall_ns[k] == 0:
            job_mark = EMPTY
        marks[k] = job_mark
    return tuple(marks)
