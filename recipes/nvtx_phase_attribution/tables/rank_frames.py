"""Sums of many ranks as one data frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from nsys_llm.facts.phases.rank import RankPhases
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import joined
from nsys_llm.report.columns import Columns, rank_columns
from nsys_llm.trace.identity import Rank

#: Ranks in order, each with what it was reduced to.
Parts = Sequence[tuple[Rank, RankPhases]]


def sums_frame(
    parts: Parts, of: Callable[[RankPhases], ByKey], keys: Sequence[str]
) -> pd.DataFrame:
    """Return the sums of all ranks, one row a rank and key.

    Returns:
        Columns at (position of the rank), rank, file, the keys, and the sums.
    """
    rank_sums = [of(part) for _, part in parts]
    sizes = [len(sums.keys) for sums in rank_sums]
    filled = next((sums for sums in rank_sums if sums.keys), ByKey())
    columns: Columns = {
        "at": np.repeat(np.arange(len(parts)), sizes),
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, sizes, strict=True)]),
    }
    for index, name in enumerate(keys):
        columns[name] = [key[index] for sums in rank_sums for key in sums.keys]
    for name in filled.sums:
        columns[name] = joined([sums.sums[name] for sums in rank_sums if sums.keys])
    return pd.DataFrame(columns)


def total_of(frame: pd.DataFrame, name: str) -> int:
    """Return the sum of a column; 0 where there is none."""
    return int(frame[name].sum()) if name in frame else 0
