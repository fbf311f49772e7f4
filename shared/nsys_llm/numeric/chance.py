"""Whether one of several equals stands out by more than chance gives. Pure numpy."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray

#: Tilts of Chernoff's bound that are tried, in units of one over the largest value.
_TILTS: Final = np.logspace(-2, 3, 61)


def largest_sum_chance(values: IntArray) -> float:
    """Return a bound of the probability that equals show as large a sum as the largest.

    Rows that are alike could have had the values of a column in any order. So each value of a row
    is drawn from its column, columns by themselves: the probability that one row's sum is as large
    as the largest is at most Chernoff's bound, times the rows that could have been it.

    Args:
        values: Shape (rows, columns), at least 0.

    Returns:
        At most 1; 1 where there is nothing to compare.
    """
    rows_n = values.shape[0]
    if rows_n < 2 or not values.any():
        return 1.0
    scaled = values / values.max()
    most = float(scaled.sum(axis=1).max())
    logs = [_log_mean(tilt * scaled) - tilt * most for tilt in _TILTS]
    return min(math.exp(min(*logs, 0.0)) * rows_n, 1.0)


def _log_mean(exponents: np.ndarray) -> float:
    """Return the logarithm of the product over columns of the mean of exp, without overflow."""
    top = exponents.max(axis=0)
    means = np.exp(exponents - top).mean(axis=0)
    return float((np.log(means) + top).sum())
