"""The tables of llm_hotspots about calls on the host, by function and by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.facts.operations.apis import ApiClasses, RankApis
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Spread
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
from nsys_llm.taxonomy.api_classes import API_CLASSES, classify_api

_OF_CALLS: Final = ("launches_n", "mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns")


def api_tables(ranks: RankRows, durations: ByKey) -> dict[str, Columns]:
    """Return the tables apis, rank_apis and api_classes; `durations` are those of all ranks."""
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
    rank_ns = np.repeat([part.total_ns.sum() for part in parts], names_n)
    return {
        **rank_columns([(rank, n) for (rank, _), n in zip(ranks, names_n, strict=True)]),
        **_of_calls(rows.names, rows.spread),
        "longest_start_ns": nullable(rows.longest_start_ns),
        "total_ns": rows.total_ns,
        "total_pct": percent(rows.total_ns, rank_ns),
        "broken_n": rows.broken_n,
    }


def _apis(rank_apis: Columns, durations: ByKey) -> Columns:
    """Return the functions over all ranks: sums of the ranks', percentiles of all calls."""
    frame = pd.DataFrame({name: rank_apis[name] for name in ("api", "broken_n", "total_ns")})
    frame["ranks_n"] = np.asarray(rank_apis["calls_n"] > 0, dtype=np.int64)
    sums = frame.groupby("api").sum().reindex([*durations.keys]).astype(np.int64)
    total_ns = sums["total_ns"].to_numpy()
    columns = {
        **_of_calls(durations.keys, durations.counts.spread(len(durations.keys))),
        **{name: sums[name].to_numpy() for name in sums},
        "total_pct": percent(total_ns, int(total_ns.sum())),
    }
    return sorted_columns(columns, "-total_ns", "api")


def _api_classes(ranks: RankRows) -> Columns:
    rows = stacked(ApiClasses, [part.apis.classes for _, part in ranks])
    rank_ns = np.repeat([part.apis.total_ns.sum() for _, part in ranks], len(API_CLASSES))
    columns = {
        **rank_columns([(rank, len(API_CLASSES)) for rank, _ in ranks]),
        "class": [*API_CLASSES] * len(ranks),
        **_calls(rows.spread),
        "total_ns": rows.total_ns,
        "total_pct": percent(rows.total_ns, rank_ns),
    }
    used = taken(columns, np.flatnonzero((rows.spread.moments.n > 0) | (rows.total_ns > 0)))
    return sorted_columns(used, "rank", "-total_ns", "class")


def _of_calls(names: Sequence[str], spread: Spread) -> Columns:
    classes = [classify_api(name) for name in names]
    return {"api": [*names], "class": classes, **_calls(spread)}


def _calls(spread: Spread) -> Columns:
    columns = spread_columns(spread, _OF_CALLS)
    return {"calls_n": columns.pop("launches_n"), **columns}
