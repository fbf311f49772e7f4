"""The tables of kernels, made out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.report.columns import Columns
from nsys_llm.trace.identity import Rank

from ..per_rank.kernels import KernelTails
from .clusters import cluster_columns
from .kernels import (
    Medians,
    duration_columns,
    rank_tail_columns,
    tail_rank_columns,
    tails_columns,
    worst_keys,
)
from .outliers import outlier_columns, outlying, rank_offsets_ns
from .times import WORST_OVER_TIME, time_columns

#: Configurations with a histogram of their own; a chart shows one of them at a time.
_WORST: Final = 12


def kernel_columns(
    kernels: KernelTails, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Columns]:
    """Return the tables of kernels.

    Args:
        kernels: All ranks.
        ranks: Those with GPU work, in order.
        options: top is how many outliers are listed; disable_alignment leaves clocks alone.
    """
    parts = [(rank, kernels.ranks[rank.key]) for rank in ranks]
    medians = Medians(kernels)
    tails = tails_columns(kernels, medians, parts)
    rank_tails = rank_tail_columns(medians, parts)
    tail_ranks = tail_rank_columns(rank_tails, parts)
    found = outlying(kernels.instances, medians)
    offsets_ns = rank_offsets_ns(ranks, options)
    # Times that are to be taken as they are need no clock, but say nothing about what was together.
    shown_ns = [0] * len(ranks) if options["disable_alignment"] else offsets_ns
    listed = found.take(np.arange(min(len(found), options["top"])))
    worst = worst_keys(kernels, tails, min(_WORST, options["top"]))
    return {
        "tails": tails,
        "rank_tails": rank_tails,
        "tail_ranks": tail_ranks,
        "outliers": outlier_columns(listed, medians, ranks, shown_ns),
        "outlier_clusters": cluster_columns(
            found, kernels.counts, medians, ranks, offsets_ns, parts, tail_ranks, options["top"]
        ),
        "tail_times": time_columns(
            medians, parts, worst[:WORST_OVER_TIME], (tails, rank_tails), shown_ns
        ),
        "tail_durations": duration_columns(
            kernels, worst, [str(one) for one in tails["label"][: len(worst)]]
        ),
    }
