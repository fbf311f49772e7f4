"""Work by phase and NVTX range, and steps: of one rank, or of many. Integers and strings, which merge exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.facts.phases.ranges import RangeSums
from nsys_llm.facts.phases.steps import StepRows
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.trace.identity import RankKey


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
        parts: Kernels by part of the model, see `model_parts.py`; likewise `shared_map`.
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
class PhaseFacts:
    """Many ranks.

    Attributes:
        kernels: By phase, kind, name and demangled name; see the table `phase_kernels`.
    """

    ranks: Mapping[RankKey, RankPhases] = field(default_factory=dict)
    kernels: ByKey = field(default_factory=ByKey)
