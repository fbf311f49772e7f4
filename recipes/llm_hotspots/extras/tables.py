"""The tables of what few captures record, or an option asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.categories import Classification

from ..partials import RankRows
from .callstacks import callstack_columns
from .cuda_graphs import graph_rows
from .gpu_metrics import gpu_metric_columns
from .memory import memory_tables


def extra_tables(
    ranks: RankRows,
    shown: Mapping[str, Classification],
    top: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Cells]:
    """Return the tables; `top` are the kernels that have rows of their own."""
    rows = [(rank, part.extras) for rank, part in ranks]
    return {
        "callstacks": callstack_columns(
            [(rank, stack) for rank, extras in rows for stack in extras.callstacks], options["top"]
        ),
        **memory_tables([(rank, series) for rank, extras in rows for series in extras.memory]),
        "cuda_graphs": graph_rows([(rank, extras.cuda_graphs) for rank, extras in rows]),
        "gpu_metrics": gpu_metric_columns(
            [(rank, part.names, part.extras.metrics) for rank, part in ranks], shown, top
        ),
    }
