"""Why the GPU was idle: every gap of every device, its cause, and what it costs.

Method. A gap is a stretch of a device's window in which nothing runs: no kernel, copy, fill or
whole graph; an operation of no length ends one gap and begins the next. Busy time is the rest of
the window; of the gaps, what the profiler took for itself is overhead, and all else is idle time:
window = busy + overhead + idle, to the nanosecond. `nsys_llm.idle_causes` tells how a gap's time is
split.

The window is that of the filters if they give one, as far as the capture goes, or all of the
capture where that is asked for; else it reaches from the device's first operation to its last, of
those that the filters leave. What else ran on the device then, ran.

Limits. Where CUDA graphs were traced as a whole and the export has no row for them, the GPU's work
is not in the report: idle time is not known then, and not guessed. The trace shows what the
launching thread did, and not always why: `certain` is the time for which it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.device_ops import DeviceOps, op_names
from nsys_llm.distributions import ValueCounts
from nsys_llm.gap_sums import GapSums, sum_gaps
from nsys_llm.host_line import HostLine
from nsys_llm.identity import Rank, RankKey
from nsys_llm.intervals import (
    IntArray,
    covered_ns,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
)
from nsys_llm.rank_trace import RankTrace
from nsys_llm.recipes.idle_gaps import tabulation
from nsys_llm.recipes.idle_gaps.caveats import caveats
from nsys_llm.recipes.idle_gaps.findings import answer, findings
from nsys_llm.recipes.idle_gaps.gap_rows import longest_gaps, top_gaps
from nsys_llm.recipes.idle_gaps.gap_timelines import GapTimeline, few_longest, map_timelines
from nsys_llm.recipes.idle_gaps.partial import (
    DeviceIdle,
    IdlePartial,
    IdleTimes,
    RankIdle,
    Spells,
    merged,
)
from nsys_llm.recipes.idle_gaps.patterns import map_patterns
from nsys_llm.time_bins import bin_edges
from nsys_llm.unseen_work import find_unseen

__all__ = ["answer", "caveats", "empty", "findings", "map_rank", "merge", "tabulate"]

#: Parts of a device's window: rows of a heat map of which each rank is a column.
_PARTS: Final = 50
#: Idle stretches that a rank keeps for the comparison with others: 32 kB.
_SPELLS_KEPT: Final = 2_000


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
    unseen = find_unseen(trace, whole_capture=options["whole_capture"])
    known = unseen.opaque_launches_n == 0
    host, names = HostLine.of(trace), op_names(trace, options)
    devices, gaps, named, spans = [], [], [], []
    drawn: list[GapTimeline] = []
    for device in trace.device_ids:
        ops = DeviceOps.of(trace, device, names, whole_capture=options["whole_capture"])
        sums = sum_gaps(ops.gaps, ops.launch_row, host) if known else None
        devices.append(_device(ops, host, sums))
        if sums is not None:
            told = top_gaps(trace, ops, names, host, options)
            gaps += told
            drawn += map_timelines(trace, rank, ops, names, host, told)
            named.append((ops, sums.named))
            spans.append((ops.windows_ns, _spans(ops)))
    patterns, lengths = map_patterns(named, names)
    one = RankIdle(
        devices=tuple(devices),
        gaps=tuple(gaps),
        patterns=patterns,
        spells=_spells(spans, host.profiler, options["min_gap_ns"]) if known else None,
        unseen=unseen,
    )
    return IdlePartial({rank: one}, few_longest(drawn), lengths)


def merge(parts: Sequence[IdlePartial]) -> IdlePartial:
    """Join partials of distinct ranks; associative and commutative."""
    return merged(parts)


def tabulate(
    partial: IdlePartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables; see `nsys_llm.recipes.idle_gaps.tabulation`."""
    return tabulation.tabulate(partial, ranks, options)


def _device(ops: DeviceOps, host: HostLine, sums: GapSums | None) -> DeviceIdle:
    windows, spans = ops.windows_ns, _spans(ops)
    overhead = intersect_intervals(host.profiler, spans)
    length = spans[:, 1] - spans[:, 0]
    counts = ValueCounts.from_values(np.zeros_like(length), length)
    known = sums is not None
    return DeviceIdle(
        device_id=ops.device_id,
        window_source=ops.window_source,
        window_start_ns=int(windows[0, 0]) if len(windows) else None,
        window_end_ns=int(windows[-1, 1]) if len(windows) else None,
        window_ns=total_length_ns(windows),
        ops_n=ops.start_ns.size,
        gap_ns=int(length.sum()),
        overhead_ns=total_length_ns(overhead),
        kernel_busy_ns=ops.computing_ns,
        sums=None if sums is None else sums.without_names(),
        lengths=counts.moments(1) if known else None,
        order=counts.order_statistics(1) if known else None,
        times=_times(windows, spans, overhead) if known and len(windows) else None,
    )


def _spans(ops: DeviceOps) -> IntArray:
    return np.column_stack((ops.gaps.start_ns, ops.gaps.end_ns))


def _times(windows: IntArray, gaps: IntArray, overhead: IntArray) -> IdleTimes:
    edges = bin_edges(int(windows[0, 0]), int(windows[-1, 1]), _PARTS)
    window_ns, gap_ns, overhead_ns = (
        np.diff(covered_ns(edges, spans)) for spans in (windows, gaps, overhead)
    )
    return IdleTimes(edges, window_ns, gap_ns, overhead_ns)


def _spells(
    devices: Sequence[tuple[IntArray, IntArray]], profiler: IntArray, least_ns: int
) -> Spells:
    """Return when all devices of a rank were idle, where their windows overlap.

    Args:
        devices: Windows and gaps of each.
        profiler: When the profiler did its own work: shape (n, 2), sorted and disjoint.
        least_ns: Shorter stretches are left out.
    """
    nothing = np.empty((0, 2), dtype=np.int64)
    windows, gaps = devices[0] if devices else (nothing, nothing)
    for window, own in devices[1:]:
        windows, gaps = intersect_intervals(windows, window), intersect_intervals(gaps, own)
    if len(devices) > 1:
        gaps = intersect_intervals(gaps, windows)
    idle = subtract_intervals(gaps, profiler) if len(profiler) else gaps
    kept = _longest(idle, least_ns)
    return Spells(
        idle_ns=kept,
        unwatched_ns=_longest(intersect_intervals(profiler, gaps), least_ns),
        left_out_n=len(idle) - len(kept),
        left_out_ns=total_length_ns(idle) - total_length_ns(kept),
        span_ns=(int(windows[0, 0]), int(windows[-1, 1])) if len(windows) else None,
    )


def _longest(spans: IntArray, least_ns: int) -> IntArray:
    return spans[np.sort(longest_gaps(spans[:, 1] - spans[:, 0], _SPELLS_KEPT, least_ns))]
