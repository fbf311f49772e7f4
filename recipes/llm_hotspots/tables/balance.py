"""How unevenly the ranks share the work: per kernel, per category, and by host.

A rank without a kernel counts with a time of 0. Inside a collective those ranks wait that came
early, so there the rank with the LEAST time may be the late one; `rank_verdicts` tells who is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.numeric.grouping import distinct_codes, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.rank_spread import RankSpread
from nsys_llm.report.columns import Columns, percent, sorted_columns
from nsys_llm.taxonomy.communication import COMMUNICATION, is_communication
from nsys_llm.trace.identity import Rank

#: Name of the row of all kernels that are no communication.
COMPUTE: Final = "compute"

#: Scopes in the order in which their rows stand; all but the last also by host.
_SCOPES: Final = ("total", "category", "kernel")

_Objects = npt.NDArray[Any]


def imbalance_tables(sources: pd.DataFrame, ranks: Sequence[Rank]) -> dict[str, Columns]:
    """Return the tables imbalance and host_imbalance.

    Args:
        sources: One row a rank, shown name and full name, with category, launches_n and total_ns.
        ranks: Those with GPU work, in order of their numbers.
    """
    used = sources[(sources["launches_n"] > 0) | (sources["total_ns"] > 0)]
    reported = {name: is_communication(name) for name in used["full_name"].unique()}
    communication = used["full_name"].map(reported).to_numpy(dtype=bool)
    part_of: dict[str, _Objects] = {
        "total": np.where(communication, COMMUNICATION, COMPUTE).astype(object),
        "category": used["category"].to_numpy(dtype=object),
        "kernel": used["name"].to_numpy(dtype=object),
    }
    parts = {scope: _parts(used, part_of[scope], communication, ranks) for scope in _SCOPES}
    hosts = [rank.facts.host if rank.facts else None for rank in ranks]
    spreads = [_spread_columns(scope, part, ranks, hosts) for scope, part in parts.items()]
    by_host = [_host_columns(scope, parts[scope], hosts) for scope in _SCOPES[:-1]]
    return {"imbalance": _stacked(spreads), "host_imbalance": _stacked(by_host)}


@dataclass(frozen=True)
class _Parts:
    """What is compared over ranks.

    Attributes:
        names: Sorted.
        communication: Of each name, whether it is nothing but communication.
        total_ns: By name and rank.
        launches_n: Likewise.
    """

    names: _Objects
    communication: npt.NDArray[np.bool_]
    total_ns: RankSpread
    launches_n: RankSpread


def _parts(
    used: pd.DataFrame,
    part: _Objects,
    communication: npt.NDArray[np.bool_],
    ranks: Sequence[Rank],
) -> _Parts:
    """Sum the rows up by part and rank; `part` and `communication` have the shape (rows,)."""
    code, names = pd.factorize(part, sort=True)
    numbers = np.array([rank.number for rank in ranks], dtype=np.int64)
    position = np.searchsorted(numbers, used["rank"].to_numpy(np.int64))
    cells, cell = distinct_codes(code.astype(np.int64) * max(len(ranks), 1) + position)
    mixed = np.bincount(code[~communication], minlength=len(names)) > 0
    total_ns, launches_n = (
        summed(cell, used[name].to_numpy(np.int64), cells.size)
        for name in ("total_ns", "launches_n")
    )
    part_code, rank_position = np.divmod(cells, max(len(ranks), 1))
    times = RankSpread(part_code, rank_position, total_ns, len(names), len(ranks))
    return _Parts(
        names=np.asarray(names, dtype=object),
        communication=~mixed,
        total_ns=times,
        launches_n=replace(times, value=launches_n),
    )


def _spread_columns(
    scope: str, parts: _Parts, ranks: Sequence[Rank], hosts: Sequence[str | None]
) -> Columns:
    times = parts.total_ns
    lowest, highest = times.rank_of_least(), times.rank_of_most()
    least, most, twice_p50 = (
        times.ordered(0),
        times.ordered(times.ranks_n - 1),
        times.twice_median(),
    )
    twice_others = times.twice_median_below_most()
    numbers = np.array([rank.number for rank in ranks], dtype=np.int64)
    host_of = np.array(hosts, dtype=object)
    total_ns, excess_ns = times.total(), times.excess()
    columns: Columns = {
        "scope": [scope] * times.parts_n,
        "name": parts.names,
        "communication": parts.communication,
        "ranks_n": times.present_n(),
        "all_ranks_n": np.full(times.parts_n, times.ranks_n),
        "total_ns": total_ns,
        "mean_ns": total_ns / max(times.ranks_n, 1),
        "min_ns": least,
        "p50_ns": twice_p50 / 2,
        "others_p50_ns": twice_others / 2,
        "max_ns": most,
        "least_rank": numbers[lowest],
        "least_host": host_of[lowest],
        "most_rank": numbers[highest],
        "most_host": host_of[highest],
        "most_rank_launches_n": parts.launches_n.at(highest),
        "least_rank_launches_n": parts.launches_n.at(lowest),
        "typical_launches_n": parts.launches_n.lower_median(),
        "most_over_p50": np.where(
            twice_others == 0, np.nan, 2 * most / np.maximum(twice_others, 1)
        ),
        "excess_ns": excess_ns,
        "excess_pct": percent(excess_ns, total_ns),
    }
    return sorted_columns(columns, "-excess_ns", "name")


def _host_columns(scope: str, parts: _Parts, hosts: Sequence[str | None]) -> Columns:
    shown: list[str | None] = [*sorted({host for host in hosts if host is not None})]
    if None in hosts:
        shown.append(None)
    code = np.array([shown.index(host) for host in hosts], dtype=np.int64)
    times, hosts_n = parts.total_ns, len(shown)
    cell = times.part * hosts_n + code[times.rank]
    total_ns = summed(cell, times.value, times.parts_n * hosts_n)
    ranks_n = np.tile(np.bincount(code, minlength=hosts_n), times.parts_n)
    twice_p50 = _twice_medians_elsewhere(times, code, hosts_n)
    mean_ns = total_ns / ranks_n
    return {
        "scope": [scope] * total_ns.size,
        "name": np.repeat(parts.names, hosts_n),
        "host": np.tile(np.array(shown, dtype=object), times.parts_n),
        "ranks_n": ranks_n,
        "total_ns": total_ns,
        "mean_ns": mean_ns,
        "p50_ns": twice_p50 / 2,
        "mean_over_p50": np.where(twice_p50 == 0, np.nan, 2 * mean_ns / np.maximum(twice_p50, 1)),
    }


def _twice_medians_elsewhere(times: RankSpread, host: IntArray, hosts_n: int) -> IntArray:
    """Return twice the median over the ranks of all other hosts, by part and host.

    Of ranks on one host, over all of them: there is nothing else to compare with.
    """
    if hosts_n < 2:
        return times.twice_median()
    twice = np.zeros((times.parts_n, hosts_n), dtype=np.int64)
    for index in range(hosts_n):
        elsewhere = np.flatnonzero(host != index)
        rows = np.flatnonzero(host[times.rank] != index)
        spread = np.zeros((times.parts_n, elsewhere.size), dtype=np.int64)
        spread[times.part[rows], np.searchsorted(elsewhere, times.rank[rows])] = times.value[rows]
        spread.sort(axis=1)
        last = elsewhere.size - 1
        twice[:, index] = spread[:, last // 2] + spread[:, (last + 1) // 2]
    return twice.ravel()


def _stacked(parts: Sequence[Mapping[str, Any]]) -> Columns:
    """Put the rows of several scopes one below the other."""
    frames = [pd.DataFrame(dict(part)) for part in parts]
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    frame = pd.concat(filled, ignore_index=True)
    return {name: frame[name] for name in frame.columns}
