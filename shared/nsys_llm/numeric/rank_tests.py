"""Whether two sets of values differ: Mann-Whitney's U and Benjamini-Hochberg. Pure numpy.

Exact counts of values take the place of the values: ties are plenty where durations are multiples
of a timer's tick, and the sums over ties are exact.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import distinct_rows, summed
from nsys_llm.numeric.intervals import IntArray

FloatArray = npt.NDArray[np.float64]

#: The cube of a smaller number, and the sum of such cubes, fits 64 bits.
_CUBE_LIMIT: Final = 1 << 21


def compare_ranks(first: ValueCounts, second: ValueCounts, groups_n: int) -> FloatArray:
    """Compare the values of each group on two sides: two-sided p of Mann-Whitney's U.

    By the normal approximation with the correction for ties and for continuity; shape (groups,),
    NaN where a side has no value, 1 where all are equal.

    Source: H. B. Mann, D. R. Whitney, Annals of Mathematical Statistics 18 (1947); the correction
    of the variance for ties as in M. Hollander, D. A. Wolfe, Nonparametric Statistical Methods.
    """
    p_value = np.full(groups_n, np.nan)
    n0, n1 = (summed(side.group, side.count, groups_n) for side in (first, second))
    both = np.flatnonzero((n0 > 0) & (n1 > 0))
    if both.size:
        columns = (n0, n1, *_rank_sums(first, second, n0, n1))
        rows = zip(*(column[both].tolist() for column in columns), strict=True)
        p_value[both] = [_p_value(*row) for row in rows]
    return p_value


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


def _rank_sums(
    first: ValueCounts, second: ValueCounts, n0: IntArray, n1: IntArray
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return twice U of each group, an integer as a tie counts one half, and the sum over ties.

    That is of t^3 - t, where t values are equal. Integers, or Python's where 64 bits are too few.
    """
    group = np.concatenate([first.group, second.group])
    value = np.concatenate([first.value, second.value])
    # The distinct values of each group in order, with how many each side has.
    rows, code = distinct_rows([group, value])
    counts0 = summed(code[: first.group.size], first.count, rows.size)
    counts1 = summed(code[first.group.size :], second.count, rows.size)
    of_group = group[rows]
    below = np.cumsum(counts0) - counts0 - (np.cumsum(n0) - n0)[of_group]
    whole = np.int64 if int((n0 + n1).max()) < _CUBE_LIMIT else object
    ties = (counts0 + counts1).astype(whole)
    twice_u, excess = np.zeros((2, n0.size), dtype=whole)
    np.add.at(twice_u, of_group, counts1.astype(whole) * (2 * below + counts0))
    np.add.at(excess, of_group, ties * ties * ties - ties)
    return twice_u, excess


def _p_value(n0: int, n1: int, twice_u: int, excess: int) -> float:
    """Return p of two sets of values, by their numbers and sums."""
    n = n0 + n1
    # 12 n (n - 1) times the variance, over n0 n1; 0 if all values are one.
    spread = n * (n * n - 1) - excess
    if spread == 0:
        return 1.0
    sigma = math.sqrt(n0 * n1 * spread / (12 * n * (n - 1)))
    away = max(abs(twice_u - n0 * n1) / 2 - 0.5, 0.0)
    return math.erfc(away / sigma / math.sqrt(2))
