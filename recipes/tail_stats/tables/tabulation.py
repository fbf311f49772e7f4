"""Makes the tables of tail_stats out of the merged partial, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives
from nsys_llm.analyses.collectives.profiler import delays_ns
from nsys_llm.analyses.wall.of_matched import matched
from nsys_llm.report.columns import Columns
from nsys_llm.report.outputs import Cells
from nsys_llm.trace.identity import Rank

from ..partials import TailPartial
from ..per_rank.kernels import KernelTails
from .clusters import cluster_columns
from .collectives import clock_columns, collective_columns, coverage_columns, sequence_columns
from .kernels import (
    Medians,
    duration_columns,
    rank_tail_columns,
    tail_rank_columns,
    tails_columns,
    worst_keys,
)
from .outliers import outlier_columns, outlying, rank_offsets_ns
from .stragglers import straggler_columns

#: Configurations with a histogram of their own; a chart shows one of them at a time.
_WORST: Final = 12


def tabulate(
    partial: TailPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    """Return the recipe's tables by name.

    Args:
        options: top is how many outliers are listed; disable_alignment leaves clocks alone.
    """
    return {
        **_kernel_columns(partial.kernels, ranks, options),
        **_collective_columns(matched(partial, ranks, options), partial),
    }


def _kernel_columns(
    kernels: KernelTails, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Columns]:
    parts = [(rank, kernels.ranks[rank.key]) for rank in ranks]
    medians = Medians(kernels)
    tails = tails_columns(kernels, medians, parts)
    rank_tails = rank_tail_columns(medians, parts)
    tail_ranks = tail_rank_columns(rank_tails, parts)
    outliers = outlying(kernels.instances, medians)
    offsets_ns = rank_offsets_ns(ranks, options)
    # Times that are to be taken as they are need no clock, but say nothing about what was together.
    shown_ns = [0] * len(ranks) if options["disable_alignment"] else offsets_ns
    listed = outliers.take(np.arange(min(len(outliers), options["top"])))
    worst = worst_keys(medians, tails, min(_WORST, options["top"]))
    return {
        "tails": tails,
        "rank_tails": rank_tails,
        "tail_ranks": tail_ranks,
        "outliers": outlier_columns(listed, medians, ranks, shown_ns),
        "outlier_clusters": cluster_columns(
            outliers, kernels.counts, medians, ranks, offsets_ns, parts, tail_ranks, options["top"]
        ),
        "tail_durations": duration_columns(
            kernels, worst, [str(label) for label in tails["label"][: len(worst)]]
        ),
    }


def _collective_columns(
    collectives: MatchedCollectives, partial: TailPartial
) -> dict[str, Columns]:
    delays = delays_ns(collectives, partial.held)
    return {
        "communicators": sequence_columns(collectives),
        "collectives": collective_columns(collectives, delays),
        "stragglers": straggler_columns(collectives, delays),
        "collective_coverage": coverage_columns(collectives),
        "rank_clocks": clock_columns(collectives),
    }
