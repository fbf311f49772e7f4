"""Reduces one rank: its devices, longest gaps, patterns of gaps, and when all of it was idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsys_llm.analyses.device.gap_sums import sum_gaps
from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.device.missing_work import find_missing_work
from nsys_llm.core.concurrently import concurrently
from nsys_llm.trace.device_ops import DeviceOps, OpNames, op_names
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

from ..partials import IdlePartial, RankIdle
from .devices import map_device
from .gap_rows import GapRow, top_gaps
from .gap_timelines import GapTimeline, few_longest, map_timelines
from .idle_intervals import map_idle_intervals
from .patterns import map_patterns


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
    sums, devices = concurrently(
        gaps_n,
        lambda: [sum_gaps(ops.gaps, ops.launch_row, host) for ops in lined_up if known],
        lambda: [map_device(ops, names, host, known) for ops in lined_up],
    )
    # Not beside those, because patterns hold several times as much as the gaps on their way.
    named = [(ops, gap_sums.named) for ops, gap_sums in zip(lined_up, sums, strict=False)]
    (patterns, lengths), (gaps, drawn), intervals = concurrently(
        gaps_n,
        lambda: map_patterns(named, names),
        lambda: _longest_gaps(trace, rank, [ops for ops, _ in named], names, host, options),
        lambda: (
            map_idle_intervals(lined_up, host.profiler, options["min_gap_ns"]) if known else None
        ),
    )
    if known:
        devices = [
            replace(device, sums=gap_sums.without_names())
            for device, gap_sums in zip(devices, sums, strict=True)
        ]
    rank_idle = RankIdle(
        devices=tuple(devices), gaps=gaps, patterns=patterns, intervals=intervals, missing=missing
    )
    return IdlePartial({rank: rank_idle}, few_longest(drawn), lengths)


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
