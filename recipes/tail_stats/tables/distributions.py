"""Columns that say how a distribution's tail is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import Moments, OrderStatistics
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import (
    LEAST_VALUES_OF_A_TAIL,
    OUTLIER_RATIO,
    SYSTEMATIC_RATIO,
    Beyond,
    ratio,
    tail_score,
)
from nsys_llm.report.columns import Columns, distribution_columns, percent

#: A flagged row with less than this share of all time is easily overlooked; peer survey 6B.
HIDDEN_PCT: Final = 1.0


def tail_columns(
    names: Sequence[str],
    moments: Moments,
    order: OrderStatistics,
    total_ns: IntArray,
    all_ns: IntArray | int,
    beyond: Beyond,
) -> Columns:
    """Return the statistics of some distributions, their tails and flags.

    Args:
        names: Those of `distribution_columns` that the table has.
        moments: Of whole values.
        order: Around the percentiles of those.
        total_ns: Time inside the window.
        all_ns: Of everything that the shares refer to.
        beyond: As `nsys_llm.numeric.tails.beyond_medians` gives it.
    """
    rich = distribution_columns(moments, order)
    ratios = ratio_columns(rich)
    total_pct = percent(total_ns, all_ns)
    longest = np.where(moments.n > 0, moments.maximum, np.nan)
    return {
        "launches_n": rich["launches_n"],
        "total_ns": total_ns,
        "total_pct": total_pct,
        **{name: rich[name] for name in names},
        **ratios,
        "tail_score": tail_score(longest, moments.n, ratios["max_p50"]),
        "excess_ns": beyond.twice // 2,
        "outliers_n": beyond.outliers_n,
        "outlier_excess_ns": beyond.outliers_twice // 2,
        **flag_columns(moments.n, ratios, total_pct),
    }


def ratio_columns(rich: Columns) -> Columns:
    """Return p99 and max over the median; null where the median is 0 or not known."""
    median = np.asarray(rich["p50_ns"], dtype=np.float64)
    longest = rich["max_ns"].to_numpy(dtype=np.float64, na_value=np.nan)
    return {
        "p99_p50": ratio(np.asarray(rich["p99_ns"]), median),
        "max_p50": ratio(longest, median),
    }


def flag_columns(
    values_n: IntArray, ratios: Columns, total_pct: npt.NDArray[np.float64]
) -> Columns:
    """Return the flags outlier, systematic and hidden."""
    outlier = np.nan_to_num(ratios["max_p50"]) > OUTLIER_RATIO
    systematic = np.nan_to_num(ratios["p99_p50"]) > SYSTEMATIC_RATIO
    systematic &= values_n >= LEAST_VALUES_OF_A_TAIL
    cheap = np.nan_to_num(total_pct, nan=np.inf) < HIDDEN_PCT
    return {
        "outlier": outlier,
        "systematic": systematic,
        "hidden": (outlier | systematic) & cheap,
    }
