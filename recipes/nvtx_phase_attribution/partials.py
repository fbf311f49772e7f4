"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.job.partial import Partial
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.trace.identity import RankKey

from .per_rank.ranges import RangeSums
from .per_rank.steps import StepRows


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
    contradicted_n: int


@dataclass(frozen=True)
class RankPhases:
    """One rank.

    Attributes:
        steps: None where there are none.
        idle: By phase, see the table `phase_idle`.
        missing: Operations in no range, and their time, by kind, before any filter.
        parts: Kernels by part of the model, see `per_rank/model_parts.py`; likewise `shared_map`.
    """

    phases: ByKey
    ranges: RangeSums
    steps: StepRows | None
    idle: ByKey
    attribution: ByKey
    missing: Mapping[str, tuple[int, int]]
    marks: RangeCounts
    parts: ByKey
    shared_map: ByKey


@dataclass(frozen=True)
class PhasePartial(Partial[RankPhases]):
    """Many ranks.

    Attributes:
        kernels: By phase, kind, name and demangled name; see the table `phase_kernels`.
        all_names: Demangled names of all kernels, also those that a filter leaves out: they tell
            the engine.
    """

    kernels: ByKey = field(default_factory=ByKey)
    all_names: tuple[str, ...] = ()

    def missing_ranges(self, rank: RankKey) -> Mapping[str, tuple[int, int]]:
        """Return the operations of a rank that lie in no range, and their time, by kind."""
        return self.ranks[rank].missing
