"""Sums of many ranks as one data frame, and which rank has most of something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.rank_spread import RankSpread
from nsys_llm.report.columns import Columns, rank_columns
from nsys_llm.trace.identity import Rank

from ..partials import RankPhases
from ..per_rank.sums_by_key import SumsByKey

#: Ranks in order, each with what it was reduced to.
Parts = Sequence[tuple[Rank, RankPhases]]


def sums_frame(
    parts: Parts, of: Callable[[RankPhases], SumsByKey], keys: Sequence[str]
) -> pd.DataFrame:
    """Return the sums of all ranks, one row a rank and key.

    Returns:
        Columns at (position of the rank), rank, file, the keys, and the sums.
    """
    rank_sums = [of(part) for _, part in parts]
    sizes = [len(sums.keys) for sums in rank_sums]
    filled = next((sums for sums in rank_sums if sums.keys), SumsByKey())
    columns: Columns = {
        "at": np.repeat(np.arange(len(parts)), sizes),
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, sizes, strict=True)]),
    }
    for index, name in enumerate(keys):
        columns[name] = [key[index] for sums in rank_sums for key in sums.keys]
    for name in filled.sums:
        columns[name] = joined([sums.sums[name] for sums in rank_sums if sums.keys])
    for name in filled.most:
        columns[name] = joined([sums.most[name] for sums in rank_sums if sums.keys])
    return pd.DataFrame(columns)


def rank_extremes(
    part: IntArray, at: IntArray, value: IntArray, parts_n: int, ranks: Sequence[Rank]
) -> Columns:
    """Return the ranks with most and with least of each part; one that lacks a part has 0 of it.

    Args:
        part: Shape (rows,), codes 0 .. parts_n - 1; each occurs.
        at: Shape (rows,), position of the rank.
        value: Shape (rows,).
    """
    order = np.lexsort((at, part))
    spread = RankSpread(part[order], at[order], value[order], parts_n, len(ranks))
    numbers = np.array([rank.number for rank in ranks], dtype=np.int64)
    most, least = spread.rank_of_most(), spread.rank_of_least()
    return {
        "most_rank": numbers[most] if len(ranks) else most,
        "most_ns": spread.at(most),
        "least_rank": numbers[least] if len(ranks) else least,
        "least_ns": spread.at(least),
        "median_ns": spread.twice_median() / 2.0,
    }


def total_of(frame: pd.DataFrame, name: str) -> int:
    """Return the sum of a column; 0 where there is none."""
    return int(frame[name].sum()) if name in frame else 0
