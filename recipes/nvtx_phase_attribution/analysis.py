"""What each phase costs on the GPU: every operation led to the NVTX range of its launch.

Method. An operation belongs to the range that began last of those open when and where it was
launched (see `nsys_llm.analyses.nvtx.attributed_ops`, which also says what stands for the launch
where that finds nothing). A phase is that of the nearest range around the launch that the phase
map knows; what has none is unmapped, in no range, or without an API call, so that the rows add up
to the GPU time, to the nanosecond. Steps hold what any thread launches in them.

Limits. A range says where work was launched, not where it ran: on the GPU it comes later, and
beside other work. Operations of a graph come from one launch, however long ago they were captured.
Host times are the profiled run's, with the cost of its ranges in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.analyses.nvtx.attributed_ops import GRAPH_CAPTURE
from nsys_llm.core.concurrently import concurrently
from nsys_llm.numeric.grouping import distinct
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace

from .findings.answer import answer, findings
from .findings.caveats import caveats
from .partials import Marks, PhasePartial, RankPhases, merged
from .per_rank.attribution_coverage import map_attribution, range_missing
from .per_rank.idle_sums import map_idle
from .per_rank.phases import map_instances, map_phases
from .per_rank.ranges import map_ranges
from .per_rank.rank_ops import RankOps
from .per_rank.steps import map_steps
from .tables import tabulation

__all__ = [
    "answer",
    "caveats",
    "empty",
    "findings",
    "map_rank",
    "merge",
    "missing_ranges",
    "tabulate",
]

#: Ranges of a phase that a rank tells one by one.
_INSTANCES: Final = 20


def empty() -> PhasePartial:
    """Return the identity of `merge`."""
    return PhasePartial()


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> PhasePartial:
    """Reduce one rank.

    Args:
        trace: Its rows and windows.
        rank: Its key.
        options: See the manifest.
    """
    ops = RankOps.of(trace, options)
    ranges, sums, idle, instances, steps, attribution = concurrently(
        len(ops.name),
        lambda: map_ranges(trace, ops, options),
        lambda: map_phases(trace, ops),
        lambda: map_idle(trace, ops),
        lambda: map_instances(ops, _INSTANCES),
        lambda: map_steps(trace, ops),
        lambda: map_attribution(trace, ops),
    )
    one = RankPhases(
        phases=sums.phases,
        collectives=sums.collectives,
        ranges=ranges,
        steps=steps,
        idle=idle,
        attribution=attribution,
        instances=instances.rows,
        missing=range_missing(ops),
        marks=_marks(ops),
    )
    ids = distinct(trace.unfiltered["kernels"]["demangled_name_id"]).tolist()
    return PhasePartial(
        ranks={rank: one},
        kernels=sums.kernels,
        instances=instances.counts,
        uncounted=instances.uncounted,
        all_names=tuple(sorted({text_of(key, trace.strings) for key in ids})),
    )


def merge(parts: Sequence[PhasePartial]) -> PhasePartial:
    """Join partials of distinct ranks; associative and commutative."""
    return merged(parts)


def tabulate(
    partial: PhasePartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables; see `tables.tabulation`."""
    return tabulation.tabulate(partial, ranks, options)


def missing_ranges(partial: PhasePartial, rank: RankKey) -> Mapping[str, tuple[int, int]]:
    """Return the operations of a rank that lie in no range, and their time, by kind."""
    return partial.ranks[rank].missing


def _marks(ops: RankOps) -> Marks:
    tree = ops.ranged.tree
    pushed = tree.first[: tree.pushed_n]
    return Marks(
        push_pop_n=int(pushed.sum()),
        start_end_n=len(tree) - tree.pushed_n,
        threads_n=tree.threads.size,
        domains=ops.ranged.names.domains,
        without_end_n=tree.without_end_n,
        empty_n=tree.empty_n,
        interleaved_n=int(np.unique(tree.event[: tree.pushed_n][~pushed]).size),
        graph_captures_n=int((ops.ranged.every.method == GRAPH_CAPTURE).sum()),
    )
