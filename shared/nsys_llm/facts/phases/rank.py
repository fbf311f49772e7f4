"""Reduces one rank: its phases, ranges, steps and gaps, and what could be attributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.phases.attribution_coverage import map_attribution, range_missing
from nsys_llm.facts.phases.model_parts import RankParts, map_parts
from nsys_llm.facts.phases.phases import map_idle, map_phases
from nsys_llm.facts.phases.ranges import RangeSums, map_ranges
from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.facts.phases.steps import StepRows, map_steps
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.trace.identity import RankKey


@dataclass(frozen=True)
class RangeCounts:
    """What marks the work of one rank, whatever the filters leave; see the table `marks`."""

    push_pop_n: int
    start_end_n: int
    without_end_n: int
    empty_n: int


@dataclass(frozen=True)
class RankPhases:
    """One rank.

    Attributes:
        steps: None where there are none.
        idle: By phase, see the table `phase_idle`.
        missing: Operations in no range, and their time, by kind, before any filter.
    """

    phases: ByKey
    ranges: RangeSums
    steps: StepRows | None
    idle: ByKey
    attribution: ByKey
    missing: Mapping[str, tuple[int, int]]
    marks: RangeCounts
    parts: RankParts


@dataclass(frozen=True)
class PhaseFacts:
    """Many ranks.

    Attributes:
        kernels: By phase, kind, name and demangled name; see the table `phase_kernels`.
    """

    ranks: Mapping[RankKey, RankPhases] = field(default_factory=dict)
    kernels: ByKey = field(default_factory=ByKey)


def of(view: RankView) -> PhaseFacts:
    """Reduce one rank."""
    trace, rank, options = view.trace, view.key, view.options
    ops = RankOps.of(view)
    tree = ops.ranged.tree
    ranges, (phases, kernels), idle, steps, attribution, parts = concurrently(
        len(ops.name),
        lambda: map_ranges(trace, ops, options),
        lambda: map_phases(trace, ops),
        lambda: map_idle(view, ops),
        lambda: map_steps(trace, ops),
        lambda: map_attribution(trace, ops),
        lambda: map_parts(view, ops),
    )
    rank_phases = RankPhases(
        phases=phases,
        ranges=ranges,
        steps=steps,
        idle=idle,
        attribution=attribution,
        missing=range_missing(ops),
        marks=RangeCounts(
            push_pop_n=int(tree.first[: tree.pushed_n].sum()),
            start_end_n=len(tree) - tree.pushed_n,
            without_end_n=tree.without_end_n,
            empty_n=tree.empty_n,
        ),
        parts=parts,
    )
    return PhaseFacts({rank: rank_phases}, kernels)
