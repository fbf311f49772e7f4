"""Why the GPU was idle: every gap of every device, its cause, and what it costs.

Method. A gap is a stretch of a device's window in which nothing runs: no kernel, copy, fill or
whole graph; an operation of no length ends one gap and begins the next. Busy time is the rest of
the window; of the gaps, what the profiler took for itself is overhead, and all else is idle time:
window = busy + overhead + idle, to the nanosecond. `nsys_llm.taxonomy.idle_causes` tells how a
gap's time is split.

The window is that of the filters if they give one, as far as the capture goes, or all of the
capture where that is asked for; else it reaches from the device's first operation to its last, of
those that the filters leave. What else ran on the device then, ran.

Limits. Where CUDA graphs were traced as a whole and the export has no row for them, the GPU's work
is not in the report: idle time is not known then, and not guessed. The trace shows what the
launching thread did, and not always why: `certain` is the time for which it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.analyses.device.gap_sums import sum_gaps
from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.device.missing_work import find_missing_work
from nsys_llm.core.concurrently import concurrently
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_ns,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
)
from nsys_llm.numeric.time_bins import bin_edges
from nsys_llm.taxonomy.communication import SEND_RECV, is_communication, operation_of
from nsys_llm.trace.device_ops import DeviceOps, OpNames, op_names
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace

from .findings.answer import answer, findings
from .findings.caveats import caveats
from .partials import DeviceIdle, IdleIntervals, IdlePartial, IdleTimes, RankIdle, merged
from .per_rank.gap_rows import GapRow, longest_gaps, top_gaps
from .per_rank.gap_timelines import GapTimeline, few_longest, map_timelines
from .per_rank.patterns import map_patterns
from .tables import tabulation

__all__ = ["answer", "caveats", "empty", "findings", "map_rank", "merge", "tabulate"]

#: Parts of a device's window: rows of a heat map of which each rank is a column.
_PARTS: Final = 50
#: Idle stretches that a rank keeps for the comparison with others: 32 kB.
_INTERVALS_KEPT: Final = 2_000


def empty() -> IdlePartial:
    """Return the identity of `merge`."""
    return IdlePartial()


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> IdlePartial:
    """Reduce one rank.

    Args:
        trace: Its rows and windows.
        rank: Its key.
        options: base, mangled, top, whole_capture, and min_gap_ns, the shortest gap worth a row.
    """
    missing = find_missing_work(trace, whole_capture=options["whole_capture"])
    known = missing.opaque_launches_n == 0
    (names, lined_up), host = concurrently(
        sum(map(len, trace.unfiltered.values())),
        lambda: _lined_up(trace, options),
        lambda: HostTimeline.of(trace),
    )
    gaps_n = sum(len(ops.gaps) for ops in lined_up)
    spans = [_spans(ops) for ops in lined_up]
    sums, devices = concurrently(
        gaps_n,
        lambda: [sum_gaps(ops.gaps, ops.launch_row, host) for ops in lined_up if known],
        lambda: [_device(*one, names, host, known) for one in zip(lined_up, spans, strict=True)],
    )
    # Not beside those, because patterns hold several times as much as the gaps on their way.
    named = [(ops, one.named) for ops, one in zip(lined_up, sums, strict=False)]
    (patterns, lengths), (gaps, drawn), intervals = concurrently(
        gaps_n,
        lambda: map_patterns(named, names),
        lambda: _longest_gaps(trace, rank, [ops for ops, _ in named], names, host, options),
        lambda: (
            _idle_intervals(lined_up, spans, host.profiler, options["min_gap_ns"])
            if known
            else None
        ),
    )
    if known:
        devices = [
            replace(device, sums=one.without_names())
            for device, one in zip(devices, sums, strict=True)
        ]
    one = RankIdle(
        devices=tuple(devices), gaps=gaps, patterns=patterns, intervals=intervals, missing=missing
    )
    return IdlePartial({rank: one}, few_longest(drawn), lengths)


def merge(parts: Sequence[IdlePartial]) -> IdlePartial:
    """Join partials of distinct ranks; associative and commutative."""
    return merged(parts)


def tabulate(
    partial: IdlePartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables; see `tables.tabulation`."""
    return tabulation.tabulate(partial, ranks, options)


def _lined_up(trace: RankTrace, options: Mapping[str, Any]) -> tuple[OpNames, list[DeviceOps]]:
    """Return the names of operations, and the operations of each device."""
    names, whole_capture = op_names(trace, options), options["whole_capture"]
    lined_up = [
        DeviceOps.of(trace, device, names, whole_capture=whole_capture)
        for device in trace.device_ids
    ]
    return replace(names, codes={}), lined_up  # as long as the trace, and in `lined_up` too


def _longest_gaps(
    trace: RankTrace,
    rank: RankKey,
    devices: Sequence[DeviceOps],
    names: OpNames,
    host: HostTimeline,
    options: Mapping[str, Any],
) -> tuple[tuple[GapRow, ...], list[GapTimeline]]:
    """Return the longest gaps of each device, and what was around them."""
    gaps = [top_gaps(trace, ops, names, host, options) for ops in devices]
    drawn = [
        timeline
        for ops, some in zip(devices, gaps, strict=True)
        for timeline in map_timelines(trace, rank, ops, names, host, some)
    ]
    return tuple(gap for some in gaps for gap in some), drawn


def _device(
    ops: DeviceOps, spans: IntArray, names: OpNames, host: HostTimeline, known: bool
) -> DeviceIdle:
    """Reduce one device to all but its `sums`."""
    windows = ops.windows_ns
    overhead = intersect_intervals(host.profiler, spans)
    length = spans[:, 1] - spans[:, 0]
    counts = ValueCounts.from_values(np.broadcast_to(np.int64(0), length.shape), length)
    return DeviceIdle(
        device_id=ops.device_id,
        window_source=ops.window_source,
        window_start_ns=int(windows[0, 0]) if len(windows) else None,
        window_end_ns=int(windows[-1, 1]) if len(windows) else None,
        window_ns=total_length_ns(windows),
        ops_n=ops.start_ns.size,
        transfers_n=_transfers_n(ops, names),
        gap_ns=int(length.sum()),
        overhead_ns=total_length_ns(overhead),
        kernel_busy_ns=ops.computing_ns,
        sums=None,
        lengths=counts.moments(1) if known else None,
        order=counts.order_statistics(1) if known else None,
        times=_times(windows, spans, overhead) if known and len(windows) else None,
    )


def _transfers_n(ops: DeviceOps, names: OpNames) -> int:
    """Return how many kernels of a device send or receive."""
    n = np.bincount(ops.name, minlength=len(names.texts))
    return sum(
        int(n[at])
        for at in np.flatnonzero((n > 0) & names.computing).tolist()
        if is_communication(names.texts[at]) and operation_of(names.texts[at]) == SEND_RECV
    )


def _spans(ops: DeviceOps) -> IntArray:
    # Starts lie together, and so do ends, as in `nsys_llm.numeric.intervals.union_intervals`.
    return np.stack((ops.gaps.start_ns, ops.gaps.end_ns)).T


def _times(windows: IntArray, gaps: IntArray, overhead: IntArray) -> IdleTimes:
    edges = bin_edges(int(windows[0, 0]), int(windows[-1, 1]), _PARTS)
    window_ns, gap_ns, overhead_ns = (
        np.diff(covered_ns(edges, spans)) for spans in (windows, gaps, overhead)
    )
    return IdleTimes(edges, window_ns, gap_ns, overhead_ns)


def _idle_intervals(
    devices: Sequence[DeviceOps], gaps_ns: Sequence[IntArray], profiler: IntArray, least_ns: int
) -> IdleIntervals:
    """Return when all devices of a rank were idle, where their windows overlap.

    Args:
        devices: Their windows are looked at.
        gaps_ns: Gaps of each.
        profiler: When the profiler did its own work: shape (n, 2), sorted and disjoint.
        least_ns: Shorter stretches are left out.
    """
    nothing = np.empty((0, 2), dtype=np.int64)
    windows, gaps = (devices[0].windows_ns, gaps_ns[0]) if devices else (nothing, nothing)
    for device, own in zip(devices[1:], gaps_ns[1:], strict=True):
        windows = intersect_intervals(windows, device.windows_ns)
        gaps = intersect_intervals(gaps, own)
    if len(devices) > 1:
        gaps = intersect_intervals(gaps, windows)
    idle = subtract_intervals(gaps, profiler) if len(profiler) else gaps
    kept = _longest(idle, least_ns)
    return IdleIntervals(
        idle_ns=kept,
        unwatched_ns=_longest(intersect_intervals(profiler, gaps), least_ns),
        left_out_n=len(idle) - len(kept),
        left_out_ns=total_length_ns(idle) - total_length_ns(kept),
        span_ns=(int(windows[0, 0]), int(windows[-1, 1])) if len(windows) else None,
    )


def _longest(spans: IntArray, least_ns: int) -> IntArray:
    return spans[np.sort(longest_gaps(spans[:, 1] - spans[:, 0], _INTERVALS_KEPT, least_ns))]
