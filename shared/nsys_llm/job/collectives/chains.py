"""Pipelines on the steps of a job: which stage is the first, microbatches, and the schedule. Pure.

All of it is counted, never derived from times: what each stage sends to the next in a step, and
what was launched between two messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from nsys_llm.job.collectives.matched import Sequenced
from nsys_llm.job.collectives.stages import Stages, before_n
from nsys_llm.job.job_steps import JobSteps
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

#: Schedules.
INTERLEAVED: Final = "interleaved"
GPIPE: Final = "gpipe"
ONE_F_ONE_B: Final = "1f1b"

#: Devices of each stage.
_Stages = tuple[tuple[int, ...], ...]
#: Part of a microbatch's time that goes forward: a matrix product has two backward.
_FORWARD: Final = 1 / 3


@dataclass(frozen=True)
class Chain:
    """One pipeline.

    Attributes:
        stages: Devices of each stage, the first one first.
        steps: Steps of the job that all devices have whole; None without steps.
        messages_n: Messages from each stage to the next in a step, microbatches by chunks; None
            where that is not known, or differs.
        kind: `INTERLEAVED`, `GPIPE` or `ONE_F_ONE_B`; None where it is not known.
    """

    number: int
    stages: _Stages
    steps: IntArray | None = None
    messages_n: int | None = None
    kind: str | None = None

    @property
    def owners(self) -> tuple[int, ...]:
        """All devices, stage by stage."""
        return tuple(owner for some in self.stages for owner in some)


def find_chains(stages: Stages, steps: JobSteps) -> list[Chain]:
    """Return the pipelines of a job."""
    chains = []
    for number, pipeline in enumerate(stages.pipelines):
        chain = Chain(number, pipeline)
        whole = steps.whole(chain.owners)
        if whole is None or not whole.size:
            chains.append(chain)
            continue
        order = chain.stages
        if len(order) == 2 and _is_reversed(order, steps, whole):
            order = order[::-1]
        links = [_links(*two, steps, whole) for two in pairwise(order)]
        ring = len(order) > 2 and bool(_links(order[-1], order[0], steps, whole))
        messages_n = _messages_n(links, ring=ring)
        kind = INTERLEAVED if ring else _kind(links, messages_n)
        chains.append(Chain(number, order, whole, messages_n, kind))
    return chains


def transfers_between(
    sequences: Sequence[Sequenced], left: Sequence[int], right: Sequence[int]
) -> dict[tuple[int, int], list[Sequenced]]:
    """Return the transfers between two stages, by pairs of devices, that of `left` first."""
    pairs: dict[tuple[int, int], list[Sequenced]] = {}
    for sequence in sequences:
        if sequence.operation == SEND_RECV and len(sequence.owners) == 2 and len(sequence):
            first, second = sequence.owners
            if first in right and second in left:
                first, second = second, first
            if first in left and second in right:
                pairs.setdefault((first, second), []).append(sequence)
    return dict(sorted(pairs.items()))


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

    def is_forward_first(self) -> bool:
        """Whether in each step what goes back does so after all has come, on the later device."""
        first = self.way[np.lexsort((self.end_ns, self.step))[0]]
        before = self.before_n[1]
        return all(
            before[(self.step == step) & (self.way == first)].max()
            <= before[(self.step == step) & (self.way != first)].min()
            for step in np.unique(self.step)
        )


def _links(
    left: tuple[int, ...], right: tuple[int, ...], steps: JobSteps, whole: IntArray
) -> list[_Link]:
    """Return the links between two stages."""
    links = []
    devices = steps.collectives.devices
    for ends, some in transfers_between(steps.collectives.sequences, left, right).items():
        parts = []
        for number, sequence in enumerate(some):
            places = [sequence.owners.index(owner) for owner in ends]
            end_ns = sequence.own_end_ns(places[0])
            step = steps.of(ends[0], end_ns)
            rows = np.flatnonzero(np.isin(step, whole))
            before = [before_n(sequence, devices, place)[rows] for place in places]
            parts.append(np.stack((step[rows], np.full(rows.size, number), *before, end_ns[rows])))
        step, way, *before, end_ns = np.concatenate(parts, axis=1)
        links.append(_Link(step, way, np.stack(before), end_ns))
    return links


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
        if link.ways_n > 1:
            kinds.add(GPIPE if link.is_forward_first() else ONE_F_ONE_B)
        elif int(link.counts[0]) in (messages_n, 2 * messages_n) and not link.at_once_n(1):
            kinds.add(GPIPE)
        else:
            kinds.add(ONE_F_ONE_B)
    return kinds.pop() if len(kinds) == 1 else None


def _is_reversed(stages: _Stages, steps: JobSteps, whole: IntArray) -> bool:
    """Return whether the first of two stages has nothing to do until a step's first message."""
    parts = [np.empty((3, 0), dtype=np.int64)]
    for (owner, _), some in transfers_between(steps.collectives.sequences, *stages).items():
        for sequence in some:
            place = sequence.owners.index(owner)
            end_ns = sequence.own_end_ns(place)
            is_last = sequence.waits.late == place
            parts.append(np.stack((steps.of(owner, end_ns), end_ns, is_last)))
    step, end_ns, is_last = np.concatenate(parts, axis=1)
    rows = np.flatnonzero(np.isin(step, whole))
    rows = rows[np.lexsort((end_ns[rows], step[rows]))]
    _, first = np.unique(step[rows], return_index=True)
    return bool(2 * is_last[rows[first]].sum() < first.size)


@dataclass(frozen=True)
class Line:
    """One pipeline, see `Chain`.

    Attributes:
        transfer_ns: From one stage to the next, summed over the steps of the run.
    """

    stages: tuple[tuple[int, ...], ...]
    messages_n: int | None
    kind: str | None
    transfer_ns: float

    def run_ns(self, compute_ns: Sequence[float]) -> float:
        """Return how long a run takes in which the stages compute for so long each."""
        n, stages_n = self.messages_n, len(compute_ns)
        if n is None:
            return max(compute_ns)
        orders = []
        for later_n in reversed(range(stages_n)):
            # So many go forward before the first is back; of interleaved stages as in Megatron's
            # schedule of two chunks.
            ahead_n = {GPIPE: n, INTERLEAVED: 2 * later_n + stages_n}.get(str(self.kind), later_n)
            passes = [(at + back * ahead_n, back, at) for at in range(n) for back in (False, True)]
            orders.append(sorted(passes))
        ends: list[dict[tuple[bool, int], float]] = [{} for _ in compute_ns]
        now_ns = [0.0] * stages_n
        while any(orders):
            for stage, order in enumerate(orders):
                while order:
                    _, back, number = order[0]
                    sender = stage + (1 if back else -1)
                    if 0 <= sender < stages_n:
                        if (back, number) not in ends[sender]:
                            break
                        sent_ns = ends[sender][back, number] + self.transfer_ns
                        now_ns[stage] = max(now_ns[stage], sent_ns)
                    now_ns[stage] += (1 - _FORWARD if back else _FORWARD) * compute_ns[stage] / n
                    ends[stage][back, number] = now_ns[stage]
                    del order[0]
        return max(now_ns)
