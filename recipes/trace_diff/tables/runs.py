"""The runs that are compared, each with its ranks and their sums, and its collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.compared.operations import Key
from nsys_llm.facts.compared.rank import DeviceSums, RankSums
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced, communicator
from nsys_llm.job.collectives.profiler import delays_ns, profiler_waits_ns, without_profiler
from nsys_llm.job.collectives.waits import member_waits
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import positions, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import twice_medians
from nsys_llm.reduced.job import Job
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_sets import COMPARED

#: Stands for all communicators, and for all operations.
ALL: Final = "all"


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
        ranks: Those with GPU work, in order of number.
        others: Reports without GPU work, and those that could not be read.
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
            moves=part.moves.rows(),
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


@dataclass(frozen=True)
class CollectiveSums:
    """Matched collectives that there is an instant at which all ranks are in.

    Attributes:
        collectives_n: All of them, those without such an instant too.
        total_ns: In kernels of all ranks: waiting, transfer, and until the last rank has left.
        profiler_ns: Part of wait_ns that was the profiler's, see
            `nsys_llm.job.collectives.profiler`.
        caused_ns: Waiting that each rank caused, by its number.
    """

    collectives_n: int = 0
    total_ns: int = 0
    wait_ns: int = 0
    transfer_ns: int = 0
    profiler_ns: int = 0
    caused_ns: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: CollectiveSums) -> CollectiveSums:
        names = [item.name for item in fields(self)]
        return CollectiveSums(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def late(self) -> int | None:
        """The rank that caused most waiting; None where nobody waited."""
        if not any(self.caused_ns.values()):
            return None
        return min(self.caused_ns, key=lambda number: (-self.caused_ns[number], number))


def sum_collectives(run: RunSums) -> dict[tuple[str, str], CollectiveSums]:
    """Return sums by (communicator, operation); (ALL, ALL) where there is any collective.

    Those that were matched with low confidence add nothing.
    """
    collectives = run.job.collectives
    delays = delays_ns(collectives, run.job.facts.held)
    by_key: dict[tuple[str, str], CollectiveSums] = {}
    for sequence, late_ns in zip(collectives.sequences, delays, strict=True):
        part = _summed(sequence, collectives, late_ns)
        of_sequence = communicator(collectives.devices, sequence.owners), sequence.operation
        for key in (of_sequence, (ALL, ALL)):
            by_key[key] = by_key.get(key, CollectiveSums()) + part
    return by_key


def _summed(
    sequence: Sequenced, collectives: MatchedCollectives, late_ns: Sequence[IntArray]
) -> CollectiveSums:
    waits, met = sequence.waits, sequence.waits.met
    if sequence.confidence == LOW_CONFIDENCE:
        return CollectiveSums()
    net, _ = without_profiler(waits, sequence.start_ns, sequence.end_ns, late_ns)
    residual = np.full(len(sequence), sequence.residual_ns, dtype=np.int64)
    caused: Counter[int] = Counter()
    members = member_waits(waits, sequence.start_ns, residual)
    for owner, member in zip(sequence.owners, members, strict=True):
        number = collectives.devices[owner].rank.number
        if number is not None:
            caused[number] += member.caused_ns
    return CollectiveSums(
        len(sequence),
        int(waits.total_ns[met].sum()),
        int(waits.wait_ns[met].sum()),
        int(waits.transfer_ns[met].sum()) * len(sequence.owners),
        int(profiler_waits_ns(waits, net).sum()),
        caused_ns=caused,
    )
