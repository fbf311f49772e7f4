"""The tables of llm_hotspots about calls on the host, by function."""

from __future__ import annotations

from collections.abc import Sequence

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
)
from nsys_llm.taxonomy.api_classes import classify_api

from ..partials import RankRows
from ..per_rank.apis import RankApis


def api_tables(ranks: RankRows, durations: HistogramByName) -> dict[str, Columns]:
    """Return the tables apis and rank_apis; `durations` are those of all ranks."""
    rank_apis = _rank_apis(ranks)
    return {
        "apis": _apis(rank_apis, durations),
        "rank_apis": sorted_columns(rank_apis, "rank", "-total_ns", "api"),
    }


def _rank_apis(ranks: RankRows) -> Columns:
    parts = [part.apis for _, part in ranks]
    rows = stacked(RankApis, parts)
    names_n = [len(part.names) for part in parts]
    rank_ns = np.repeat([part.total_ns.sum() for part in parts], names_n)
    return {
        **rank_columns([(rank, n) for (rank, _), n in zip(ranks, names_n, strict=True)]),
        **_of_calls(rows.names, rows.spread),
        "longest_start_ns": nullable(rows.longest_start_ns),
        "total_ns": rows.total_ns,
        "total_pct": percent(rows.total_ns, rank_ns),
        "broken_n": rows.broken_n,
    }


def _apis(rank_apis: Columns, durations: HistogramByName) -> Columns:
    """Return the functions over all ranks: sums of the ranks', percentiles of all calls."""
    frame = pd.DataFrame({name: rank_apis[name] for name in ("api", "broken_n", "total_ns")})
    frame["ranks_n"] = np.asarray(rank_apis["calls_n"] > 0, dtype=np.int64)
    sums = frame.groupby("api").sum().reindex([*durations.names]).astype(np.int64)
    total_ns = sums["total_ns"].to_numpy()
    columns = {
        **_of_calls(durations.names, durations.counts.spread(len(durations.names))),
        **{name: sums[name].to_numpy() for name in sums},
        "total_pct": percent(total_ns, int(total_ns.sum())),
    }
    return sorted_columns(columns, "-total_ns", "api")


def _of_calls(names: Sequence[str], spread: Spread) -> Columns:
    columns = spread_columns(spread)
    return {
        "api": [*names],
        "class": [classify_api(name) for name in names],
        "calls_n": columns.pop("launches_n"),
        **columns,
    }
