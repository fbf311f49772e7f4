"""What makes the tail: slow launches within a launch configuration, ranks and times that have them.

Method. Launches are grouped by kernel and launch configuration (grid, block, dynamic shared
memory), because two shapes of one kernel differ in duration without any of them being slow.
Durations are counted exactly, so percentiles over all ranks are those of all launches together, and
what a launch takes beyond the median of its configuration over all ranks is a number that adds up
over launches and ranks.

Limits. Within one configuration a kernel may still have different work to do (lengths of sequences,
routing of experts): what is there is told, not why. Kernels in a CUDA graph that was traced as a
whole are not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.analyses.collectives.lanes import map_collectives
from nsys_llm.analyses.collectives.profiler import HeldDevices, map_held
from nsys_llm.core.concurrently import concurrently
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import declared_frame
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace

from .findings.answer import answer, findings
from .findings.caveats import caveats
from .partials import TailPartial, merged
from .per_rank.apis import map_apis
from .per_rank.kernels import map_kernels
from .per_rank.launches import coded_launches
from .per_rank.outlier_context import kernel_steps
from .tables import all_collectives as collectives_part
from .tables.apis import api_columns
from .tables.tabulation import kernel_columns

__all__ = ["answer", "caveats", "empty", "findings", "map_rank", "merge", "tabulate"]

_RECIPE: Final = "tail_stats"


def empty() -> TailPartial:
    """Return the identity of `merge`."""
    return TailPartial()


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> TailPartial:
    """Reduce one rank.

    Args:
        trace: Its rows and windows.
        rank: Its key.
        options: base and mangled choose the names of kernels; see the parts for others.
    """
    launched = coded_launches(trace, options)
    _, every = launched
    steps, apis, collectives = concurrently(
        len(every.rows),
        lambda: kernel_steps(trace, every, options),
        lambda: map_apis(trace, rank, every),
        lambda: map_collectives(trace, rank),
    )
    return TailPartial(
        kernels=map_kernels(trace, rank, launched, steps, options),
        apis=apis,
        collectives=collectives,
        held=map_held(trace, rank) if collectives.ranks else HeldDevices(),
    )


def merge(parts: Sequence[TailPartial]) -> TailPartial:
    """Join partials of distinct ranks; associative and commutative."""
    return merged(parts)


def tabulate(
    partial: TailPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables, as manifests/tail_stats.json declares them."""
    columns = {
        **kernel_columns(partial.kernels, ranks, options),
        **api_columns(partial.apis, ranks),
        **collectives_part.columns(partial.collectives, partial.held, ranks, options),
    }
    manifest = load_manifest(_RECIPE)
    return {name: declared_frame(manifest.table(name), one) for name, one in columns.items()}
