"""How late each GPU comes to matched collectives in each step, and who waits for it. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nsys_llm.job.collectives.chains import Line, find_chains, transfers_between
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced
from nsys_llm.job.collectives.stages import are_unplaced, find_stages
from nsys_llm.job.collectives.waits import sure_ns
from nsys_llm.job.communication_split import waiting_and_transfer
from nsys_llm.job.job_steps import JobSteps, ahead_of_first, window_at
from nsys_llm.job.ranks.chance import FloatArray, others_beyond
from nsys_llm.job.ranks.peers import Gpu
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_in,
    merged_unions,
    subtract_intervals,
    union_intervals,
)


@dataclass(frozen=True)
class _Met:
    """Collectives of one sequence; its members among the GPUs, arrays of shape (members, n).

    Attributes:
        gpus: Of each member; -1 for one that is not judged.
        arrival_ns: When each came, with a zero of its own for each collective.
        end_ns: When each left, its report's clock.
        least_ns: By how much one has to be later than another.
    """

    gpus: tuple[int, ...]
    arrival_ns: IntArray
    end_ns: IntArray
    least_ns: int


class Arrivals:
    """Matched collectives of the GPUs that are judged.

    Attributes:
        stages: The pipelines; of positions in the collectives' devices.
        device_of: That position of each GPU; -1 for one without.
        unplaced: Whether they send and receive and nobody knows with whom.
    """

    def __init__(self, collectives: MatchedCollectives, gpus: Sequence[Gpu]) -> None:
        self._collectives, self._gpus = collectives, gpus
        gpu_of = {gpu.key: at for at, gpu in enumerate(gpus)}
        self._gpu_of = [gpu_of.get(key, -1) for key in collectives.owners]
        self.device_of = [collectives.owners.get(gpu.key, -1) for gpu in gpus]
        self.stages = find_stages(collectives)
        self.unplaced = are_unplaced(collectives, self.stages)
        self._met = [
            self._of(sequence)
            for sequence in collectives.sequences
            if sequence.confidence != LOW_CONFIDENCE and id(sequence) not in self.stages.staged
        ]

    def _of(self, sequence: Sequenced) -> _Met:
        met = sequence.waits.met
        start_ns, end_ns = (np.stack(some)[:, met] for some in (sequence.start_ns, sequence.end_ns))
        return _Met(
            gpus=tuple(self._gpu_of[owner] for owner in sequence.owners),
            arrival_ns=start_ns - end_ns if sequence.by_length else start_ns,
            end_ns=end_ns + np.stack(sequence.ahead_ns)[:, met],
            least_ns=int(sure_ns(sequence.residual_ns)),
        )

    def lines(self) -> list[Line]:
        """Return the pipelines whose devices are all judged."""
        windows = [None if at < 0 else self._gpus[at].work for at in self._gpu_of]
        lines = []
        for chain in find_chains(self.stages, JobSteps(self._collectives, windows)):
            stages = tuple(tuple(self._gpu_of[device] for device in some) for some in chain.stages)
            if min(map(min, stages)) < 0:
                continue
            pairs = transfers_between(self._collectives.sequences, *chain.stages[:2])
            transfers = [item.waits.transfer_ns for some in pairs.values() for item in some]
            usual_ns = float(np.median(np.concatenate(transfers)))
            transfer_ns = self._gpus[stages[0][0]].steps_n * usual_ns
            lines.append(Line(stages, chain.messages_n, chain.kind, transfer_ns))
        return lines

    def joined(self) -> list[int]:
        """Return a number for each GPU that those share which have collectives together."""
        links: dict[tuple[int, int], int] = {}
        for sequence in self._collectives.sequences:
            members = [self._gpu_of[owner] for owner in sequence.owners if len(sequence)]
            links |= dict.fromkeys(pairwise(gpu for gpu in members if gpu >= 0), 0)
        firsts = ahead_of_first(links, range(len(self._gpus)))
        return [firsts[at][0] for at in range(len(self._gpus))]

    def late_ns(self, group: Sequence[int], steps: IntArray) -> FloatArray | None:
        """Return how much later than the median of the others each came, summed over each step.

        Who waited for another rank elsewhere and so came later is not late for that: one who is
        late has more to do in the step than the others, other than to wait.

        Args:
            group: Peers, positions of GPUs.
            steps: Rows of their windows that are compared.

        Returns:
            Shape (peers, steps); None where they meet in no collective.
        """
        row_of = {gpu: row for row, gpu in enumerate(group)}
        by_rows: dict[tuple[int, ...], FloatArray] = {}
        for met in self._met:
            places = [place for place, gpu in enumerate(met.gpus) if gpu in row_of]
            if len(places) < 2:
                continue
            step = [self._steps(met.gpus[place], met.end_ns[place], steps) for place in places]
            if not any((some < steps.size).any() for some in step):
                continue
            beyond = others_beyond(met.arrival_ns[places])
            beyond[np.abs(beyond) <= met.least_ns] = 0.0
            rows = tuple(row_of[met.gpus[place]] for place in places)
            sums = [
                np.bincount(*some, steps.size + 1)[:-1] for some in zip(step, beyond, strict=True)
            ]
            by_rows[rows] = np.add(by_rows.get(rows, 0.0), sums)
        if not by_rows:
            return None
        total = np.zeros((len(group), steps.size))
        for rows, late in by_rows.items():
            # Earlier than one that is late is not earlier than those who never meet it.
            total[list(rows)] += np.maximum(late, 0)
        busy_ns = np.array([self._busy_ns(gpu, steps) for gpu in group])
        return np.minimum(total, np.maximum(others_beyond(busy_ns), 0))

    def _busy_ns(self, gpu: int, steps: IntArray) -> IntArray:
        """Return for how long a GPU does not wait for others in each step, nor may.

        In exposed communication that is no transfer it waits.
        """
        window_ns = self._gpus[gpu].work.window_ns[steps]
        device = self.device_of[gpu]
        waiting, hidden = np.empty((0, 2), dtype=np.int64), self._gpus[gpu].wall.hidden
        if device >= 0:
            lanes = self._collectives.devices[device].lanes
            waiting = merged_unions([union_intervals(it.start_ns, it.end_ns) for it in lanes])
            _, transfer = waiting_and_transfer(
                self._collectives.sequences, device, self.stages.staged
            )
            waiting = subtract_intervals(waiting, transfer)
        if hidden is not None:
            waiting = subtract_intervals(waiting, hidden)
        return np.diff(window_ns, axis=1)[:, 0] - covered_in(window_ns, waiting)

    def are_told(self, culprits: Sequence[int]) -> bool:
        """Tell whether it is known who waits for some GPUs.

        It is where half of their collectives are matched, so closely that they tell who came last,
        and half of the time that the others communicate; or those are transfers of a pipeline.
        """
        every, known = np.zeros((2, 2, len(self._gpus)), dtype=np.int64)
        for gpu, device in enumerate(self.device_of):
            for lane in () if device < 0 else self._collectives.devices[device].lanes:
                every[:, gpu] += lane.start_ns.size, (lane.end_ns - lane.start_ns).sum()
        for it in self._collectives.sequences:
            is_sure = it.confidence != LOW_CONFIDENCE
            for owner, *times in zip(it.owners, it.start_ns, it.end_ns, strict=True):
                n, time_ns = len(it), (times[1] - times[0]).sum()
                is_close = is_sure and 2 * n * sure_ns(it.residual_ns) <= time_ns
                if self._gpu_of[owner] >= 0 and (is_close or id(it) in self.stages.staged):
                    known[:, self._gpu_of[owner]] += n, time_ns
        of_culprits = 2 * known[0, culprits].sum() >= every[0, culprits].sum() > 0
        others = np.delete(np.stack((known[1], every[1])), culprits, axis=1).sum(axis=1)
        return bool(of_culprits and 2 * others[0] >= others[1])

    def waits_ns(self, culprits: Sequence[int], steps: IntArray) -> IntArray:
        """Return how long each GPU waited in collectives to which one of some came last.

        Returns:
            Shape (gpus, steps), each by its own clock.
        """
        waits = np.zeros((len(self._gpus), steps.size + 1), dtype=np.int64)
        for met in self._met:
            late = [place for place, gpu in enumerate(met.gpus) if gpu in culprits]
            others = [place for place in range(len(met.gpus)) if place not in late]
            if not late or not others:
                continue
            last_ns = met.arrival_ns[late].max(axis=0)
            is_last = last_ns - met.arrival_ns[others].max(axis=0) > met.least_ns
            step = self._steps(met.gpus[late[0]], met.end_ns[late[0]], steps)[is_last]
            for at in others:
                if met.gpus[at] >= 0:
                    np.add.at(waits[met.gpus[at]], step, (last_ns - met.arrival_ns[at])[is_last])
        return waits[:, :-1]

    def _steps(self, gpu: int, end_ns: IntArray, steps: IntArray) -> IntArray:
        """Return in which of the steps a GPU left each collective; their number for none."""
        window_ns = self._gpus[gpu].work.window_ns
        place = np.full(len(window_ns) + 1, steps.size)
        place[steps] = np.arange(steps.size)
        return place[window_at(window_ns, end_ns)]
