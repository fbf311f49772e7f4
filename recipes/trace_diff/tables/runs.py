"""The runs that are compared, each with its ranks and their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.steps.of_job import JobSteps, job_steps
from nsys_llm.numeric.distributions import PERCENTS, OrderStatistics, ValueCounts
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import twice_medians
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_sets import COMPARED

from ..partials import DeviceSums, DiffPartial, NamedSums, RankSums, SidePart, added
from ..per_rank.operations import Key, MoveSums
from ..per_rank.steps import StepCount


@dataclass(frozen=True)
class KernelSide:
    """Kernels of one side by name; arrays of shape (names,).

    Attributes:
        launches_n: Launches that start in the window.
        total_ns: Time inside the window.
        counts: How often which duration, by name.
        twice_p50: Twice the median; 0 without a launch.
    """

    launches_n: IntArray
    total_ns: IntArray
    counts: ValueCounts
    twice_p50: IntArray

    @property
    def p50_ns(self) -> npt.NDArray[np.float64]:
        """Median; NaN without a launch."""
        return np.where(self.launches_n > 0, self.twice_p50 / 2.0, np.nan)

    @property
    def mean_ns(self) -> npt.NDArray[np.float64]:
        """Mean; NaN without a launch."""
        return np.where(self.launches_n > 0, self.total_ns / np.maximum(self.launches_n, 1), np.nan)


@dataclass(frozen=True)
class RunSums:
    """One run, and sums over all of its ranks and devices.

    Attributes:
        part: What its ranks were reduced to together.
        ranks: Those with GPU work, in order of number.
        others: Reports without GPU work, and those that could not be read.
        devices_n: Of all ranks.
        whole: All of them together.
        gpus: Names of the GPUs that its reports tell of.
        gpu_ns: Time in kernels, copies, fills and whole graphs.
        outside_ns: The part of it that no step launched; None where steps are no ranges.
        launches_n: Kernels that start in the windows.
        whole_graphs_n: CUDA graphs that were traced as a whole, so that their kernels are not seen.
        steps_n: Steps of all ranks; None where one of them finds none, or another kind.
        step: What its steps are; None where they are not counted.
        step_note: Why they are not.
        tokens_n: Tokens of all steps, by the names of steps; None where one tells none.
    """

    side: str
    part: SidePart
    ranks: tuple[tuple[Rank, RankSums], ...]
    others: tuple[Rank, ...]
    devices_n: int
    whole: DeviceSums
    moves: MoveSums
    gpus: frozenset[str]
    kernel_ns: int
    gpu_ns: int
    outside_ns: int | None
    launches_n: int
    whole_graphs_n: int
    steps_n: int | None
    step: str | None
    step_note: str | None
    tokens_n: int | None

    @classmethod
    def of(cls, side: str, part: SidePart, ranks: Sequence[Rank]) -> RunSums:
        """Add up the ranks of a side."""
        sums = [part.ranks[rank.key] for rank in ranks if rank.key in part.ranks]
        counts = {rank.key: part.ranks[rank.key].steps for rank in ranks if rank.key in part.ranks}
        job = job_steps({key: count.kind for key, count in counts.items()})
        steps_n = sum(count.steps_n or 0 for count in counts.values())
        are_counted = job is not None and not job.others and steps_n > 0
        devices = [device for of_rank in sums for device in of_rank.devices]
        facts = (rank.facts for rank in ranks if rank.key in part.ranks)
        return cls(
            side=side,
            part=part,
            ranks=tuple((rank, part.ranks[rank.key]) for rank in ranks if rank.key in part.ranks),
            others=tuple(rank for rank in ranks if rank.key not in part.ranks),
            devices_n=len(devices),
            whole=DeviceSums.total(devices),
            moves=added(item for of_rank in sums for item in of_rank.moves.items()),
            gpus=frozenset(gpu for fact in facts if fact is not None for gpu in fact.gpus),
            kernel_ns=int(part.total_ns.sum()),
            gpu_ns=sum(ns for of_rank in sums for _, ns in of_rank.phases.values()),
            outside_ns=_known_sum(count.outside_ns for count in counts.values()),
            launches_n=int(part.counts.count.sum()),
            whole_graphs_n=sum(of_rank.whole_graphs_n for of_rank in sums),
            steps_n=steps_n if are_counted else None,
            step=job.name if job is not None and are_counted else None,
            step_note=_step_note(job, list(counts.values()), are_counted=are_counted),
            tokens_n=_known_sum(count.tokens_n for count in counts.values()) or None,
        )

    @property
    def device_window_ns(self) -> int:
        """Window of the mean device."""
        return self.whole.window_ns // max(self.devices_n, 1)

    def phase_percentile(self, phase: str, percent: int) -> Fraction | None:
        """Return one of `PERCENTS` of what a phase takes in the steps that have it, exact."""
        steps = self.part.phase_steps
        if phase not in steps.names:
            return None
        group, place = steps.names.index(phase), PERCENTS.index(percent)
        if not (steps.counts.group == group).any():
            return None
        order = self._phase_order
        low, high = int(order.low[group, place]), int(order.high[group, place])
        return low + Fraction((high - low) * int(order.hundredths[group, place]), 100)

    @cached_property
    def _phase_order(self) -> OrderStatistics:
        steps = self.part.phase_steps
        return steps.counts.order_statistics(len(steps.names))

    def kernels(self, names: Sequence[str]) -> KernelSide:
        """Return the kernels of these names."""
        return self.kernels_by(names, lambda key: key[0])

    def kernels_by(self, groups: Sequence[Any], group_of: Callable[[Key], Any]) -> KernelSide:
        """Return kernels by groups of their keys; those of no group are left out."""
        place, groups_n = {group: index for index, group in enumerate(groups)}, len(groups)
        code = np.array([place.get(group_of(key), groups_n) for key in self.part.keys], np.int64)
        counts = self.part.counts.regrouped(code) if code.size else ValueCounts.empty()
        inside = counts.group < groups_n
        counts = ValueCounts(counts.group[inside], counts.value[inside], counts.count[inside])
        return kernel_side(counts, summed(code, self.part.total_ns, groups_n + 1)[:groups_n])

    def summed_names(self, of: Callable[[RankSums], NamedSums]) -> NamedSums:
        """Return calls and time by name over all ranks."""
        return added(item for _, rank in self.ranks for item in of(rank).items())


@dataclass(frozen=True)
class Runs:
    """Baseline and input, and further runs of the baseline."""

    baseline: RunSums
    input: RunSums
    repeats: tuple[RunSums, ...]

    @property
    def compared(self) -> tuple[RunSums, RunSums]:
        """The two."""
        return self.baseline, self.input

    @property
    def all(self) -> tuple[RunSums, ...]:
        """Every run."""
        return (self.baseline, self.input, *self.repeats)

    @cached_property
    def noise(self) -> tuple[RunSums, ...]:
        """The further runs that tell noise: whole, not empty, with as many ranks and like GPUs."""
        return tuple(
            run
            for run in self.repeats
            if run.launches_n
            and len(run.ranks) == len(self.baseline.ranks)
            and all(rank.facts is not None for rank in run.others)
            and run.gpus == self.baseline.gpus
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Kernel names of baseline and input, sorted."""
        return tuple(sorted({key[0] for run in self.compared for key in run.part.keys}))

    @cached_property
    def common(self) -> frozenset[int]:
        """Numbers of the ranks that baseline and input have both: places, where none has one."""
        before, after = (
            {place if rank.number is None else rank.number for place, (rank, _) in enumerate(ranks)}
            for ranks in (run.ranks for run in self.compared)
        )
        return frozenset(before & after)

    @property
    def steps(self) -> tuple[int, int] | None:
        """Steps of the baseline and of the input; None unless both count the same thing."""
        before, after = self.compared
        if before.steps_n is None or after.steps_n is None or before.step != after.step:
            return None
        return before.steps_n, after.steps_n

    @cached_property
    def pairs(self) -> dict[int, tuple[tuple[Rank, RankSums], tuple[Rank, RankSums]]]:
        """Ranks that baseline and input have both, by number."""
        before, after = (
            {rank.number: (rank, sums) for rank, sums in run.ranks} for run in self.compared
        )
        numbers = sorted(n for n in before.keys() & after.keys() if n is not None)
        return {number: (before[number], after[number]) for number in numbers}


def kernel_side(counts: ValueCounts, total_ns: IntArray) -> KernelSide:
    """Return kernels by group, with their medians."""
    order = counts.order_statistics(total_ns.size)
    launches_n = counts.moments(total_ns.size).n
    return KernelSide(launches_n, total_ns, counts, twice_medians(order))


def runs_of(partial: DiffPartial, ranks: Sequence[Rank]) -> Runs:
    """Return the runs of all ranks, of those without GPU work and of unreadable ones too."""
    sides = [*COMPARED, *sorted({rank.key.side for rank in ranks} - set(COMPARED), key=_number)]
    baseline, after, *repeats = (
        RunSums.of(
            side,
            partial.sides.get(side, SidePart()),
            [rank for rank in ranks if rank.key.side == side],
        )
        for side in sides
    )
    return Runs(baseline, after, tuple(repeats))


def _number(side: str) -> int:
    return int(side.rpartition("-")[2])


def _known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum over all ranks; None where one does not know."""
    every = list(values)
    known = [n for n in every if n is not None]
    return sum(known) if len(known) == len(every) else None


def _step_note(
    job: JobSteps[RankKey] | None, counts: Sequence[StepCount], *, are_counted: bool
) -> str | None:
    """Return why steps are not counted, or not on all ranks."""
    notes = dict.fromkeys(count.note for count in counts if count.note)
    if job is not None:
        others = dict.fromkeys(name for name in job.others.values() if name is not None)
        notes |= dict.fromkeys(
            f"a step is '{job.name}' on most ranks and '{name}' on others" for name in others
        )
    return "; ".join(notes) or (None if are_counted else "no step is in the window")
