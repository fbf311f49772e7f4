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
from nsys_llm.numeric.stacking import stacked
from nsys_llm.numeric.time_bins import bin_counts, bin_edges, bin_sums, log_edges
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import Columns, percent, rank_columns
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import RankTrace

#: Bins of a device's window: more than a chart has room for, few enough for a thousand ranks.
MOST_BINS: Final = 200

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class Rates:
    """The window of each device of one rank, cut into equal bins; arrays of shape (bins,).

    Attributes:
        start_ns: Of the bin; the report's own clock.
        window_ns: The part of it inside the windows.
        launches_n: Kernels that start in it.
        kernel_busy_ns: Union of kernels.
        busy_ns: Union of all operations.
    """

    device_id: IntArray
    start_ns: IntArray
    end_ns: IntArray
    window_ns: IntArray
    launches_n: IntArray
    kernel_busy_ns: IntArray
    busy_ns: IntArray


def map_rates(trace: RankTrace) -> Rates:
    """Return the bins of each device that has a window; their sums are those of `devices`."""
    windows = {device: trace.device_windows(device) for device in trace.device_ids}
    parts = [_device_rates(trace, device, some) for device, some in windows.items() if len(some)]
    return stacked(Rates, parts)


def rate_columns(parts: Sequence[tuple[Rank, Rates]]) -> Columns:
    """Return the table launch_rate."""
    rows = stacked(Rates, [rates for _, rates in parts])
    none = rows.window_ns == 0
    return {
        **rank_columns([(rank, rates.device_id.size) for rank, rates in parts]),
        **vars(rows),
        "launch_rate": np.where(
            none, np.nan, rows.launches_n * _NS_PER_S / np.where(none, 1, rows.window_ns)
        ),
        "busy_pct": percent(rows.busy_ns, rows.window_ns),
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


def _device_rates(trace: RankTrace, device: int, windows: IntArray) -> Rates:
    ops = trace.device_ops(device)
    kernels = ops.pop("kernels")
    starts, ends = _clipped(trace, kernels["start_ns"], kernels["end_ns"])
    edges = bin_edges(int(windows[0, 0]), int(windows[-1, 1]), MOST_BINS)
    others = _union(trace, list(ops.values()))
    # Pieces of the other operations, none of them in two bins.
    _, pieces, piece_ends = clip_to_windows(
        others[:, 0], others[:, 1], np.column_stack((edges[:-1], edges[1:]))
    )
    covered = union_before_ns(np.concatenate((edges, pieces, piece_ends)), starts, ends)
    at_edges, before, after = np.split(covered, [edges.size, edges.size + pieces.size])
    kernel_busy_ns = np.diff(at_edges)
    alone_ns = piece_ends - pieces - (after - before)
    return Rates(
        device_id=np.full(edges.size - 1, device),
        start_ns=edges[:-1],
        end_ns=edges[1:],
        window_ns=np.diff(covered_ns(edges, windows)),
        launches_n=bin_counts(kernels["start_ns"][trace.starts_inside(kernels)], edges),
        kernel_busy_ns=kernel_busy_ns,
        busy_ns=kernel_busy_ns + bin_sums(pieces, alone_ns, edges),
    )


def _union(trace: RankTrace, tables: Sequence[Table]) -> IntArray:
    """Return the union of all operations of some tables inside the windows."""
    starts = joined([table["start_ns"] for table in tables])
    return union_intervals(*_clipped(trace, starts, joined([table["end_ns"] for table in tables])))


def _clipped(trace: RankTrace, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    if trace.windows_ns is None:
        return starts, ends
    _, starts, ends = clip_to_windows(starts, ends, trace.windows_ns)
    return starts, ends
