"""How unevenly the ranks share the work: per kernel and per category.

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
from nsys_llm.numeric.rank_spread import RankSpread
from nsys_llm.report.columns import Columns, percent, sorted_columns
from nsys_llm.taxonomy.communication import COMMUNICATION, is_communication
from nsys_llm.trace.identity import Rank

#: Name of the row of all kernels that are no communication.
COMPUTE: Final = "compute"

_Objects = npt.NDArray[Any]


def imbalance_columns(sources: pd.DataFrame, ranks: Sequence[Rank]) -> Columns:
    """Return the table imbalance.

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
    return _stacked(
        [
            _spread_columns(scope, _parts(used, part, communication, ranks), ranks)
            for scope, part in part_of.items()
        ]
    )


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


def _spread_columns(scope: str, parts: _Parts, ranks: Sequence[Rank]) -> Columns:
    times = parts.total_ns
    lowest, highest = times.rank_of_least(), times.rank_of_most()
    least, most, twice_p50 = (
        times.ordered(0),
        times.ordered(times.ranks_n - 1),
        times.twice_median(),
    )
    twice_others = times.twice_median_below_most()
    numbers = np.array([rank.number for rank in ranks], dtype=np.int64)
    host_of = np.array([rank.facts.host if rank.facts else None for rank in ranks], dtype=object)
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


def _stacked(parts: Sequence[Mapping[str, Any]]) -> Columns:
    """Put the rows of several scopes one below the other."""
    frames = [pd.DataFrame(dict(part)) for part in parts]
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    frame = pd.concat(filled, ignore_index=True)
    return {name: frame[name] for name in frame.columns}
