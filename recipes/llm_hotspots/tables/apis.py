"""The tables of llm_hotspots about calls on the host: by function, by class, by call stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.numeric.distributions import HistogramByName, Moments, OrderStatistics
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, distribution_columns, nullable, percent, sorted_columns
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.trace.identity import Rank

from ..per_rank.apis import CLASS_NAMES
from ..per_rank.host import RankHost
from ..per_rank.host_time import GroupTimes

HostRows = Sequence[tuple[Rank, RankHost]]

_SUMS: Final = ("total_ns", "thread_union_ns", "union_ns", "hidden_ns", "outside_ns")


def api_tables(
    rows: HostRows, durations: HistogramByName, options: Mapping[str, Any]
) -> dict[str, Columns]:
    """Return the tables about calls on the host.

    Args:
        rows: Each rank, in order.
        durations: How often a call of each API function took how long, over all ranks.
        options: top.
    """
    rank_apis = _rank_apis(rows)
    return {
        "apis": _apis(rank_apis, durations),
        "rank_apis": sorted_columns(rank_apis, "rank", "-total_ns", "api"),
        "api_classes": _api_classes(rows),
        "os_waits": _os_waits(rows),
        "callstacks": _callstacks(rows, options),
    }


def rank_columns(rows_n: Sequence[tuple[Rank, int]]) -> Columns:
    """Return the columns rank and file for so many rows of each rank."""
    return {
        "rank": joined([np.full(n, rank.number, dtype=np.int64) for rank, n in rows_n]),
        "file": [rank.file for rank, n in rows_n for _ in range(n)],
    }


def _rank_apis(rows: HostRows) -> Columns:
    parts = [host.apis.functions for _, host in rows]
    names = [name for part in parts for name in part.names]
    total_ns = joined([part.times.total_ns for part in parts])
    rank_ns = [np.full(len(part.names), part.times.total_ns.sum()) for part in parts]
    return {
        **rank_columns([(rank, len(host.apis.functions.names)) for rank, host in rows]),
        "api": names,
        "class": [classify_api(name) for name in names],
        "threads_n": joined([part.times.threads_n for part in parts]),
        **_call_distribution(
            Moments.joined([part.moments for part in parts]),
            OrderStatistics.joined([part.order for part in parts]),
        ),
        **_times([part.times for part in parts]),
        "total_pct": percent(total_ns, joined(rank_ns)),
        "longest_start_ns": nullable(joined([part.longest_start_ns for part in parts])),
        "broken_n": joined([part.broken_n for part in parts]),
    }


def _apis(rank_apis: Columns, durations: HistogramByName) -> Columns:
    """Return the functions over all ranks: sums of the ranks', percentiles of all calls."""
    names = list(durations.names)
    frame = pd.DataFrame({name: rank_apis[name] for name in ("api", "broken_n", *_SUMS)})
    sums = frame.groupby("api").sum().reindex(names)
    called = pd.DataFrame({"api": rank_apis["api"], "called": rank_apis["calls_n"] > 0})
    ranks_n = called.groupby("api")["called"].sum().reindex(names)
    moments = durations.counts.moments(len(names))
    total_ns = sums["total_ns"].to_numpy(np.int64)
    columns = {
        "api": names,
        "class": [classify_api(name) for name in names],
        "ranks_n": ranks_n.to_numpy(np.int64),
        **_call_distribution(moments, durations.counts.order_statistics(len(names))),
        **{name: sums[name].to_numpy(np.int64) for name in _SUMS},
        "total_pct": percent(total_ns, int(total_ns.sum())),
        "broken_n": sums["broken_n"].to_numpy(np.int64),
    }
    return sorted_columns(_with_exposed(columns), "-total_ns", "api")


def _call_distribution(moments: Moments, order: OrderStatistics) -> Columns:
    columns = distribution_columns(moments, order)
    columns["calls_n"] = columns.pop("launches_n")
    return columns


def _times(parts: Sequence[GroupTimes]) -> Columns:
    return _with_exposed({name: joined([getattr(part, name) for part in parts]) for name in _SUMS})


def _with_exposed(columns: Columns) -> Columns:
    return {
        **columns,
        "exposed_ns": columns["union_ns"] - columns["hidden_ns"] - columns["outside_ns"],
        "hidden_pct": percent(columns["hidden_ns"], columns["union_ns"]),
    }


def _api_classes(rows: HostRows) -> Columns:
    parts = [host.apis.classes for _, host in rows]
    functions_n = [_functions_n(host) for _, host in rows]
    columns = {
        **rank_columns([(rank, len(CLASS_NAMES)) for rank, _ in rows]),
        "class": [name for _ in rows for name in CLASS_NAMES],
        "functions_n": joined(functions_n),
        "threads_n": joined([part.times.threads_n for part in parts]),
        "calls_n": joined([part.calls_n for part in parts]),
        **_times([part.times for part in parts]),
        "window_ns": joined([np.full(len(CLASS_NAMES), part.window_ns) for part in parts]),
        "steady_window_ns": joined(
            [np.full(len(CLASS_NAMES), part.steady_window_ns) for part in parts]
        ),
        "steady_calls_n": joined([part.steady_n for part in parts]),
        "steady_total_ns": joined([part.steady_total_ns for part in parts]),
        "drained_gaps_n": nullable(joined([part.drained_n for part in parts])),
        "drained_ns": nullable(joined([part.drained_ns for part in parts])),
        "profiler_ns": joined([part.profiler_ns for part in parts]),
    }
    columns["steady_rate"] = percent(
        columns["steady_calls_n"] * 10_000_000, columns["steady_window_ns"]
    )
    frame = pd.DataFrame(columns)
    used = frame[(frame["calls_n"] > 0) | (frame["threads_n"] > 0)]
    return sorted_columns({name: used[name] for name in used}, "rank", "-total_ns", "class")


def _functions_n(host: RankHost) -> IntArray:
    kinds = [CLASS_NAMES.index(classify_api(name)) for name in host.apis.functions.names]
    return np.bincount(np.array(kinds, dtype=np.int64), minlength=len(CLASS_NAMES)).astype(np.int64)


def _os_waits(rows: HostRows) -> Columns:
    parts = [host.os_waits for _, host in rows]
    columns = {
        **rank_columns([(rank, len(host.os_waits.names)) for rank, host in rows]),
        "function": [name for part in parts for name in part.names],
        "threads_n": joined([part.times.threads_n for part in parts]),
        **_call_distribution(
            Moments.joined([part.moments for part in parts]),
            OrderStatistics.joined([part.order for part in parts]),
        ),
        "total_ns": joined([part.times.total_ns for part in parts]),
        "thread_union_ns": joined([part.times.thread_union_ns for part in parts]),
        "longest_start_ns": nullable(joined([part.longest_start_ns for part in parts])),
        "launching_ns": joined([part.launching.union_ns for part in parts]),
        "launching_hidden_ns": joined([part.launching.hidden_ns for part in parts]),
        "launching_outside_ns": joined([part.launching.outside_ns for part in parts]),
    }
    columns["launching_exposed_ns"] = (
        columns["launching_ns"] - columns["launching_hidden_ns"] - columns["launching_outside_ns"]
    )
    columns["launching_profiler_ns"] = joined([part.profiler_ns for part in parts])
    return sorted_columns(columns, "rank", "-total_ns", "function")


def _callstacks(rows: HostRows, options: Mapping[str, Any]) -> Columns:
    stack_rows = [
        {
            "rank": rank.number,
            "file": rank.file,
            "class": classify_api(callstack.api),
            **vars(callstack),
        }
        for rank, host in rows
        for callstack in host.callstacks
    ]
    stack_rows.sort(key=lambda row: (-row["total_ns"], row["rank"], row["api"], row["stack"]))
    names = ("rank", "file", "api", "class", "stack", "calls_n", "total_ns", "max_ns")
    return {
        name: [row[name] for row in stack_rows[: options["top"]]]
        for name in (*names, "first_start_ns")
    }
