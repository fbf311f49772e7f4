"""The tables of llm_hotspots about launches: launches and kernel_launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.facts.operations.launches import PEAK_NS, STAGES, CallTimes
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.numeric.distributions import Spread
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import (
    Columns,
    percent,
    rank_columns,
    record_columns,
    sorted_columns,
    spread_columns,
)

#: A storm is at least this many kernels a second of at most this median duration, in ns; the
#: thresholds of nsys-llm-explainer 0.1.0 (heuristics.py), whose rate is that of the whole window.
STORMS: Final = ((50_000, 10_000), (100_000, 20_000))


def launch_tables(ranks: RankRows, devices: Columns) -> dict[str, Columns]:
    """Return the tables about launches; `devices` is the table of that name."""
    return {"launches": _launches(ranks, devices), "kernel_launches": _kernel_launches(ranks)}


def _launches(ranks: RankRows, devices: Columns) -> Columns:
    launches = [(rank, launch) for rank, part in ranks for launch in part.launches]
    plain = ("device_id", "kernels_n", "graph_nodes_n", "pdl_pairs_n", "pdl_hidden_ns")
    columns = record_columns(launches, *plain)
    window_ns = np.array(devices["window_ns"], dtype=np.int64)
    active_ns = window_ns - np.array([item.long_gaps_ns for _, item in launches], dtype=np.int64)
    kernels_n = np.array(columns["kernels_n"], dtype=np.int64)
    peak_n = np.array([item.peak_kernels_n for _, item in launches], dtype=np.int64)
    short_n = np.array([item.under_5us_n for _, item in launches], dtype=np.int64)
    durations = stacked(Spread, [item.durations for _, item in launches])
    p50_ns = spread_columns(durations)["p50_ns"]
    peak_rate = _per_second(peak_n, np.full(len(peak_n), PEAK_NS))
    return {
        **columns,
        **{name: devices[name] for name in ("window_start_ns", "window_end_ns", "window_ns")},
        "rate_active": _per_second(kernels_n, active_ns),
        "rate_peak_100ms": peak_rate,
        "p50_ns": p50_ns,
        "under_5us_pct": percent(short_n, kernels_n),
        "storm": _storms(peak_rate, p50_ns),
        **_call_columns([item.calls for _, item in launches]),
    }


def _per_second(count: IntArray, time_ns: IntArray) -> npt.NDArray[np.float64]:
    return percent(count * 10_000_000, time_ns)


def _storms(rate: npt.NDArray[np.float64], p50_ns: Any) -> npt.NDArray[np.bool_]:
    # A comparison with NaN, of a device without kernels, is False.
    return np.any([(rate >= least) & (p50_ns <= most) for least, most in STORMS], axis=0)


def _call_columns(calls: Sequence[CallTimes | None]) -> Columns:
    return {
        field.name: pd.array(
            [None if call is None else getattr(call, field.name) for call in calls], dtype="Int64"
        )
        for field in fields(CallTimes)
    }


def _kernel_launches(ranks: RankRows) -> Columns:
    rows = [part.stages for _, part in ranks]
    spreads = {stage: stacked(Spread, [part.spreads[stage] for part in rows]) for stage in STAGES}
    columns = {
        **rank_columns([(rank, len(part.stages.kernel)) for rank, part in ranks]),
        "device_id": joined([part.device_id for part in rows]),
        # The lower 24 bits of a globalTid are the thread's number in its system.
        "tid": joined([part.thread for part in rows]) & 0xFFFFFF,
        "api": [name for part in rows for name in part.api],
        "name": [part.names[code] for _, part in ranks for code in part.stages.kernel.tolist()],
        "launches_n": spreads["api"].moments.n,
        "queued_n": spreads["queue"].moments.n,
        **{f"{stage}_p50_ns": spread_columns(spreads[stage])["p50_ns"] for stage in STAGES},
        "overall_max_ns": spread_columns(spreads["overall"])["max_ns"],
    }
    return sorted_columns(columns, "rank", "device_id", "-launches_n", "name", "api", "tid")
