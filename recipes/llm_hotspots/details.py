"""What is told of a rank beyond its census: over time, launch by launch, and as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from nsys_llm.categories import Classification
from nsys_llm.columns import Columns
from nsys_llm.distributions import ValueCounts
from nsys_llm.identity import Rank, RankKey
from nsys_llm.intervals import IntArray
from nsys_llm.rank_trace import RankTrace
from nsys_llm.recipes.llm_hotspots.gpu_metrics import DeviceMetrics, map_gpu_metrics
from nsys_llm.recipes.llm_hotspots.measured_tables import gpu_metric_columns, memory_columns
from nsys_llm.recipes.llm_hotspots.memory import MemorySeries, map_memory
from nsys_llm.recipes.llm_hotspots.rates import (
    DeviceRates,
    duration_columns,
    map_rates,
    rate_columns,
)
from nsys_llm.recipes.llm_hotspots.stakeout import RankStakeout, map_stakeout, stakeout_columns
from nsys_llm.recipes.llm_hotspots.timeline import TimelineRow, map_timeline, timeline_columns

__all__ = ["RankDetails", "detail_columns", "map_details"]


@dataclass(frozen=True)
class RankDetails:
    """One rank; each part is described where it is made."""

    rates: tuple[DeviceRates, ...] = ()
    stakeout: RankStakeout = field(default_factory=RankStakeout)
    timeline: tuple[TimelineRow, ...] = ()
    memory: tuple[MemorySeries, ...] = ()
    metrics: tuple[DeviceMetrics, ...] = ()


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
        stakeout=map_stakeout(trace, options, *pairs),
        timeline=map_timeline(trace, options, names, name),
        memory=map_memory(trace, rank.global_pid, options),
        metrics=map_gpu_metrics(trace, rank.global_pid, len(names), name),
    )


def detail_columns(
    parts: Sequence[tuple[Rank, Sequence[str], RankDetails]],
    names: Sequence[str],
    durations: ValueCounts,
    shown: Mapping[str, Classification],
    kernels: Columns,
    options: Mapping[str, Any],
) -> dict[str, Columns]:
    """Return the tables of the details.

    Args:
        parts: Ranks in order, with their shown kernel names.
        names: What the groups of `durations` stand for.
        durations: Of all launches of all ranks.
        shown: Classification of each shown name.
        kernels: The table `kernels`, which says what the top kernels are.
        options: top is how many kernels have rows of their own.
    """
    top = pd.Series(kernels["name"]).head(options["top"]).tolist()
    return {
        "launch_rate": rate_columns([(rank, one.rates) for rank, _, one in parts]),
        "durations": duration_columns(names, top, durations),
        **stakeout_columns([(rank, one.stakeout) for rank, _, one in parts]),
        "timeline": timeline_columns([(rank, one.timeline) for rank, _, one in parts]),
        **memory_columns([(rank, one.memory) for rank, _, one in parts]),
        "gpu_metrics": gpu_metric_columns(
            [(rank, mine, one.metrics) for rank, mine, one in parts], shown, top
        ),
    }
