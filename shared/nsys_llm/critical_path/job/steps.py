"""The steps of the job: which steps of ranks are one, and when each began and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.critical_path.job.meetings import Meetings
from nsys_llm.critical_path.job.rank_paths import RankRows
from nsys_llm.facts.steps.steps import COUNTED, EMPTY, WARMUP
from nsys_llm.job.collectives.job_steps import LEAST_AGREEING, ahead_of_first
from nsys_llm.job.common_step import common_step
from nsys_llm.numeric.intervals import IntArray

#: Why a step is in no statistic beside what its ranks tell: not all of them have it.
PARTIAL: Final = "partial"


@dataclass(frozen=True)
class Job:
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


def job_steps(rows: RankRows, meetings: Meetings) -> tuple[Job | None, str | None]:
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


def _timed(rows: RankRows, step: IntArray, meetings: Meetings) -> Job:
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
    return Job(edge_ns, step, marks, ranks_n, rank_of, device_of)


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
