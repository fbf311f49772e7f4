"""Pipelines: their stages in order, the messages of a step between two stages, and the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.matched import Sequenced
from nsys_llm.analyses.collectives.turns import before_n
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from .job import Job

#: Schedules.
INTERLEAVED: Final = "interleaved"
GPIPE: Final = "gpipe"
ONE_F_ONE_B: Final = "1f1b"

#: Devices of each stage.
_Stages = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Chain:
    """One pipeline.

    Attributes:
        number: From 0.
        stages: Devices of each stage, the first one first.
        steps: Steps of the job that all devices have whole; None without steps.
        messages_n: Messages from each stage to the next in a step, microbatches by chunks; None
            where that is not known, or differs.
        kind: `INTERLEAVED`, `GPIPE` or `ONE_F_ONE_B`; None where it is not known.
    """

    number: int
    stages: _Stages
    steps: IntArray | None
    messages_n: int | None
    kind: str | None

    @property
    def owners(self) -> tuple[int, ...]:
        """All devices, stage by stage."""
        return tuple(owner for some in self.stages for owner in some)


def find_chains(job: Job) -> list[Chain]:
    """Return the pipelines of a job."""
    chains = []
    for number, pipeline in enumerate(job.stages.pipelines):
        stages = pipeline.stages
        steps = job.whole_steps(tuple(owner for some in stages for owner in some))
        if len(stages) == 2 and _is_reversed(job, stages):
            stages = stages[::-1]
        if steps is None or not steps.size:
            chains.append(Chain(number, stages, None, None, None))
            continue
        links = [_links(job, *two, steps) for two in pairwise(stages)]
        ring = len(stages) > 2 and bool(_links(job, stages[-1], stages[0], steps))
        messages_n = _messages_n(links, ring=ring)
        kind = INTERLEAVED if ring else _kind(links, messages_n)
        chains.append(Chain(number, stages, steps, messages_n, kind))
    return chains


@dataclass(frozen=True)
class _Link:
    """What two devices of stages that follow each other send; the first is of the earlier one.

    Attributes:
        step: Step of the job of each message, shape (n,); of whole ones alone.
        way: Number of its sequence: one a direction, or one of both.
        before_n: Shape (2, n), kernels that each device had launched before.
        end_ns: Shape (n,), when it ends.
    """

    step: IntArray
    way: IntArray
    before_n: IntArray
    end_ns: IntArray

    @cached_property
    def ways_n(self) -> int:
        """Sequences: two where the directions are apart."""
        return int(np.unique(self.way).size)

    @cached_property
    def counts(self) -> IntArray:
        """Messages of each step and way, where all have as many; else empty."""
        _, counts = np.unique(np.stack((self.step, self.way)), axis=1, return_counts=True)
        every = counts.size == self.ways_n * np.unique(self.step).size
        return np.unique(counts) if every else counts[:0]

    def at_once_n(self, side: int) -> int:
        """Return how often a device exchanges two messages of a step without a kernel between."""
        order = np.lexsort((self.before_n[side], self.step))
        step, before = self.step[order], self.before_n[side][order]
        return int(((np.diff(before) == 0) & (np.diff(step) == 0)).sum())

    def forward(self) -> IntArray:
        """Return whether each message is of the way that begins steps; of one way all are."""
        first = self.way[np.lexsort((self.end_ns, self.step))[0]]
        return np.asarray(self.way == first)


def _links(job: Job, left: tuple[int, ...], right: tuple[int, ...], steps: IntArray) -> list[_Link]:
    """Return the links between two stages."""
    pairs: dict[tuple[int, int], list[Sequenced]] = {}
    for sequence in job.collectives.sequences:
        if sequence.operation == SEND_RECV and len(sequence.owners) == 2 and len(sequence):
            one, other = sequence.owners
            if (one in left and other in right) or (one in right and other in left):
                ends = (one, other) if one in left else (other, one)
                pairs.setdefault(ends, []).append(sequence)
    return [_link(job, ends, some, steps) for ends, some in sorted(pairs.items())]


def _link(job: Job, ends: tuple[int, int], some: list[Sequenced], steps: IntArray) -> _Link:
    parts = []
    for number, sequence in enumerate(some):
        places = [sequence.owners.index(owner) for owner in ends]
        end_ns = job.own_end_ns(sequence, places[0])
        step = job.job_step(ends[0], end_ns)
        rows = np.flatnonzero(np.isin(step, steps))
        before = [before_n(sequence, job.collectives.devices, place)[rows] for place in places]
        way = np.full(rows.size, number)
        parts.append(np.stack((step[rows], way, *before, end_ns[rows])))
    step, way, *before, end_ns = np.concatenate(parts, axis=1)
    return _Link(step, way, np.stack(before), end_ns)


def _messages_n(links: list[list[_Link]], *, ring: bool) -> int | None:
    """Return the messages that each stage sends to the next in a step.

    Where sends and receives are one sequence, those of both directions are half of it, unless a
    kernel carries one each way: then no two follow each other without work between them, and the
    earlier a stage, the more of its messages go alone.
    """
    stages_n = len(links) + 1
    counts: list[tuple[int, bool, int]] = []
    for place, link in ((place, link) for place, some in enumerate(links) for link in some):
        if link.counts.size != 1 or link.ways_n > 2:
            return None
        both = link.ways_n == 1
        counts.append((int(link.counts[0]), both and not link.at_once_n(0), stages_n - 1 - place))
        if both and not counts[-1][1]:
            half, odd = divmod(counts[-1][0], 2)
            if odd:
                return None
            counts[-1] = half, False, 0
    if not counts or len({carried for _, carried, _ in counts}) > 1:
        return None
    totals = {count for count, _, _ in counts}
    if len(totals) == 1 and (not counts[0][1] or (stages_n > 2 and not ring)):
        return totals.pop()
    alone = {count - warm for count, _, warm in counts}
    carries = counts[0][1] and stages_n > 2 and not ring
    return alone.pop() if carries and len(alone) == 1 else None


def _kind(links: list[list[_Link]], messages_n: int | None) -> str | None:
    """Return the schedule of a line, as the last stage sees it."""
    if messages_n is None:
        return None
    kinds = set()
    for link in links[-1]:
        if link.ways_n == 1 and int(link.counts[0]) not in (messages_n, 2 * messages_n):
            kinds.add(ONE_F_ONE_B)
        elif link.ways_n == 1:
            kinds.add(ONE_F_ONE_B if link.at_once_n(1) else GPIPE)
        else:
            kinds.add(GPIPE if _forward_first(link) else ONE_F_ONE_B)
    return kinds.pop() if len(kinds) == 1 else None


def _forward_first(link: _Link) -> bool:
    forward = link.forward()
    return all(
        link.before_n[1][forward & (link.step == step)].max()
        <= link.before_n[1][~forward & (link.step == step)].min()
        for step in np.unique(link.step)
    )


def _is_reversed(job: Job, stages: _Stages) -> bool:
    """Return whether the first of two stages has nothing to do until a step's first message."""
    steps = job.whole_steps((*stages[0], *stages[1]))
    if steps is None or not steps.size:
        return False
    firsts: dict[int, tuple[int, bool]] = {}
    for sequence in job.collectives.sequences:
        if id(sequence) not in job.stages.staged:
            continue
        place = next((at for at, owner in enumerate(sequence.owners) if owner in stages[0]), None)
        if place is None or not set(sequence.owners) & set(stages[1]):
            continue
        end_ns = job.own_end_ns(sequence, place)
        step = job.job_step(sequence.owners[place], end_ns)
        for number in np.intersect1d(step, steps).tolist():
            rows = np.flatnonzero(step == number)
            row = rows[np.argmin(end_ns[rows])]
            before = firsts.get(number, (int(end_ns[row]) + 1, False))
            if int(end_ns[row]) < before[0]:
                firsts[number] = int(end_ns[row]), bool(sequence.waits.late[row] == place)
    last_n = sum(is_last for _, is_last in firsts.values())
    return 2 * last_n < len(firsts)
