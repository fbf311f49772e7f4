"""The tables of llm_hotspots about calls on the host, by function, and about launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.facts.operations.apis import RankApis
from nsys_llm.facts.operations.launches import PEAK_NS, STAGES
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Spread
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import (
    Columns,
    nullable,
    percent,
    rank_columns,
    record_columns,
    sorted_columns,
    spread_columns,
)
from nsys_llm.taxonomy.api_classes import classify_api

_OF_CALLS: Final = ("launches_n", "mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns")
#: A storm is at least this many kernels a second of at most this median duration, in ns; the
#: thresholds of nsys-llm-explainer 0.1.0 (heuristics.py), whose rate is that of the whole window.
STORMS: Final = ((50_000, 10_000), (100_000, 20_000))


def api_tables(ranks: RankRows, durations: ByKey) -> dict[str, Columns]:
    """Return the tables apis and rank_apis; `durations` are those of all ranks."""
    rank_apis = _rank_apis(ranks)
    return {
        "apis": _apis(rank_apis, durations),
        "rank_apis": sorted_columns(rank_apis, "rank", "-total_ns", "api"),
    }


def _rank_apis(ranks: RankRows) -> Columns:
    parts = [part.apis for _, part in ranks]
    rows = stacked(RankApis, parts)
    rank_ns = np.repeat(
        [part.total_ns.sum() for part in parts], [len(part.names) for part in parts]
    )
    return {
        **rank_columns([(rank, len(part.apis.names)) for rank, part in ranks]),
        **_of_calls(rows.names, rows.spread),
        "longest_start_ns": nullable(rows.longest_start_ns),
        "total_ns": rows.total_ns,
        "total_pct": percent(rows.total_ns, rank_ns),
    }


def _apis(rank_apis: Columns, durations: ByKey) -> Columns:
    """Return the functions over all ranks: sums of the ranks', percentiles of all calls."""
    frame = pd.DataFrame({name: rank_apis[name] for name in ("api", "total_ns")})
    frame["ranks_n"] = np.asarray(rank_apis["calls_n"] > 0, dtype=np.int64)
    sums = frame.groupby("api").sum().reindex([*durations.keys]).astype(np.int64)
    total_ns = sums["total_ns"].to_numpy()
    columns = {
        **_of_calls(durations.keys, durations.counts.spread(len(durations.keys))),
        **{name: sums[name].to_numpy() for name in sums},
        "total_pct": percent(total_ns, int(total_ns.sum())),
    }
    return sorted_columns(columns, "-total_ns", "api")


def _of_calls(names: Sequence[str], spread: Spread) -> Columns:
    columns = spread_columns(spread, _OF_CALLS)
    return {
        "api": [*names],
        "class": list(map(classify_api, names)),
        "calls_n": columns.pop("launches_n"),
        **columns,
    }


def launch_columns(ranks: RankRows, devices: Columns) -> Columns:
    """Return the table launches; `devices` is the table of that name."""
    launches = [(rank, launch) for rank, part in ranks for launch in part.launches]
    plain = ("device_id", "kernels_n", "graph_nodes_n", "pdl_pairs_n", "pdl_hidden_ns")
    long_gaps_ns, kernels_n, peak_n, short_n = (
        np.array([getattr(item, name) for _, item in launches], dtype=np.int64)
        for name in ("long_gaps_ns", "kernels_n", "peak_kernels_n", "under_5us_n")
    )
    active_ns = np.array(devices["window_ns"], dtype=np.int64) - long_gaps_ns
    p50_ns = spread_columns(stacked(Spread, [item.durations for _, item in launches]))["p50_ns"]
    peak_rate = _per_second(peak_n, np.full(len(peak_n), PEAK_NS))
    # A comparison with NaN, of a device without kernels, is False.
    storms = [(peak_rate >= least) & (p50_ns <= most) for least, most in STORMS]
    return {
        **record_columns(launches, *plain),
        **{name: devices[name] for name in ("window_start_ns", "window_end_ns", "window_ns")},
        "rate_active": _per_second(kernels_n, active_ns),
        "rate_peak_100ms": peak_rate,
        "p50_ns": p50_ns,
        "under_5us_pct": percent(short_n, kernels_n),
        "storm": np.any(storms, axis=0),
        **{
            name: pd.array([getattr(item, name) for _, item in launches], dtype="Int64")
            for name in ("host_launches_n", "launch_api_ns")
        },
    }


def _per_second(count: IntArray, time_ns: IntArray) -> npt.NDArray[np.float64]:
    return percent(count * 10_000_000, time_ns)


def kernel_launch_columns(ranks: RankRows) -> Columns:
    """Return the table kernel_launches."""
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
