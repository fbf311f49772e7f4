"""The tables of what a capture measured beside the events: device memory and GPU metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.trace.identity import Rank

from ..per_rank.device_links import BY_ORDER as BY_ORDER
from ..per_rank.gpu_metrics import DeviceMetrics, MetricSums
from ..per_rank.memory import MemorySeries

#: A rank, its kernel names, and what was measured on it.
MeasuredRank = tuple[Rank, Sequence[str], Sequence[DeviceMetrics]]

#: Columns of memory_watermarks that a series has as they are.
_PLAIN: Final = (
    "device_id",
    "kind",
    "peak_bytes",
    "peak_ns",
    "total_bytes",
    "pool_peak_bytes",
    "allocations_n",
    "allocated_bytes",
    "frees_n",
    "unmatched_frees_n",
    "largest_bytes",
    "largest_ns",
    "largest_api",
    "broken_n",
)
_QUARTERS: Final = ("quarter_bytes", "half_bytes", "three_quarter_bytes", "end_bytes")
_SUMS: Final = ("samples_n", "sampled_ns", "own_ns", "weighted")

#: Scope of a metric that is counted, not read.
UNKNOWN_UNIT: Final = "unknown_unit"

#: Scope, name and sums of one row of gpu_metrics.
_Scoped = tuple[str, str | None, tuple[int, ...]]


def memory_columns(parts: Sequence[tuple[Rank, Sequence[MemorySeries]]]) -> dict[str, Columns]:
    """Return the tables memory, memory_watermarks and memory_allocators."""
    series = [(rank, item) for rank, some in parts for item in some]
    allocators = [(rank, memory, who) for rank, memory in series for who in memory.allocators]
    fields = ("api", "allocations_n", "allocated_bytes", "peak_bytes", "end_bytes")
    return {
        "memory": _steps(series),
        "memory_watermarks": {
            "rank": [rank.number for rank, _ in series],
            "file": [rank.file for rank, _ in series],
            **{name: [getattr(memory, name) for _, memory in series] for name in _PLAIN},
            **{
                name: [memory.quarter_bytes[i] for _, memory in series]
                for i, name in enumerate(_QUARTERS)
            },
            "peak_pct": [_share(memory.peak_bytes, memory.total_bytes) for _, memory in series],
            "window_start_ns": [memory.window_ns[0] for _, memory in series],
            "window_end_ns": [memory.window_ns[1] for _, memory in series],
        },
        "memory_allocators": {
            "rank": [rank.number for rank, _, _ in allocators],
            "file": [rank.file for rank, _, _ in allocators],
            "device_id": [memory.device_id for _, memory, _ in allocators],
            "kind": [memory.kind for _, memory, _ in allocators],
            **{name: [getattr(who, name) for _, _, who in allocators] for name in fields},
        },
    }


def gpu_metric_columns(
    parts: Sequence[MeasuredRank],
    shown: Mapping[str, Classification],
    top: Sequence[str],
) -> Columns:
    """Return the table gpu_metrics.

    Args:
        parts: The ranks.
        shown: Classification of each shown kernel name.
        top: The kernels that have rows of their own.
    """
    scopes = [
        (rank, device, metric, period_ns, *scoped)
        for rank, names, devices in parts
        for device in devices
        for metric, period_ns, rows in _metrics(device, names, shown, top)
        for scoped in rows
    ]
    sums = {
        name: np.array([row[i] for *_, row in scopes], dtype=np.int64)
        for i, name in enumerate(_SUMS)
    }
    none = sums["own_ns"] == 0
    return {
        "rank": [scope[0].number for scope in scopes],
        "file": [scope[0].file for scope in scopes],
        "device_id": [scope[1].device_id for scope in scopes],
        "gpu_id": [scope[1].link.gpu_id for scope in scopes],
        "gpu_source": [scope[1].link.source for scope in scopes],
        "metric": [scope[2] for scope in scopes],
        "scope": [scope[4] for scope in scopes],
        "name": [scope[5] for scope in scopes],
        "mean_pct": np.where(none, np.nan, sums["weighted"] / np.where(none, 1, sums["own_ns"])),
        "samples_n": sums["samples_n"],
        "own_ns": sums["own_ns"],
        "own_pct": percent(sums["own_ns"], sums["sampled_ns"]),
        "period_ns": [scope[3] for scope in scopes],
    }


def _steps(series: Sequence[tuple[Rank, MemorySeries]]) -> Columns:
    steps_n = [memory.time_ns.size for _, memory in series]
    owners = [pair for pair, n in zip(series, steps_n, strict=True) for _ in range(n)]
    return {
        "rank": [rank.number for rank, _ in owners],
        "file": [rank.file for rank, _ in owners],
        "device_id": [memory.device_id for _, memory in owners],
        "kind": [memory.kind for _, memory in owners],
        "time_ns": joined([memory.time_ns for _, memory in series]),
        "used_bytes": joined([memory.used_bytes for _, memory in series]),
        "watermark": joined([_watermarks(memory.used_bytes) for _, memory in series]).astype(bool),
    }


def _watermarks(used_bytes: IntArray) -> IntArray:
    """Return which steps are higher than all before them, as 0 or 1."""
    before = np.concatenate(([0], np.maximum.accumulate(used_bytes)[:-1]))
    return (used_bytes > before).astype(np.int64)


def _share(part: int, whole: int | None) -> float | None:
    return 100.0 * part / whole if whole else None


def _metrics(
    device: DeviceMetrics,
    names: Sequence[str],
    shown: Mapping[str, Classification],
    top: Sequence[str],
) -> list[tuple[str, int | None, list[_Scoped]]]:
    """Return name, time of a sample and rows of each metric; one row where no unit is known."""
    rows: list[tuple[str, int | None, list[_Scoped]]] = [
        (metric.metric, metric.period_ns, _scoped(metric, names, shown, top))
        for metric in device.metrics
    ]
    for name, samples_n in device.unknown:
        rows.append((name, None, [(UNKNOWN_UNIT, None, (samples_n, 0, 0, 0))]))
    return rows


def _scoped(
    metric: MetricSums,
    names: Sequence[str],
    shown: Mapping[str, Classification],
    top: Sequence[str],
) -> list[_Scoped]:
    """Return scope, name and sums of the window, each category that ran, and each top kernel."""
    columns = np.column_stack([getattr(metric, name) for name in _SUMS])
    ran = np.flatnonzero(metric.samples_n[:-1] > 0).tolist()
    categories = sorted({shown[names[i]].category for i in ran})
    code = {name: index for index, name in enumerate(categories)}
    by_category = np.array([code[shown[names[i]].category] for i in ran], dtype=np.int64)
    sums = [summed(by_category, columns[ran, i], len(categories)) for i in range(len(_SUMS))]
    place = {names[i]: i for i in ran}
    return [
        ("window", None, tuple(columns[-1].tolist())),
        *(
            ("category", name, tuple(int(item[i]) for item in sums))
            for i, name in enumerate(categories)
        ),
        *(("kernel", name, tuple(columns[place[name]].tolist())) for name in top if name in place),
    ]
