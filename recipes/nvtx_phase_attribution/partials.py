"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsys_llm.numeric.distributions import HistogramByName
from nsys_llm.trace.by_rank import merged_ranks
from nsys_llm.trace.identity import RankKey

from .per_rank.idle_sums import PhaseIdle
from .per_rank.ranges import RangeSums
from .per_rank.steps import StepRows
from .per_rank.sums_by_key import SumsByKey


@dataclass(frozen=True)
class RangeCounts:
    """The ranges that one rank has, whatever the filters leave; see the table `marks`."""

    push_pop_n: int
    start_end_n: int
    without_end_n: int
    empty_n: int


@dataclass(frozen=True)
class RankPhases:
    """One rank.

    Attributes:
        steps: None where there are none.
        missing: Operations in no range, and their time, by kind, before any filter.
    """

    phases: SumsByKey
    ranges: RangeSums
    steps: StepRows | None
    idle: PhaseIdle
    attribution: SumsByKey
    missing: Mapping[str, tuple[int, int]]
    marks: RangeCounts


@dataclass(frozen=True)
class PhasePartial:
    """Many ranks.

    Attributes:
        kernels: By phase, kind, name and demangled name; see the table `phase_kernels`.
        instances: How often a range of a phase had which GPU time, over all ranks.
        uncounted: Phases of which a rank has too many ranges to count.
        all_names: Demangled names of all kernels, also those that a filter leaves out: they tell
            the engine.
    """

    ranks: Mapping[RankKey, RankPhases] = field(default_factory=dict)
    kernels: SumsByKey = field(default_factory=SumsByKey)
    instances: HistogramByName = field(default_factory=HistogramByName)
    uncounted: frozenset[str] = frozenset()
    all_names: tuple[str, ...] = ()


def merged(parts: Sequence[PhasePartial]) -> PhasePartial:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    return PhasePartial(
        ranks=merged_ranks(part.ranks for part in parts),
        kernels=SumsByKey.merge([part.kernels for part in parts]),
        instances=HistogramByName.merge([part.instances for part in parts]),
        uncounted=frozenset(name for part in parts for name in part.uncounted),
        all_names=tuple(sorted({name for part in parts for name in part.all_names})),
    )
