"""Whether two sets of values differ: Mann-Whitney's U and Benjamini-Hochberg. Pure numpy.

Exact counts of values take the place of the values: ties are plenty where durations are multiples
of a timer's tick, and the sums over ties are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.intervals import IntArray

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RankTest:
    """Groups of values on two sides; all of shape (groups,), float64.

    Attributes:
        p_value: Two-sided p of Mann-Whitney's U, by the normal approximation with the correction
            for ties and for continuity; NaN where a side has no value, 1 where all are equal.
        shift: Cliff's delta: how much more often a value of the second side is greater than one
            of the first than smaller, -1 to 1; NaN where a side has no value.
    """

    p_value: FloatArray
    shift: FloatArray


def compare_ranks(first: ValueCounts, second: ValueCounts, groups_n: int) -> RankTest:
    """Compare the values of each group on two sides.

    Source: H. B. Mann, D. R. Whitney, Annals of Mathematical Statistics 18 (1947); the correction
    of the variance for ties as in M. Hollander, D. A. Wolfe, Nonparametric Statistical Methods.

    Args:
        first: Values of the first side by group.
        second: Of the second side; groups mean the same.
        groups_n: Number of groups.
    """
    p_value, shift = np.full(groups_n, np.nan), np.full(groups_n, np.nan)
    bounds = np.arange(groups_n + 1)
    first_at = np.searchsorted(first.group, bounds)
    second_at = np.searchsorted(second.group, bounds)
    for group in range(groups_n):
        selected = slice(first_at[group], first_at[group + 1])
        other = slice(second_at[group], second_at[group + 1])
        if selected.start == selected.stop or other.start == other.stop:
            continue
        p_value[group], shift[group] = _compared(
            first.value[selected], first.count[selected], second.value[other], second.count[other]
        )
    return RankTest(p_value, shift)


def adjusted(p_value: FloatArray) -> FloatArray:
    """Return p-values adjusted for their number: the share of false ones among those as small.

    NaN stays NaN, and does not count. Source: Y. Benjamini, Y. Hochberg, Journal of the Royal
    Statistical Society B 57 (1995).
    """
    known = np.flatnonzero(~np.isnan(p_value))
    q_value = np.full(p_value.shape, np.nan)
    order = known[np.argsort(p_value[known], kind="stable")]
    scaled = p_value[order] * order.size / np.arange(1, order.size + 1)
    # No smaller p may get a larger q.
    q_value[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q_value


def _compared(
    value0: IntArray, count0: IntArray, value1: IntArray, count1: IntArray
) -> tuple[float, float]:
    """Return p and Cliff's delta of two sets of values, each distinct and sorted."""
    values = np.union1d(value0, value1)
    n0, n1 = int(count0.sum()), int(count1.sum())
    first_counts, others = np.zeros((2, values.size), dtype=np.int64)
    first_counts[np.searchsorted(values, value0)] = count0
    others[np.searchsorted(values, value1)] = count1
    below = np.cumsum(first_counts) - first_counts
    # Twice U is an integer: a tie counts one half.
    # As Python's integers, which no number of launches outgrows.
    pairs = zip(others.tolist(), (2 * below + first_counts).tolist(), strict=True)
    twice_u = sum(count * less for count, less in pairs)
    ties = (first_counts + others).astype(object)
    n = n0 + n1
    excess = sum((ties * ties * ties - ties).tolist())
    # 12 n (n - 1) times the variance, over n0 n1; 0 if all values are one.
    spread = n * (n * n - 1) - excess
    delta = (twice_u - n0 * n1) / (n0 * n1)
    if spread == 0:
        return 1.0, 0.0
    sigma = math.sqrt(n0 * n1 * spread / (12 * n * (n - 1)))
    away = max(abs(twice_u - n0 * n1) / 2 - 0.5, 0.0)
    return math.erfc(away / sigma / math.sqrt(2)), delta
