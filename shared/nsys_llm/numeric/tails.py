"""What makes a distribution's tail: ratios, a score, and the time beyond the median. Pure numpy.

The median of integers is a whole number or lies between two: counted in halves it is an integer, so
the time beyond it adds up exactly over groups and ranks, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import MEDIAN, OrderStatistics, ValueCounts
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray

#: An outlier is longer than so many medians; from the profiling skill, step 3.
OUTLIER_RATIO: Final = 2
#: p99 over p50 that makes a tail systematic, not a one-off; from the profiling skill, step 3.
SYSTEMATIC_RATIO: Final = 1.5
#: Fewer values than this have no 99th percentile of their own.
LEAST_VALUES_OF_A_TAIL: Final = 100
#: Share of the values that make a second mode when they are outliers; rarer ones are accidents.
#: Ours, as are the next three.
MODE_SHARE: Final = 0.03
#: Fewer values make no mode.
LEAST_VALUES_OF_A_MODE: Final = 5
#: The largest value of a mode is at most so many of its smallest.
MODE_SPREAD: Final = 1.5
#: The smallest value of a mode is at least so many of the largest value below it.
MODE_GAP: Final = 1.5

_NS_PER_US: Final = 1_000.0

FloatArray = npt.NDArray[np.float64]


def twice_medians(order: OrderStatistics) -> IntArray:
    """Return twice the median of each group, shape (groups,): a whole number; 0 of nothing."""
    low, high = order.low[:, MEDIAN], order.high[:, MEDIAN]
    # A median lies on a value or half way between two: its rest is 0 or 50 hundredths.
    return 2 * low + (high - low) * (order.hundredths[:, MEDIAN] // 50)


def is_outlier(value: IntArray, twice_median: IntArray) -> npt.NDArray[np.bool_]:
    """Return which values are longer than `OUTLIER_RATIO` medians; none where the median is 0."""
    return np.asarray((2 * value > OUTLIER_RATIO * twice_median) & (twice_median > 0))


@dataclass(frozen=True)
class Beyond:
    """What groups of values have beyond medians; all of shape (groups,), int64.

    Attributes:
        twice: Twice the sum of max(0, value - median).
        outliers_n: Values longer than `OUTLIER_RATIO` medians.
        outliers_twice: Their part of `twice`.
    """

    twice: IntArray
    outliers_n: IntArray
    outliers_twice: IntArray


def beyond_medians(counts: ValueCounts, twice_median: IntArray, groups_n: int) -> Beyond:
    """Add up what the values of each group have beyond a median.

    Args:
        twice_median: Shape (groups_n,), of each group, wherever it is from (see `twice_medians`).
    """
    twice_of_value = twice_median[counts.group]
    beyond = np.maximum(2 * counts.value - twice_of_value, 0) * counts.count
    outlying = is_outlier(counts.value, twice_of_value)
    group = counts.group[outlying]
    return Beyond(
        summed(counts.group, beyond, groups_n),
        summed(group, counts.count[outlying], groups_n),
        summed(group, beyond[outlying], groups_n),
    )


def second_modes(
    counts: ValueCounts, twice_median: IntArray, groups_n: int
) -> npt.NDArray[np.bool_]:
    """Return which groups have their outliers in a mode of their own, too many to be accidents.

    Then the group holds two kinds of values rather than a tail: a persistent kernel, say, whose
    grid is that of the GPU whatever the size of its matrices. See `MODE_SHARE` and those below it.

    Args:
        twice_median: Shape (groups_n,), of each group.
    """
    outlying = is_outlier(counts.value, twice_median[counts.group])
    smallest = np.full(groups_n, np.iinfo(np.int64).max, dtype=np.int64)
    largest, usual = np.zeros(groups_n, dtype=np.int64), np.zeros(groups_n, dtype=np.int64)
    group, value = counts.group[outlying], counts.value[outlying]
    np.minimum.at(smallest, group, value)
    np.maximum.at(largest, group, value)
    np.maximum.at(usual, counts.group[~outlying], counts.value[~outlying])
    outliers_n = summed(group, counts.count[outlying], groups_n)
    enough = outliers_n >= MODE_SHARE * summed(counts.group, counts.count, groups_n)
    enough &= outliers_n >= LEAST_VALUES_OF_A_MODE
    narrow = largest <= MODE_SPREAD * smallest
    return np.asarray(enough & narrow & (smallest >= MODE_GAP * usual))


def ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part over whole; NaN where the whole is 0 or either is NaN."""
    known = np.nan_to_num(whole) != 0
    return np.where(known, part / np.where(known, whole, 1.0), np.nan)


def tail_score(longest_ns: FloatArray, values_n: IntArray, max_p50: FloatArray) -> FloatArray:
    """Return the longest in microseconds times log2(n + 1) times max(1, max/p50).

    High for what is long, frequent and uneven; also for what is only long and frequent: constant
    kernels of 1 ms, 200 of them, have 7651. So it ranks, and flags nothing. Source:
    tools/nsys_tail_stats.py of pegainfer, which the profiling skill calls.

    Args:
        longest_ns: Shape (groups,); NaN for a group without values.
        values_n: Shape (groups,).
        max_p50: Shape (groups,), longest over median; NaN counts as 1.
    """
    uneven = np.maximum(np.nan_to_num(max_p50, nan=1.0), 1.0)
    return longest_ns / _NS_PER_US * np.log2(values_n + 1) * uneven
