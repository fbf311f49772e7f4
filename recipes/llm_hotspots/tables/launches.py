"""The tables of llm_hotspots about launches: launches and kernel_launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, distribution_columns, percent, sorted_columns
from nsys_llm.trace.identity import Rank

from ..per_rank.host import RankHost
from ..per_rank.launch_stages import STAGES, LaunchStages, Spread
from ..per_rank.launches import PEAK_NS, SHORT_NS, CallTimes
from .apis import rank_columns

HostRows = Sequence[tuple[Rank, RankHost]]

#: A storm is at least this many kernels a second of at most this median duration, in ns; the
#: thresholds of nsys-llm-explainer 0.1.0 (heuristics.py), whose rate is that of the whole window.
STORMS: Final = ((50_000, 10_000), (100_000, 20_000))

_DEVICE_STATISTICS: Final = ("mean_ns", "p50_ns", "p99_ns", "max_ns")
_KERNEL_STATISTICS: Final = ("mean_ns", "std_ns", "min_ns", "p50_ns", "max_ns")
_NOBODY: Final = Spread.of(ValueCounts.empty(), 1)


def launch_tables(
    rows: HostRows, kernel_names: Sequence[Sequence[str]], devices: Columns
) -> dict[str, Columns]:
    """Return the tables about launches.

    Args:
        rows: Each rank, in order.
        kernel_names: The shown kernel names of each of these ranks.
        devices: The table of that name, in the order of `rows`.
    """
    return {
        "launches": _launches(rows, devices),
        "kernel_launches": _kernel_launches(rows, kernel_names),
    }


def _launches(rows: HostRows, devices: Columns) -> Columns:
    launches = [launch for _, host in rows for launch in host.launches]
    window_ns = np.array(devices["window_ns"], dtype=np.int64)
    active_ns = window_ns - np.array([item.long_gaps_ns for item in launches], dtype=np.int64)
    kernels_n = np.array([item.kernels_n for item in launches], dtype=np.int64)
    peak_n = np.array([item.peak_n for item in launches], dtype=np.int64)
    p50_ns = distribution_columns(*_joined([item.durations for item in launches]))["p50_ns"]
    peak_rate = _per_second(peak_n, np.full(len(peak_n), PEAK_NS))
    copied = ("rank", "file", "device_id", "window_start_ns", "window_end_ns", "window_ns")
    return {
        **{name: devices[name] for name in copied},
        "active_ns": active_ns,
        "long_gaps_n": [item.long_gaps_n for item in launches],
        "kernels_n": kernels_n,
        "graph_nodes_n": [item.graph_nodes_n for item in launches],
        "rate_window": _per_second(kernels_n, window_ns),
        "rate_active": _per_second(kernels_n, active_ns),
        "rate_peak_100ms": peak_rate,
        "peak_kernels_n": peak_n,
        "peak_start_ns": [item.peak_start_ns for item in launches],
        "p50_ns": p50_ns,
        **_short_columns([item.short_n for item in launches], kernels_n),
        "storm": _storms(peak_rate, p50_ns),
        **_call_columns([item.calls for item in launches]),
        **_stage_columns(rows, kernels_n),
    }


def _per_second(count: IntArray, time_ns: IntArray) -> npt.NDArray[np.float64]:
    return percent(count * 10_000_000, time_ns)


def _storms(rate: npt.NDArray[np.float64], p50_ns: Any) -> npt.NDArray[np.bool_]:
    # A comparison with NaN, of a device without kernels, is False.
    return np.any([(rate >= least) & (p50_ns <= most) for least, most in STORMS], axis=0)


def _short_columns(counts: Sequence[tuple[int, ...]], kernels_n: IntArray) -> Columns:
    columns: Columns = {}
    for index, limit_ns in enumerate(SHORT_NS):
        short_n = np.array([count[index] for count in counts], dtype=np.int64)
        columns[f"under_{limit_ns // 1000}us_n"] = short_n
        columns[f"under_{limit_ns // 1000}us_pct"] = percent(short_n, kernels_n)
    return columns


def _call_columns(calls: Sequence[CallTimes | None]) -> Columns:
    return {
        field.name: pd.array(
            [None if call is None else getattr(call, field.name) for call in calls], dtype="Int64"
        )
        for field in fields(CallTimes)
    }


def _stage_columns(rows: HostRows, kernels_n: IntArray) -> Columns:
    """Return the stages by device; counts are null where no API calls were traced."""
    by_stage: dict[str, list[Spread]] = {stage: [] for stage in STAGES}
    known = []
    for _, host in rows:
        position = {device: at for at, device in enumerate(host.stages.device_ids.tolist())}
        for device in host.launches:
            known.append(device.calls is not None)
            for stage in STAGES:
                by_stage[stage].append(_one(host.stages, stage, position.get(device.device_id)))
    spreads = {stage: _joined(parts) for stage, parts in by_stage.items()}
    counts = {
        "launched_n": spreads["api"][0].n,
        "queued_n": spreads["queue"][0].n,
        "unqueued_n": spreads["api"][0].n - spreads["queue"][0].n,
        "api_missing_n": kernels_n - spreads["api"][0].n,
    }
    none = ~np.array(known, dtype=bool)
    return {
        **{name: pd.arrays.IntegerArray(value, none.copy()) for name, value in counts.items()},
        **_statistics(spreads, _DEVICE_STATISTICS),
    }


def _one(stages: LaunchStages, stage: str, position: int | None) -> Spread:
    if position is None:
        return _NOBODY
    spread, at = stages.device_spreads[stage], np.array([position])
    return Spread(spread.moments.take(at), spread.order.take(at))


def _kernel_launches(rows: HostRows, kernel_names: Sequence[Sequence[str]]) -> Columns:
    parts = [host.stages for _, host in rows]
    spreads = {stage: _joined([part.spreads[stage] for part in parts]) for stage in STAGES}
    columns = {
        **rank_columns([(rank, len(host.stages.kernel)) for rank, host in rows]),
        "device_id": joined([part.device_id for part in parts]),
        # The lower 24 bits of a globalTid are the thread's number in its system.
        "tid": joined([part.thread for part in parts]) & 0xFFFFFF,
        "api": [name for part in parts for name in part.api],
        "name": [
            names[code]
            for part, names in zip(parts, kernel_names, strict=True)
            for code in part.kernel.tolist()
        ],
        "launches_n": spreads["api"][0].n,
        "queued_n": spreads["queue"][0].n,
        "unqueued_n": spreads["api"][0].n - spreads["queue"][0].n,
        **_statistics(spreads, _KERNEL_STATISTICS),
    }
    return sorted_columns(columns, "rank", "device_id", "-launches_n", "name", "api", "tid")


def _statistics(spreads: Mapping[str, tuple[Any, Any]], names: Sequence[str]) -> Columns:
    columns: Columns = {}
    for stage, (moments, order) in spreads.items():
        distribution = distribution_columns(moments, order)
        columns |= {f"{stage}_{name}": distribution[name] for name in names}
    return columns


def _joined(parts: Sequence[Spread]) -> tuple[Any, Any]:
    whole = Spread.joined(parts)
    return whole.moments, whole.order
