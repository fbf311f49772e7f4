"""Reduces one rank: its devices, longest gaps, patterns of gaps, and when all of it was idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.host.part import host_part
from nsys_llm.facts.idle.devices import DeviceIdle, map_device
from nsys_llm.facts.idle.gap_context import gap_ranges
from nsys_llm.facts.idle.gap_rows import GapRow, top_gaps
from nsys_llm.facts.idle.patterns import RankPatterns, map_patterns
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.trace.host_part import HostPart
from nsys_llm.trace.identity import RankKey


@dataclass(frozen=True)
class RankIdle:
    """One rank: its devices, sorted; its longest gaps; its patterns; see `LostWork`."""

    devices: tuple[DeviceIdle, ...]
    gaps: tuple[GapRow, ...]
    patterns: RankPatterns
    copy_calls_n: int
    copies_seen_n: int
    copies_cut_n: int
    host: HostPart | None = None


@dataclass(frozen=True)
class IdleFacts:
    """Many ranks.

    Attributes:
        pattern_lengths: How often a gap of each pattern had which length, over all ranks.
    """

    ranks: Mapping[RankKey, RankIdle] = field(default_factory=dict)
    pattern_lengths: ByKey = field(default_factory=ByKey)


def of(view: RankView) -> IdleFacts:
    """Reduce one rank."""
    trace = view.trace
    lined_up, host = concurrently(
        sum(map(len, trace.unfiltered.values())), lambda: view.device_ops, lambda: view.host
    )
    names = view.op_names
    gaps_n = sum(len(ops.gaps) for ops in lined_up)
    sums, devices = concurrently(
        gaps_n,
        lambda: view.gap_sums,
        lambda: [map_device(ops, names, host) for ops in lined_up],
    )
    # Not beside those, because patterns hold several times as much as the gaps on their way.
    named = [(ops, gap_sums.named) for ops, gap_sums in zip(lined_up, sums, strict=True)]
    (patterns, lengths), gaps = concurrently(
        gaps_n,
        lambda: map_patterns(named, names),
        lambda: [
            gap
            for ops, _ in named
            for gap in top_gaps(trace, ops, names, host, view.records, view.options)
        ],
    )
    devices = [
        replace(
            device,
            sums=gap_sums.without_names(),
            ranges=gap_ranges(ops, gap_sums.named, trace.tables["api_calls"], view.places),
        )
        for device, ops, gap_sums in zip(devices, lined_up, sums, strict=True)
    ]
    rank_idle = RankIdle(
        devices=tuple(devices),
        gaps=tuple(gaps),
        patterns=patterns,
        copy_calls_n=view.unrecorded.copy_calls_n,
        copies_seen_n=view.unrecorded.copies_seen_n,
        copies_cut_n=view.unrecorded.copies_cut_n,
        host=host_part(view),
    )
    view.release("device_ops")
    return IdleFacts({view.key: rank_idle}, lengths)
