"""Columns of result tables, made out of exact integers. Floats are made here and nowhere before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import Moments, OrderStatistics, Spread, interpolate, sample_std
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import Rank

#: Arrays or lists of equal length, by column name.
Columns = dict[str, Any]

#: Of `PERCENTS`.
_PERCENTILE_NAMES: Final = ("q1_ns", "p50_ns", "q3_ns", "p90_ns", "p95_ns", "p99_ns")


def distribution_columns(moments: Moments, order: OrderStatistics) -> Columns:
    """Return launches_n, mean, std, min, max and percentiles; null where a group has no launch."""
    none = moments.n == 0
    percentiles = np.where(none[:, None], np.nan, interpolate(order))
    return {
        "launches_n": moments.n,
        "mean_ns": np.where(none, np.nan, moments.total / np.where(none, 1, moments.n)),
        "std_ns": sample_std(moments),
        "min_ns": pd.arrays.IntegerArray(moments.minimum.copy(), none.copy()),
        "max_ns": pd.arrays.IntegerArray(moments.maximum.copy(), none.copy()),
        **dict(zip(_PERCENTILE_NAMES, percentiles.T, strict=True)),
    }


def spread_columns(spread: Spread, names: Sequence[str] | None = None) -> Columns:
    """Return the columns of `distribution_columns`, or those of some names."""
    columns = distribution_columns(spread.moments, spread.order)
    return columns if names is None else {name: columns[name] for name in names}


def rank_columns(rows_n: Sequence[tuple[Rank, int]]) -> Columns:
    """Return the columns rank and file for so many rows of each rank."""
    return {
        "rank": joined([np.full(n, rank.number, dtype=np.int64) for rank, n in rows_n]),
        "file": [rank.file for rank, n in rows_n for _ in range(n)],
    }


def of_rank(rank: Rank) -> dict[str, Any]:
    """Return the columns rank and file of one row."""
    return {"rank": rank.number, "file": rank.file}


def record_columns(records: Sequence[tuple[Rank, Any]], *names: str) -> Columns:
    """Return the columns rank, file and some attributes of records, a row each."""
    return {
        **rank_columns([(rank, 1) for rank, _ in records]),
        **{name: [getattr(record, name) for _, record in records] for name in names},
    }


def percent(
    part: IntArray, whole: IntArray | int, empty: float = np.nan
) -> npt.NDArray[np.float64]:
    """Return 100 * part / whole, and `empty` where the whole is 0."""
    wholes = np.broadcast_to(np.asarray(whole, dtype=np.int64), part.shape)
    return np.where(wholes == 0, empty, 100.0 * part / np.where(wholes == 0, 1, wholes))


def sorted_columns(columns: Mapping[str, Any], *by: str) -> Columns:
    """Order the rows, stably; text sorts by code point, null comes last.

    Args:
        columns: Arrays or lists of equal length, by column name.
        by: Columns to sort by, the most significant first; `-` before a name: descending.
    """
    keys = [_sort_key(columns[name.removeprefix("-")], name[0] == "-") for name in by]
    order = np.lexsort(keys[::-1])
    return taken(columns, order)


def taken(columns: Mapping[str, Any], rows: IntArray) -> Columns:
    """Return some rows of columns, or all in another order."""
    return {name: _taken(values, rows) for name, values in columns.items()}


def _sort_key(values: Any, descending: bool) -> IntArray:
    # numpy would give every text of a list the room of the longest.
    given = np.array(values, dtype=object) if isinstance(values, list) else values
    null = np.asarray(pd.isna(given))
    plain = np.asarray(given, dtype=object)[~null] if null.any() else np.asarray(given)
    if plain.dtype.kind in "iufb":
        _, code = np.unique(plain, return_inverse=True)
    else:  # few texts are compared, not each with each row
        first, among = pd.factorize(plain.astype(object))
        _, place = np.unique(among, return_inverse=True)
        code = place[first]
    key = np.full(null.size, code.size, dtype=np.int64)
    key[~null] = -code if descending else code
    return key


def _taken(values: Any, rows: IntArray) -> Any:
    if isinstance(values, list):
        return [values[row] for row in rows.tolist()]
    return values.array.take(rows) if isinstance(values, pd.Series) else values.take(rows)


def nullable(values: IntArray) -> pd.arrays.IntegerArray:
    """Return integers of which NULL_INT is null."""
    none = values == NULL_INT
    return pd.arrays.IntegerArray(np.where(none, 0, values), none)
