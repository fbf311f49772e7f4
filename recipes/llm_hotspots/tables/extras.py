"""The tables of what few captures record, or an option asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.facts.operations.callstacks import CallStack
from nsys_llm.facts.operations.cuda_graphs import ReplayTimes
from nsys_llm.facts.operations.memory import Allocator, MemorySeries
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, of_rank, record_columns
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.trace.identity import Rank

from .gpu_metrics import gpu_metric_rows

#: What of a series is no column of `memory_watermarks`.
_STEPS: Final = ("time_ns", "used_bytes", "allocators")


def extra_tables(
    ranks: RankRows,
    shown: Mapping[str, Classification],
    top: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Cells]:
    """Return the tables; `top` are the kernels that have rows of their own."""
    return {
        "callstacks": _callstack_columns(
            [(rank, stack) for rank, part in ranks for stack in part.callstacks], options["top"]
        ),
        **_memory_tables([(rank, series) for rank, part in ranks for series in part.memory]),
        "cuda_graphs": _graph_rows([(rank, part.cuda_graphs) for rank, part in ranks]),
        "gpu_metrics": gpu_metric_rows(ranks, shown, top),
    }


def _callstack_columns(stacks: Sequence[tuple[Rank, CallStack]], top: int) -> Columns:
    """Return the table callstacks: the `top` stacks with most time over all ranks."""
    order = sorted(
        stacks, key=lambda row: (-row[1].total_ns, row[0].number, row[1].api, row[1].stack)
    )
    rows = order[:top]
    return {
        **record_columns(rows, *CallStack.__dataclass_fields__),
        "class": [classify_api(stack.api) for _, stack in rows],
    }


def _graph_rows(ranks: Sequence[tuple[Rank, ReplayTimes | None]]) -> list[dict[str, Any]]:
    """Return the rows of the table cuda_graphs, most time first."""
    rows = [
        _graph_row(rank, times, *graph)
        for rank, times in ranks
        if times is not None
        for graph in times.by_graph()
    ]
    rows.sort(key=lambda row: -row["span_ns"])  # stable
    return rows


def _graph_row(
    rank: Rank, times: ReplayTimes, device_id: int, graph: int, rows: IntArray
) -> dict[str, Any]:
    every, sizes = times.replays, times.sizes
    place = int(np.searchsorted(sizes.graph, graph))
    size, batch_max = int(sizes.size[place]), int(sizes.batch_max[place])
    batch, queued = times.batch[rows], times.queued[rows]
    starts, ends = every.start_ns[rows], every.end_ns[rows]
    span_ns, busy_ns = int((ends - starts).sum()), int(every.busy_ns[rows].sum())
    padding = np.maximum(size - batch[batch > 0], 0)
    return {
        **of_rank(rank),
        "device_id": device_id,
        "graph": str(graph),
        "nodes_n": int(every.nodes_n[rows].max()) or None,
        "replays_n": rows.size,
        "api_ns": _median(times.call_ns[rows]),
        "launch_to_first_ns": _median(times.first_ns[rows][~queued]),
        "queued_n": int(queued.sum()),
        "lag_ns": _median(times.lag_ns[rows][queued]),
        "span_ns": span_ns,
        "busy_ns": busy_ns,
        "gaps_ns": span_ns - busy_ns,
        "min_ns": int((ends - starts).min()),
        "p50_ns": _median(ends - starts),
        "p99_ns": float(np.percentile(ends - starts, 99)),
        "max_ns": int((ends - starts).max()),
        "between_p50_ns": _median(np.maximum(starts[1:] - ends[:-1], 0)),
        "captured_size": size if size > 0 else None,
        "batch_max": batch_max if batch_max >= 0 else None,
        "padding_rows": int(padding.sum()) if size > 0 and padding.size else None,
    }


def _median(values: IntArray) -> float | None:
    return float(np.median(values)) if values.size else None


def _memory_tables(series: Sequence[tuple[Rank, MemorySeries]]) -> dict[str, Columns]:
    """Return the tables memory, memory_watermarks and memory_allocators."""
    columns = [name for name in MemorySeries.__dataclass_fields__ if name not in _STEPS]
    shares = [
        100.0 * some.peak_bytes / some.total_bytes if some.total_bytes else None
        for _, some in series
    ]
    allocators = [(rank, who) for rank, some in series for who in some.allocators]
    return {
        "memory": _steps(series),
        "memory_watermarks": {**record_columns(series, *columns), "peak_pct": shares},
        "memory_allocators": record_columns(allocators, *Allocator.__dataclass_fields__),
    }


def _steps(series: Sequence[tuple[Rank, MemorySeries]]) -> Columns:
    owners = [(rank, some) for rank, some in series for _ in some.time_ns]
    return {
        **record_columns(owners, "device_id", "kind"),
        "time_ns": joined([some.time_ns for _, some in series]),
        "used_bytes": joined([some.used_bytes for _, some in series]),
    }
