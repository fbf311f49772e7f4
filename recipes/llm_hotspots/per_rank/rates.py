"""Launch rate and utilization over time, and how durations are spread: what charts need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    covered_ns,
    union_before_ns,
    union_intervals,
)
from nsys_llm.numeric.time_bins import bin_counts, bin_edges, bin_sums, log_edges
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import Columns, percent
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Bins of a device's window: more than a chart has room for, few enough for a thousand ranks.
MOST_BINS: Final = 200

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class DeviceRates:
    """One device of one rank, its window cut into equal bins.

    Attributes:
        device_id: CUDA device id.
        edges_ns: Shape (bins + 1,); the report's own clock.
        window_ns: Shape (bins,), the part of each bin inside the windows.
        launches_n: Likewise, kernels that start in it.
        kernel_busy_ns: Likewise, union of kernels.
        busy_ns: Likewise, union of all operations.
    """

    device_id: int
    edges_ns: IntArray
    window_ns: IntArray
    launches_n: IntArray
    kernel_busy_ns: IntArray
    busy_ns: IntArray


def map_rates(trace: RankTrace) -> tuple[DeviceRates, ...]:
    """Return the bins of each device that has a window; their sums are those of `devices`."""
    rates = (_device_rates(trace, device) for device in trace.device_ids)
    return tuple(rate for rate in rates if rate is not None)


def rate_columns(parts: Sequence[tuple[Rank, Sequence[DeviceRates]]]) -> Columns:
    """Return the table launch_rate."""
    rows = [(rank, rate) for rank, rates in parts for rate in rates]
    bins_n = [rate.busy_ns.size for _, rate in rows]
    window_ns = joined([rate.window_ns for _, rate in rows])
    launches_n = joined([rate.launches_n for _, rate in rows])
    busy_ns = joined([rate.busy_ns for _, rate in rows])
    none = window_ns == 0
    return {
        "rank": np.repeat(np.array([rank.number for rank, _ in rows], dtype=np.int64), bins_n),
        "file": [rank.file for (rank, _), n in zip(rows, bins_n, strict=True) for _ in range(n)],
        "device_id": np.repeat(np.array([rate.device_id for _, rate in rows], np.int64), bins_n),
        "start_ns": joined([rate.edges_ns[:-1] for _, rate in rows]),
        "end_ns": joined([rate.edges_ns[1:] for _, rate in rows]),
        "window_ns": window_ns,
        "launches_n": launches_n,
        "kernel_busy_ns": joined([rate.kernel_busy_ns for _, rate in rows]),
        "busy_ns": busy_ns,
        "launch_rate": np.where(
            none, np.nan, launches_n * _NS_PER_S / np.where(none, 1, window_ns)
        ),
        "busy_pct": percent(busy_ns, window_ns),
    }


def duration_columns(names: Sequence[str], top: Sequence[str], counts: ValueCounts) -> Columns:
    """Return the table durations.

    Args:
        names: What the groups of `counts` stand for.
        top: Names to tell of, in their order.
        counts: Durations of all launches of all ranks.
    """
    place = {name: index for index, name in enumerate(top)}
    shown = np.array([place.get(name, -1) for name in names], dtype=np.int64)[counts.group]
    kept = shown >= 0
    value, count = counts.value[kept], counts.count[kept]
    edges = log_edges(int(value.max(initial=0)))
    bin_of = np.searchsorted(edges, value, side="right") - 1
    binned = ValueCounts.merge([ValueCounts(shown[kept], bin_of, count)])
    return {
        "name": [top[index] for index in binned.group],
        "low_ns": edges[binned.value],
        "high_ns": edges[binned.value + 1],
        "launches_n": binned.count,
    }


def _device_rates(trace: RankTrace, device: int) -> DeviceRates | None:
    ops = {name: trace.tables[name] for name in OP_TABLES if name in trace.tables}
    device_tables = {name: table.take(table["device_id"] == device) for name, table in ops.items()}
    windows = _windows(trace, list(device_tables.values()))
    if windows is None:
        return None
    kernels = device_tables.pop("kernels")
    starts, ends = _clipped(trace, kernels["start_ns"], kernels["end_ns"])
    edges = bin_edges(int(windows[0, 0]), int(windows[-1, 1]), MOST_BINS)
    others = _union(trace, list(device_tables.values()))
    # Pieces of the other operations, none of them in two bins.
    _, pieces, piece_ends = clip_to_windows(
        others[:, 0], others[:, 1], np.column_stack((edges[:-1], edges[1:]))
    )
    covered = union_before_ns(np.concatenate((edges, pieces, piece_ends)), starts, ends)
    at_edges, before, after = np.split(covered, [edges.size, edges.size + pieces.size])
    kernel_busy_ns = np.diff(at_edges)
    alone_ns = piece_ends - pieces - (after - before)
    return DeviceRates(
        device_id=device,
        edges_ns=edges,
        window_ns=np.diff(covered_ns(edges, windows)),
        launches_n=bin_counts(kernels["start_ns"][trace.starts_inside(kernels)], edges),
        kernel_busy_ns=kernel_busy_ns,
        busy_ns=kernel_busy_ns + bin_sums(pieces, alone_ns, edges),
    )


def _windows(trace: RankTrace, tables: Sequence[Table]) -> IntArray | None:
    """Return the windows of the table `devices`; None where there is no time to cut up."""
    if trace.windows_ns is not None:
        return trace.windows_ns if len(trace.windows_ns) else None
    some = [table for table in tables if len(table)]
    if not some:
        return None
    first = min(int(table["start_ns"].min()) for table in some)
    last = max(int(table["end_ns"].max()) for table in some)
    return np.array([[first, last]], dtype=np.int64)


def _union(trace: RankTrace, tables: Sequence[Table]) -> IntArray:
    """Return the union of all operations of some tables inside the windows."""
    starts = joined([table["start_ns"] for table in tables])
    return union_intervals(*_clipped(trace, starts, joined([table["end_ns"] for table in tables])))


def _clipped(trace: RankTrace, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    if trace.windows_ns is None:
        return starts, ends
    _, starts, ends = clip_to_windows(starts, ends, trace.windows_ns)
    return starts, ends
