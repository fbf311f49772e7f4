"""The tables of what is shown of a rank beyond its census."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.trace.identity import Rank

from ..per_rank.details import RankDetails
from ..per_rank.graph_replays import replay_columns
from ..per_rank.rates import duration_columns, rate_columns
from ..per_rank.timeline import timeline_columns
from ..per_rank.watched_kernels import watched_kernel_columns
from .measured import gpu_metric_columns, memory_columns


def detail_columns(
    parts: Sequence[tuple[Rank, Sequence[str], RankDetails]],
    names: Sequence[str],
    durations: ValueCounts,
    shown: Mapping[str, Classification],
    kernels: Columns,
    options: Mapping[str, Any],
) -> dict[str, Columns]:
    """Return the tables of the details.

    Args:
        parts: Ranks in order, with their shown kernel names.
        names: What the groups of `durations` stand for.
        durations: Of all launches of all ranks.
        shown: Classification of each shown name.
        kernels: The table `kernels`, which says what the top kernels are.
        options: top is how many kernels have rows of their own.
    """
    top = pd.Series(kernels["name"]).head(options["top"]).tolist()
    return {
        "launch_rate": rate_columns([(rank, details.rates) for rank, _, details in parts]),
        "durations": duration_columns(names, top, durations),
        **watched_kernel_columns([(rank, details.watched) for rank, _, details in parts]),
        "timeline": timeline_columns([(rank, details.timeline) for rank, _, details in parts]),
        **memory_columns([(rank, details.memory) for rank, _, details in parts]),
        "graph_replays": replay_columns([(rank, details.graphs) for rank, _, details in parts]),
        "gpu_metrics": gpu_metric_columns(
            [(rank, selected, details.metrics) for rank, selected, details in parts], shown, top
        ),
    }
