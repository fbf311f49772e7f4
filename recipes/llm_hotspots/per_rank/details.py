"""What is told of a rank beyond its census: over time, launch by launch, and as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

from .gpu_metrics import DeviceMetrics, map_gpu_metrics
from .graph_replays import GraphReplays, map_graph_replays
from .memory import MemorySeries, map_memory
from .rates import DeviceRates, map_rates
from .timeline import TimelineRow, map_timeline
from .watched_kernels import RankWatchedKernels, map_watched_kernels


@dataclass(frozen=True)
class RankDetails:
    """One rank; each part is described where it is made."""

    rates: tuple[DeviceRates, ...] = ()
    watched: RankWatchedKernels = field(default_factory=RankWatchedKernels)
    timeline: tuple[TimelineRow, ...] = ()
    memory: tuple[MemorySeries, ...] = ()
    metrics: tuple[DeviceMetrics, ...] = ()
    graphs: tuple[GraphReplays, ...] = ()


def map_details(
    trace: RankTrace,
    rank: RankKey,
    options: Mapping[str, Any],
    shown: tuple[Sequence[str], IntArray],
    pairs: tuple[Sequence[tuple[str, str]], IntArray],
) -> RankDetails:
    """Reduce one rank.

    Args:
        trace: Its rows.
        rank: Its key.
        options: kernel, timeline, top, device.
        shown: Shown kernel names, and each kernel's position among them.
        pairs: Shown and demangled names, and each kernel's position among them.
    """
    names, name = shown
    return RankDetails(
        rates=map_rates(trace),
        watched=map_watched_kernels(trace, options, *pairs),
        timeline=map_timeline(trace, options, names, name),
        memory=map_memory(trace, rank.global_pid, options),
        metrics=map_gpu_metrics(trace, rank.global_pid, len(names), name),
        graphs=map_graph_replays(trace),
    )
