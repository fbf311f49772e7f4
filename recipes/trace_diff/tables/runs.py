"""The runs that are compared, each with its ranks and their sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from nsys_llm.trace.rank_sets import BASELINE, COMPARED, INPUT

from ..partials import DeviceSums, DiffPartial, NamedSums, RankSums, SidePart, added, idle_by_cause
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
class Run:
    """One side.

    Attributes:
        side: Its name.
        part: What its ranks were reduced to together.
        ranks: Those with GPU work, in order of number.
        others: Reports without GPU work, and those that could not be read.
    """

    side: str
    part: SidePart
    ranks: tuple[tuple[Rank, RankSums], ...]
    others: tuple[Rank, ...]

    @cached_property
    def devices(self) -> tuple[DeviceSums, ...]:
        """All devices of all ranks."""
        return tuple(device for _, sums in self.ranks for device in sums.devices)

    def total(self, of: Callable[[DeviceSums], int]) -> int:
        """Return the sum of something over all devices."""
        return sum(map(of, self.devices))

    @cached_property
    def window_ns(self) -> int:
        """Windows of all devices together."""
        return self.total(lambda device: device.window_ns)

    @property
    def device_window_ns(self) -> int:
        """Window of the mean device."""
        return self.window_ns // max(len(self.devices), 1)

    @cached_property
    def gpus(self) -> frozenset[str]:
        """Names of the GPUs that its reports tell of."""
        facts = (rank.facts for rank, _ in self.ranks)
        return frozenset(gpu for fact in facts if fact is not None for gpu in fact.gpus)

    @cached_property
    def gpu_ns(self) -> int:
        """Time in kernels, copies, fills and whole graphs."""
        return sum(ns for _, ns in self.summed_names(lambda sums: sums.phases).values())

    @cached_property
    def outside_ns(self) -> int | None:
        """The part of that which no step launched; None where steps are no ranges."""
        return self._known_sum(lambda steps: steps.outside_ns)

    @property
    def outside_pct(self) -> float | None:
        """The same in percent."""
        if self.outside_ns is None or not self.gpu_ns:
            return None
        return 100.0 * self.outside_ns / self.gpu_ns

    def _known_sum(self, of: Callable[[StepCount], int | None]) -> int | None:
        """Return the sum over all ranks; None where one does not know."""
        known = [n for n in (of(sums.steps) for _, sums in self.ranks) if n is not None]
        return sum(known) if len(known) == len(self.ranks) else None

    @cached_property
    def kernel_ns(self) -> int:
        """Time in kernels."""
        return int(self.part.total_ns.sum())

    @cached_property
    def launches_n(self) -> int:
        """Kernels that start in the windows."""
        return int(self.part.counts.count.sum())

    @cached_property
    def whole_graphs_n(self) -> int:
        """CUDA graphs that were traced as a whole, so that their kernels are not seen."""
        return sum(sums.whole_graphs_n for _, sums in self.ranks)

    @cached_property
    def _job(self) -> JobSteps[RankKey] | None:
        """What most ranks call a step."""
        return job_steps({rank.key: sums.steps.kind for rank, sums in self.ranks})

    @cached_property
    def steps_n(self) -> int | None:
        """Steps of all ranks together; None where one of them finds none, or another kind."""
        if self._job is None or self._job.others:
            return None
        return sum(sums.steps.steps_n or 0 for _, sums in self.ranks) or None

    @property
    def step(self) -> str | None:
        """What its steps are; None where they are not counted."""
        return None if self._job is None or self.steps_n is None else self._job.name

    @property
    def step_note(self) -> str | None:
        """Why steps are not counted."""
        notes = dict.fromkeys(sums.steps.note for _, sums in self.ranks if sums.steps.note)
        if self._job is not None:
            others = dict.fromkeys(name for name in self._job.others.values() if name is not None)
            notes |= dict.fromkeys(
                f"a step is '{self._job.name}' on most ranks and '{name}' on others"
                for name in others
            )
        return "; ".join(notes) or ("no step is in the window" if self.steps_n is None else None)

    @cached_property
    def tokens_n(self) -> int | None:
        """Tokens of all steps of all ranks, by the names of steps; None where one tells none."""
        return self._known_sum(lambda steps: steps.tokens_n) or None

    @cached_property
    def idle_ns(self) -> IntArray | None:
        """Idle time by cause, all devices; None where that of one of them is not known."""
        return idle_by_cause(self.devices)

    @cached_property
    def moves(self) -> MoveSums:
        """Copies and fills of all ranks by kind."""
        return added(item for _, rank in self.ranks for item in rank.moves.items())

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

    baseline: Run
    input: Run
    repeats: tuple[Run, ...]

    @property
    def compared(self) -> tuple[Run, Run]:
        """The two."""
        return self.baseline, self.input

    @property
    def all(self) -> tuple[Run, ...]:
        """Every run."""
        return (self.baseline, self.input, *self.repeats)

    @cached_property
    def noise(self) -> tuple[Run, ...]:
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
    by_side: Mapping[str, Run] = {side: _run(side, partial, ranks) for side in sides}
    repeats = tuple(run for side, run in by_side.items() if side not in COMPARED)
    return Runs(by_side[BASELINE], by_side[INPUT], repeats)


def _number(side: str) -> int:
    return int(side.rpartition("-")[2])


def _run(side: str, partial: DiffPartial, ranks: Sequence[Rank]) -> Run:
    part = partial.sides.get(side, SidePart())
    side_ranks = [rank for rank in ranks if rank.key.side == side]
    return Run(
        side,
        part,
        tuple((rank, part.ranks[rank.key]) for rank in side_ranks if rank.key in part.ranks),
        tuple(rank for rank in side_ranks if rank.key not in part.ranks),
    )
