"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsys_llm.trace.by_rank import merged_ranks
from nsys_llm.trace.identity import RankKey

from .per_rank.ranges import RangeSums
from .per_rank.steps import StepRows
from .per_rank.sums_by_key import SumsByKey


@dataclass(frozen=True)
class RangeCounts:
    """What marks the work of one rank, whatever the filters leave; see the table `marks`."""

    push_pop_n: int
    start_end_n: int
    without_end_n: int
    empty_n: int
    graph_kernels_n: int
    annotated_n: int
    annotation_key: str | None


@dataclass(frozen=True)
class RankPhases:
    """One rank.

    Attributes:
        steps: None where there are none.
        idle: By phase, see the table `phase_idle`.
        missing: Operations in no range, and their time, by kind, before any filter.
        parts: Kernels by part of the model, see `per_rank/model_parts.py`.
    """

    phases: SumsByKey
    ranges: RangeSums
    steps: StepRows | None
    idle: SumsByKey
    attribution: SumsByKey
    missing: Mapping[str, tuple[int, int]]
    marks: RangeCounts
    parts: SumsByKey


@dataclass(frozen=True)
class PhasePartial:
    """Many ranks.

    Attributes:
        kernels: By phase, kind, name and demangled name; see the table `phase_kernels`.
        all_names: Demangled names of all kernels, also those that a filter leaves out: they tell
            the engine.
    """

    ranks: Mapping[RankKey, RankPhases] = field(default_factory=dict)
    kernels: SumsByKey = field(default_factory=SumsByKey)
    all_names: tuple[str, ...] = ()


def merged(parts: Sequence[PhasePartial]) -> PhasePartial:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    return PhasePartial(
        ranks=merged_ranks(part.ranks for part in parts),
        kernels=SumsByKey.merge([part.kernels for part in parts]),
        all_names=tuple(sorted({name for part in parts for name in part.all_names})),
    )
