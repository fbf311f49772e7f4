"""Tables of API calls: tails over all ranks, and by rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import Moments, OrderStatistics, ValueCounts
from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import Beyond, beyond_medians, ratio, twice_medians
from nsys_llm.report.columns import Columns, nullable, rank_columns, sorted_columns
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.trace.identity import Rank

from ..per_rank.apis import ApiTails, RankApiTails
from .distributions import tail_columns

_CALLS = "calls_n"
_Floats = npt.NDArray[np.float64]
#: Median of the usual calls of each function; and number, time and twice the time beyond it of
#: calls that load, by row.
_Loads = tuple[_Floats, tuple[IntArray, IntArray, IntArray]]
_Parts = Sequence[tuple[Rank, RankApiTails]]


def api_columns(apis: ApiTails, ranks: Sequence[Rank]) -> dict[str, Columns]:
    """Return the tables api_tails and rank_api_tails."""
    parts = [(rank, apis.ranks[rank.key]) for rank in ranks if rank.key in apis.ranks]
    names, counts = apis.net.names, apis.net.counts
    net, net_order = counts.moments(len(names)), counts.order_statistics(len(names))
    twice = twice_medians(net_order)
    place = {name: index for index, name in enumerate(names)}
    codes = [np.array([place[name] for name in tails.names], dtype=np.int64) for _, tails in parts]
    usual_twice, usual = _usual(counts, parts, codes, len(names))
    loading = [
        beyond_medians(tails.loading.widened(), usual_twice[code], len(code))
        for (_, tails), code in zip(parts, codes, strict=True)
    ]
    loads = _loading(parts, loading)
    everywhere = np.where(net.n > 0, twice / 2, np.nan)
    return {
        "api_tails": _over_all(apis, parts, codes, (net, net_order), twice, (usual, loads)),
        "rank_api_tails": _by_rank(parts, codes, twice, everywhere, (usual, loads)),
    }


def _usual(
    counts: ValueCounts, parts: _Parts, codes: Sequence[IntArray], names_n: int
) -> tuple[IntArray, _Floats]:
    """Return the median of calls that set nothing up: twice, 0 of none; and once, NaN of none.

    Calls that set up are the first of a function on a rank, and the first launches of kernels:
    what they take longer is told against the others, however many of all calls they are.
    """
    setting_up = [
        _first_or_loading(tails).regrouped(code)
        for (_, tails), code in zip(parts, codes, strict=True)
    ]
    usual = counts.without(ValueCounts.merge(setting_up))
    twice = twice_medians(usual.order_statistics(names_n))
    return twice, np.where(usual.moments(names_n).n > 0, twice / 2, np.nan)


def _first_or_loading(tails: RankApiTails) -> ValueCounts:
    """Return the calls of a rank that are the first of their function, or load a kernel."""
    loading = tails.loading.widened()
    alone = np.flatnonzero((tails.first_ns != NULL_INT) & (tails.first_loads == 0))
    net_ns = tails.first_ns[alone] - tails.first_profiler_ns[alone]
    return ValueCounts.merge([loading, ValueCounts.from_values(alone, net_ns)])


def _over_all(
    apis: ApiTails,
    parts: _Parts,
    codes: Sequence[IntArray],
    judged: tuple[Moments, OrderStatistics],
    twice: IntArray,
    usual_loads: _Loads,
) -> Columns:
    names, n, counts = apis.net.names, len(apis.net.names), apis.durations.counts
    moments, order = counts.moments(n), counts.order_statistics(n)
    usual, loads = usual_loads
    code = joined(list(codes))
    total_ns = summed(code, joined([tails.total_ns for _, tails in parts]), n)
    beyond = beyond_medians(apis.net.counts, twice, n)
    called = joined(
        [rank_code[tails.moments.n > 0] for rank_code, (_, tails) in zip(codes, parts, strict=True)]
    )
    columns = {
        "api": list(names),
        "class": [classify_api(name) for name in names],
        "ranks_n": np.bincount(called, minlength=n).astype(np.int64),
        **tail_columns(
            moments,
            order,
            total_ns,
            int(total_ns.sum()),
            beyond,
            counted=_CALLS,
            judged=judged,
        ),
        "profiler_ns": summed(code, joined([tails.profiler_ns for _, tails in parts]), n),
        "net_max_ns": _longest(judged[0]),
        "usual_p50_ns": usual,
        **_loading_columns(*(summed(code, load, n) for load in loads)),
    }
    return sorted_columns(columns, "-excess_ns", "-total_ns", "api")


def _by_rank(
    parts: _Parts,
    codes: Sequence[IntArray],
    twice: IntArray,
    everywhere: _Floats,
    usual_loads: _Loads,
) -> Columns:
    rows_n = [len(tails.names) for _, tails in parts]
    code = joined(list(codes))
    usual, loads = usual_loads
    beyond = [
        beyond_medians(tails.counts.widened(), twice[rank_code], len(rank_code))
        for (_, tails), rank_code in zip(parts, codes, strict=True)
    ]
    rank_ns = np.array([int(tails.total_ns.sum()) for _, tails in parts], dtype=np.int64)
    net = Moments.joined([tails.net for _, tails in parts])
    rich = tail_columns(
        Moments.joined([tails.moments for _, tails in parts]),
        OrderStatistics.joined([tails.order for _, tails in parts]),
        joined([tails.total_ns for _, tails in parts]),
        np.repeat(rank_ns, rows_n),
        Beyond.joined(beyond),
        counted=_CALLS,
        judged=(net, OrderStatistics.joined([tails.net_order for _, tails in parts])),
    )
    instants = ("first_start_ns", "first_ns", "first_profiler_ns", "longest_start_ns")
    names = [name for _, tails in parts for name in tails.names]
    columns = {
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, rows_n, strict=True)]),
        "api": names,
        "class": [classify_api(name) for name in names],
        **rich,
        "profiler_ns": joined([tails.profiler_ns for _, tails in parts]),
        "net_max_ns": _longest(net),
        "all_p50_ns": everywhere[code],
        "p50_all_p50": ratio(np.asarray(rich["p50_ns"], dtype=np.float64), everywhere[code]),
        "usual_p50_ns": usual[code],
        **_loading_columns(*loads),
        **{
            name: nullable(joined([getattr(tails, name) for _, tails in parts]))
            for name in (*instants, "net_longest_start_ns")
        },
    }
    return sorted_columns(columns, "rank", "-excess_ns", "-total_ns", "api")


def _longest(moments: Moments) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(moments.maximum.copy(), moments.n == 0)


def _loading(parts: _Parts, beyond: Sequence[Beyond]) -> tuple[IntArray, IntArray, IntArray]:
    """Return number, time, and twice the time beyond the median of loading calls, by row."""
    moments = [tails.loading.widened().moments(len(tails.names)) for _, tails in parts]
    return (
        joined([moment.n for moment in moments]),
        joined([moment.total for moment in moments]),
        joined([item.twice for item in beyond]),
    )


def _loading_columns(calls_n: IntArray, total_ns: IntArray, twice: IntArray) -> Columns:
    return {
        "loading_n": calls_n,
        "loading_ns": total_ns,
        "loading_excess_ns": twice // 2,
    }
