"""The runs that are compared, each with its ranks and their sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.compared.operations import Key
from nsys_llm.facts.compared.rank import DeviceSums, RankSums
from nsys_llm.known.job import Job
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import positions, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import twice_medians
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_sets import COMPARED


@dataclass(frozen=True)
class KernelSide:
    """Kernels of one side by name; arrays of shape (names,).

    Attributes:
        launches_n: Launches that start in the window; `total_ns` is time inside of it.
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


@dataclass(frozen=True)
class RunSums:
    """One run, and sums over all of its ranks and devices.

    Attributes:
        job: What is known of its ranks together.
        ranks: Those with GPU work, in order of number.
        others: Reports without GPU work, and those that could not be read.
        gpus: Names of the GPUs that its reports tell of.
        launches_n: Kernels that start in the windows.
        whole_graphs_n: CUDA graphs that were traced as a whole, so that their kernels are not seen.
    """

    side: str
    job: Job
    ranks: tuple[tuple[Rank, RankSums], ...]
    others: tuple[Rank, ...]
    devices_n: int
    whole: DeviceSums
    moves: Mapping[int, tuple[int, ...]]
    gpus: frozenset[str]
    kernel_ns: int
    launches_n: int
    whole_graphs_n: int

    @classmethod
    def of(cls, side: str, job: Job) -> RunSums:
        """Add up the ranks of a side."""
        part, ranks = job.facts.compared, job.ranks
        own = tuple((rank, part.ranks[rank.key]) for rank in ranks if rank.key in part.ranks)
        devices = [device for _, sums in own for device in sums.devices]
        return cls(
            side=side,
            job=job,
            ranks=own,
            others=tuple(rank for rank in ranks if rank.key not in part.ranks),
            devices_n=len(devices),
            whole=DeviceSums.total(devices),
            moves=ByKey.merge([sums.moves for _, sums in own]).rows(),
            gpus=frozenset(gpu for rank, _ in own if rank.facts for gpu in rank.facts.gpus),
            kernel_ns=int(part.kernels["total_ns"].sum()),
            launches_n=int(part.kernels.counts.count.sum()),
            whole_graphs_n=sum(sums.whole_graphs_n for _, sums in own),
        )

    @property
    def keys(self) -> tuple[Key, ...]:
        """What its kernels launch, sorted."""
        return self.job.facts.compared.kernels.keys

    @property
    def device_window_ns(self) -> int:
        """Window of the mean device."""
        return self.whole.window_ns // max(self.devices_n, 1)

    def kernels(self, names: Sequence[str]) -> KernelSide:
        """Return the kernels of these names."""
        return self.kernels_by(names, lambda key: key[0])

    def kernels_by(self, groups: Sequence[Any], group_of: Callable[[Key], Any]) -> KernelSide:
        """Return kernels by groups of their keys; those of no group are left out."""
        kernels, groups_n = self.job.facts.compared.kernels, len(groups)
        code = positions(map(group_of, kernels.keys), groups)
        counts = kernels.counts.regrouped(code) if code.size else kernels.counts
        rows = counts.group >= 0
        counts = ValueCounts(counts.group[rows], counts.value[rows], counts.count[rows])
        known = code >= 0
        return kernel_side(counts, summed(code[known], kernels["total_ns"][known], groups_n))

    def summed_names(self, of: Callable[[RankSums], ByKey]) -> dict[str, tuple[int, ...]]:
        """Return calls and time by name over all ranks."""
        return ByKey.merge([of(rank) for _, rank in self.ranks]).rows()


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
        return tuple(sorted({key[0] for run in self.compared for key in run.keys}))

    @cached_property
    def common(self) -> frozenset[int]:
        """Numbers of the ranks that baseline and input have both: places, where none has one."""
        before, after = (
            {place if rank.number is None else rank.number for place, (rank, _) in enumerate(ranks)}
            for ranks in (run.ranks for run in self.compared)
        )
        return frozenset(before & after)


def kernel_side(counts: ValueCounts, total_ns: IntArray) -> KernelSide:
    """Return kernels by group, with their medians."""
    order = counts.order_statistics(total_ns.size)
    launches_n = counts.moments(total_ns.size).n
    return KernelSide(launches_n, total_ns, counts, twice_medians(order))


def runs_of(job: Job) -> Runs:
    """Return the runs of all ranks, of those without GPU work and of unreadable ones too."""
    repeated = {*job.sides} - set(COMPARED)
    sides = [*COMPARED, *sorted(repeated, key=lambda side: int(side.rpartition("-")[2]))]
    baseline, after, *repeats = (RunSums.of(side, job.sides[side]) for side in sides)
    return Runs(baseline, after, tuple(repeats))
