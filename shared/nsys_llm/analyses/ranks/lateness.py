"""How late each GPU comes to matched collectives in each step, and who waits for it. Pure numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.collectives.chains import Chain, find_chains, transfers_between
from nsys_llm.analyses.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.analyses.collectives.job_steps import JobSteps, window_at
from nsys_llm.analyses.collectives.matched import MatchedCollectives, Sequenced
from nsys_llm.analyses.collectives.stages import Stages, find_stages
from nsys_llm.analyses.collectives.waits import sure_ns
from nsys_llm.analyses.ranks.chance import FloatArray, others_beyond
from nsys_llm.analyses.ranks.peers import Gpu
from nsys_llm.analyses.ranks.schedule import Line
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_in,
    merged_unions,
    subtract_intervals,
    union_intervals,
)

#: Waiting elsewhere excuses so many times its length: where collectives overlap other work, who
#: came late to one still has work to do that the others did meanwhile, and comes later to the next.
_CARRIED: Final = 3


@dataclass(frozen=True)
class _Met:
    """Collectives of one sequence; its members among the GPUs, arrays of shape (members, n).

    Attributes:
        gpus: Of each member; -1 for one that is not judged.
        arrival_ns: When each came, with a zero of its own for each collective.
        end_ns: When each left, its report's clock.
        least_ns: By how much one has to be later than another.
        inherited_ns: How long each had waited elsewhere since the collective before.
    """

    gpus: tuple[int, ...]
    arrival_ns: IntArray
    end_ns: IntArray
    least_ns: int
    inherited_ns: IntArray


class Arrivals:
    """Matched collectives of the GPUs that are judged."""

    def __init__(self, collectives: MatchedCollectives, gpus: Sequence[Gpu]) -> None:
        """Take the collectives whose members are known with confidence."""
        self._collectives = collectives
        devices = [(device.rank.key, device.device_id) for device in collectives.devices]
        gpu_of, device_of = (
            {key: at for at, key in enumerate(keys)}
            for keys in ([gpu.key for gpu in gpus], devices)
        )
        self._gpu_of = [gpu_of.get(key, -1) for key in devices]
        self._device_of = [device_of.get(gpu.key, -1) for gpu in gpus]
        self._gpus = gpus

    @cached_property
    def stages(self) -> Stages:
        """The pipelines; of positions in the collectives' devices."""
        return find_stages(self._collectives)

    def stage_of(self) -> list[int | None]:
        """Return the stage of each GPU."""
        return [self.stages.stage_of.get(device) for device in self._device_of]

    def apart(self) -> list[int | None]:
        """Return a number for each GPU, see `Stages.apart`."""
        return [None if at < 0 else self.stages.apart(at) for at in self._device_of]

    def lines(self) -> list[Line]:
        """Return the pipelines whose devices are all judged."""
        windows = [None if at < 0 else self._gpus[at].work for at in self._gpu_of]
        lines = []
        for chain in find_chains(self.stages, JobSteps(self._collectives, windows)):
            stages = tuple(tuple(self._gpu_of[device] for device in some) for some in chain.stages)
            if min(map(min, stages)) >= 0:
                steps_n = self._gpus[stages[0][0]].steps_n
                transfer_ns = steps_n * self._usual_transfer_ns(chain)
                line = Line(chain.number, stages, None, chain.messages_n, chain.kind, transfer_ns)
                lines.append(line)
        return lines

    def _usual_transfer_ns(self, chain: Chain) -> float:
        pairs = transfers_between(self._collectives.sequences, *chain.stages[:2])
        transfer_ns = [item.waits.transfer_ns for some in pairs.values() for item in some]
        return float(np.median(np.concatenate(transfer_ns)))

    def joined(self) -> list[int]:
        """Return a number for each GPU that those share which have collectives together."""
        number = list(range(len(self._gpus)))
        for sequence in self._collectives.sequences:
            members = [self._gpu_of[owner] for owner in sequence.owners]
            old = {number[gpu] for gpu in members if gpu >= 0}
            if len(sequence) and len(old) > 1:
                number = [min(old) if item in old else item for item in number]
        return number

    @cached_property
    def _met(self) -> list[_Met]:
        return [
            self._of(sequence) for sequence in self._sure if id(sequence) not in self.stages.staged
        ]

    @cached_property
    def _sure(self) -> list[Sequenced]:
        sequences = self._collectives.sequences
        return [sequence for sequence in sequences if sequence.confidence != LOW_CONFIDENCE]

    def _of(self, sequence: Sequenced) -> _Met:
        met = sequence.waits.met
        start_ns, end_ns, ahead_ns = (
            np.stack(some)[:, met]
            for some in (sequence.start_ns, sequence.end_ns, sequence.ahead_ns)
        )
        arrival_ns = start_ns - end_ns if sequence.by_length else start_ns
        least_ns = int(sure_ns(sequence.residual_ns))
        gpus = tuple(self._gpu_of[owner] for owner in sequence.owners)
        left_ns = end_ns + ahead_ns
        inherited_ns = self._inherited_ns(sequence, start_ns + ahead_ns, left_ns)
        return _Met(gpus, arrival_ns, left_ns, least_ns, inherited_ns)

    @cached_property
    def _unknown_ns(self) -> list[IntArray]:
        """Of each device, time in communication of which nobody knows for whom it waited there."""
        known: list[list[IntArray]] = [[] for _ in self._gpu_of]
        for sequence in self._sure:
            for place, owner in enumerate(sequence.owners):
                left_ns = sequence.own_end_ns(place)
                length_ns = sequence.end_ns[place] - sequence.start_ns[place]
                known[owner].append(union_intervals(left_ns - length_ns, left_ns))
        return [
            subtract_intervals(
                merged_unions([union_intervals(it.start_ns, it.end_ns) for it in device.lanes]),
                merged_unions(some),
            )
            for device, some in zip(self._collectives.devices, known, strict=True)
        ]

    @cached_property
    def _waited_ns(self) -> list[list[IntArray]]:
        """Of each sequence, time in which each member waited for its last one, its own clock."""
        waited = []
        for sequence in self._sure:
            members = []
            for place in range(len(sequence.owners)):
                # It is the end that the waiting puts off, and what comes after.
                late_ns = sequence.waits.last_start_ns - sequence.start_ns[place]
                left_ns = sequence.own_end_ns(place)
                late_ns = np.where(sequence.waits.met, late_ns, 0)
                members.append(union_intervals(left_ns - late_ns, left_ns))
            waited.append(members)
        return waited

    def _inherited_ns(self, sequence: Sequenced, begin_ns: IntArray, end_ns: IntArray) -> IntArray:
        """Return how long each member waited elsewhere since the collective before, or may have.

        Args:
            sequence: Of the members.
            begin_ns: When each comes, its own clock; shape (members, n).
            end_ns: Likewise, when it leaves.
        """
        # Before the first one nothing counts.
        left_ns = np.concatenate((begin_ns[:, :1], end_ns[:, :-1]), axis=1)
        windows_ns = np.stack((np.minimum(left_ns, begin_ns), begin_ns), axis=2)
        spans = [[self._unknown_ns[owner]] for owner in sequence.owners]
        place_of = {owner: place for place, owner in enumerate(sequence.owners)}
        for item, waited_ns in zip(self._sure, self._waited_ns, strict=True):
            if place_of.keys() <= set(item.owners):
                continue
            for owner, some in zip(item.owners, waited_ns, strict=True):
                if owner in place_of:
                    spans[place_of[owner]].append(some)
        return np.stack(
            [covered_in(*pair) for pair in zip(windows_ns, map(merged_unions, spans), strict=True)]
        )

    def late_ns(self, group: Sequence[int], steps: IntArray) -> FloatArray | None:
        """Return how much later than the median of the others each came, summed over each step.

        Who waited for another rank elsewhere and so came later here is not late for that.

        Args:
            group: Peers, positions of GPUs.
            steps: Rows of their windows that are compared.

        Returns:
            Shape (peers, steps); None where they meet in no collective.
        """
        row_of = {gpu: row for row, gpu in enumerate(group)}
        by_members: dict[tuple[int, ...], FloatArray] = {}
        any_met = False
        for met, places in self._of_group(group):
            arrival_ns = met.arrival_ns[places].astype(np.float64)
            came, ready = (
                others_beyond(some)
                for some in (arrival_ns, arrival_ns - _CARRIED * met.inherited_ns[places])
            )
            # Waiting that computation hid made nobody late: it blames no other either.
            beyond = np.where(np.abs(came) <= np.abs(ready), came, ready) * (came * ready > 0)
            beyond[np.abs(beyond) <= met.least_ns] = 0.0
            members = tuple(met.gpus[place] for place in places)
            late = by_members.setdefault(members, np.zeros((len(members), steps.size)))
            for row, (member, place) in enumerate(zip(members, places, strict=True)):
                step = self._steps(member, met.end_ns[place], steps)
                known = step >= 0
                late[row] += np.bincount(step[known], beyond[row][known], steps.size)
                any_met |= bool(known.any())
        total = np.zeros((len(group), steps.size))
        for members, late in by_members.items():
            # Earlier than one that is late is not earlier than those who never meet it.
            total[[row_of[member] for member in members]] += np.maximum(late, 0)
        return total if any_met else None

    def waiting(
        self, culprits: Sequence[int], steps: IntArray
    ) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """Return in which steps one of some GPUs came last, and how long the others waited for it.

        Returns:
            Shape (steps,); and shape (gpus, steps), waiting in the collectives to which it came
            last, each by its own clock.
        """
        waits = np.zeros((len(self._gpus), steps.size), dtype=np.int64)
        for met in self._met:
            late = [place for place, gpu in enumerate(met.gpus) if gpu in culprits]
            others = [place for place in range(len(met.gpus)) if place not in late]
            if not late or not others:
                continue
            last_ns = met.arrival_ns[late].max(axis=0)
            is_last = last_ns - met.arrival_ns[others].max(axis=0) > met.least_ns
            step = self._steps(met.gpus[late[0]], met.end_ns[late[0]], steps)
            chosen = np.flatnonzero(is_last & (step >= 0))
            for at in others:
                if met.gpus[at] >= 0:
                    wait_ns = (last_ns - met.arrival_ns[at])[chosen]
                    np.add.at(waits[met.gpus[at]], step[chosen], wait_ns)
        return np.asarray(waits.any(axis=0)), waits

    def _of_group(self, group: Sequence[int]) -> Iterator[tuple[_Met, list[int]]]:
        """Yield collectives that at least two peers have, and the places of these."""
        chosen = set(group)
        for met in self._met:
            places = [place for place, gpu in enumerate(met.gpus) if gpu in chosen]
            if len(places) > 1:
                yield met, places

    def _steps(self, gpu: int, end_ns: IntArray, steps: IntArray) -> IntArray:
        """Return in which of the steps a GPU left each collective; -1 for none."""
        window_ns = self._gpus[gpu].work.window_ns
        place = np.full(len(window_ns) + 1, -1, dtype=np.int64)
        place[steps] = np.arange(steps.size)
        return place[window_at(window_ns, end_ns)]
