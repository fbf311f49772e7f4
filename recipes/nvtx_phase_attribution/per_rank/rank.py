"""Reduces one rank: its phases, ranges, steps and gaps, and what could be attributed."""

from __future__ import annotations

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.grouping import distinct
from nsys_llm.trace.coded_names import text_of

from ..partials import PhasePartial, RangeCounts, RankPhases
from .attribution_coverage import map_attribution, range_missing
from .idle_sums import map_idle
from .model_parts import map_parts
from .phases import map_phases
from .ranges import map_ranges
from .rank_ops import RankOps
from .steps import map_steps


def map_rank(view: RankView) -> PhasePartial:
    """Reduce one rank."""
    trace, rank, options = view.trace, view.key, view.options
    ops = RankOps.of(view)
    tree = ops.ranged.tree
    ranges, sums, idle, steps, attribution, parts = concurrently(
        len(ops.name),
        lambda: map_ranges(trace, ops, options),
        lambda: map_phases(trace, ops),
        lambda: map_idle(view, ops),
        lambda: map_steps(trace, ops),
        lambda: map_attribution(trace, ops),
        lambda: map_parts(view, ops),
    )
    rank_phases = RankPhases(
        phases=sums.phases,
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
            graph_kernels_n=parts.graph_kernels_n,
            annotated_n=parts.annotated_n,
            annotation_key=parts.annotation_key,
            contradicted_n=parts.contradicted_n,
        ),
        parts=parts.sums,
        shared_map=parts.shared_map,
    )
    ids = distinct(trace.unfiltered["kernels"]["demangled_name_id"]).tolist()
    return PhasePartial(
        ranks={rank: rank_phases},
        kernels=sums.kernels,
        all_names=tuple(sorted({text_of(key, trace.strings) for key in ids})),
    )
