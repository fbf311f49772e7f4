"""The tables of llm_hotspots about calls on the host: by function and by class."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.numeric.distributions import HistogramByName, Spread
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import (
    Columns,
    nullable,
    percent,
    rank_columns,
    sorted_columns,
    spread_columns,
    taken,
)
from nsys_llm.taxonomy.api_classes import classify_api

from ..partials import RankRows
from ..per_rank.apis import CLASS_NAMES, ApiClasses, RankApis
from ..per_rank.host_time import GroupTimes

_SUMS: Final = (
    "total_ns",
    "union_ns",
    "hidden_ns",
    "outside_ns",
    "exposed_ns",
)


def api_tables(ranks: RankRows, durations: HistogramByName) -> dict[str, Columns]:
    """Return the tables about calls on the host; `durations` are those of all ranks."""
    rank_apis = _rank_apis(ranks)
    return {
        "apis": _apis(rank_apis, durations),
        "rank_apis": sorted_columns(rank_apis, "rank", "-total_ns", "api"),
        "api_classes": _api_classes(ranks),
    }


def _rank_apis(ranks: RankRows) -> Columns:
    parts = [part.apis for _, part in ranks]
    rows = stacked(RankApis, parts)
    names_n = [len(part.names) for part in parts]
    rank_ns = np.repeat([part.times.total_ns.sum() for part in parts], names_n)
    return {
        **rank_columns([(rank, n) for (rank, _), n in zip(ranks, names_n, strict=True)]),
        "api": list(rows.names),
        "class": [classify_api(name) for name in rows.names],
        **_call_spread(rows.spread),
        "threads_n": rows.times.threads_n,
        "longest_start_ns": nullable(rows.longest_start_ns),
        **_times(rows.times),
        "total_pct": percent(rows.times.total_ns, rank_ns),
        "broken_n": rows.broken_n,
    }


def _call_spread(spread: Spread) -> Columns:
    columns = spread_columns(spread)
    return {"calls_n": columns.pop("launches_n"), **columns}


def _apis(rank_apis: Columns, durations: HistogramByName) -> Columns:
    """Return the functions over all ranks: sums of the ranks', percentiles of all calls."""
    names = list(durations.names)
    frame = pd.DataFrame({name: rank_apis[name] for name in ("api", "broken_n", *_SUMS)})
    frame["ranks_n"] = np.asarray(rank_apis["calls_n"] > 0, dtype=np.int64)
    sums = frame.groupby("api").sum().reindex(names).astype(np.int64)
    columns = _call_spread(durations.counts.spread(len(names)))
    columns |= {name: sums[name].to_numpy() for name in sums}
    columns |= {
        "api": names,
        "class": [classify_api(name) for name in names],
        "hidden_pct": percent(columns["hidden_ns"], columns["union_ns"]),
        "total_pct": percent(columns["total_ns"], int(columns["total_ns"].sum())),
    }
    return sorted_columns(columns, "-total_ns", "api")


def _times(times: GroupTimes) -> Columns:
    return {
        **{name: getattr(times, name) for name in _SUMS},
        "hidden_pct": percent(times.hidden_ns, times.union_ns),
    }


def _api_classes(ranks: RankRows) -> Columns:
    rows = stacked(ApiClasses, [part.apis.classes for _, part in ranks])
    columns = {
        **rank_columns([(rank, len(CLASS_NAMES)) for rank, _ in ranks]),
        "class": [name for _ in ranks for name in CLASS_NAMES],
        "threads_n": rows.times.threads_n,
        "calls_n": rows.calls_n,
        **_times(rows.times),
    }
    used = taken(columns, np.flatnonzero((rows.calls_n > 0) | (rows.times.threads_n > 0)))
    return sorted_columns(used, "rank", "-total_ns", "class")
