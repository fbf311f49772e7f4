"""Columns of result tables, made out of exact integers. Floats are made here and nowhere before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import (
    PERCENTS,
    Moments,
    OrderStatistics,
    interpolate,
    sample_std,
)
from nsys_llm.numeric.intervals import IntArray

#: Arrays or lists of equal length, by column name.
Columns = dict[str, Any]

_PERCENTILE_NAMES: Final = {
    25: "q1_ns",
    50: "p50_ns",
    75: "q3_ns",
    90: "p90_ns",
    95: "p95_ns",
    99: "p99_ns",
}


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
        **{
            _PERCENTILE_NAMES[percentile]: percentiles[:, i]
            for i, percentile in enumerate(PERCENTS)
        },
    }


def percent(
    part: IntArray, whole: IntArray | int, empty: float = np.nan
) -> npt.NDArray[np.float64]:
    """Return 100 * part / whole, and `empty` where the whole is 0."""
    wholes = np.broadcast_to(np.asarray(whole, dtype=np.int64), part.shape)
    return np.where(wholes == 0, empty, 100.0 * part / np.where(wholes == 0, 1, wholes))


def sorted_columns(columns: Mapping[str, Any], *by: str) -> Columns:
    """Order the rows; a name that starts with `-` sorts descending, text ties by code point."""
    frame = pd.DataFrame(dict(columns)).sort_values(
        [name.removeprefix("-") for name in by],
        ascending=[not name.startswith("-") for name in by],
        kind="stable",
        ignore_index=True,
    )
    return {name: frame[name] for name in frame.columns}


def nullable(values: IntArray) -> pd.arrays.IntegerArray:
    """Return integers of which NULL_INT is null."""
    none = values == NULL_INT
    return pd.arrays.IntegerArray(np.where(none, 0, values), none)
