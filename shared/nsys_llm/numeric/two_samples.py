"""Whether two runs differ by more than chance: Welch's t with correlated values, and tests by rank.

Values of one run are not independent: a step that is long is often followed by a long one. So
values count as many as independent ones would that tell as much (`correlation`, `Difference.of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import stdev
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import distinct_rows, summed
from nsys_llm.numeric.intervals import IntArray

FloatArray = npt.NDArray[np.float64]

#: Limits of the correlation from one value to the next that is reckoned with.
_MOST_CORRELATION: Final = 0.9
#: Median absolute deviations as spreads of normal values, and those beyond which values are cut.
MAD_SCALE: Final = 1.4826
_MOST_MADS: Final = 2.5 * MAD_SCALE
#: Single values count up to so many scaled MAD. So many alike series tell the spread of each, whose
#: own is at most so many times theirs.
_CUT: Final = 10.0
_MOST_POOLED: Final = 8
_SPREADS: Final = 3.0
#: Fewer runs tell no band of further ones.
LEAST_RUNS: Final = 3
_ITERATIONS_N: Final = 300
_TINY: Final = 1e-300


def correlation(*residuals: FloatArray) -> float:
    """Return the correlation of neighbors in all series, without the bias of short ones; 0 to 0.9.

    r + (1 + 4 r) / n, with r the lag-1 autocorrelation and n of the shortest. Source of the
    correction: F. H. C. Marriott, J. A. Pope, Biometrika 41 (1954).

    Args:
        residuals: Each of shape (n,), in order of time, with the means of groups taken off.
    """
    spread = math.fsum(float((some**2).sum()) for some in residuals)
    shortest = min(some.size for some in residuals)
    if shortest < 2 or spread <= 0:
        return 0.0
    lag = math.fsum(float((some[1:] * some[:-1]).sum()) for some in residuals) / spread
    return min(max(lag + (1 + 4 * lag) / shortest, 0.0), _MOST_CORRELATION)


def winsorized(values: FloatArray, group: npt.NDArray[np.int64]) -> FloatArray:
    """Return values moved to within 2.5 scaled MAD of the median of their group.

    Where most values of a group are one, its values stay. Shapes as of `Sample.of`.
    """
    moved = values.copy()
    for code in np.unique(group).tolist():
        some = values[group == code]
        middle = float(np.median(some))
        most = _MOST_MADS * float(np.median(np.abs(some - middle)))
        if most:
            moved[group == code] = np.clip(some, middle - most, middle + most)
    return moved


def prediction_half(values: Sequence[float]) -> float | None:
    """Return how far one more value like these lies from their mean at most, with 95 %.

    t(0.975, n - 1) s sqrt(1 + 1 / n); None with fewer than 3 values. Source: G. J. Hahn,
    W. Q. Meeker, Statistical Intervals (1991), chapter 4.
    """
    n = len(values)
    if n < LEAST_RUNS:
        return None
    return student_quantile(0.975, n - 1) * stdev(values) * math.sqrt(1 + 1 / n)


@dataclass(frozen=True)
class Order:
    """How the values of two runs lie to each other.

    Attributes:
        longer: Probability that a value of the second run is above one of the first, Mann-Whitney's
            U / n m; ties count half.
        counts: So many of the first run are passed by each of so many of the second, which are
            above them, or below where `longer` is less than 1 / 2. All of the second, if each
            passes half of the first.
    """

    longer: float
    counts: tuple[int, int]

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray) -> Order:
        """Compare each value with each; neither run is empty."""
        ordered = np.sort(first)
        below, up_to = (np.searchsorted(ordered, second, side) for side in ("left", "right"))
        longer = float((below + up_to).sum()) / (2 * first.size * second.size)
        passed = np.sort(below if longer >= 0.5 else first.size - up_to)[::-1]
        place = second.size - 1
        if 2 * passed[-1] < first.size:
            place = int((passed * np.arange(1, second.size + 1)).argmax())
        return cls(longer, (int(passed[place]), place + 1))


def scaled_mad(residuals: FloatArray) -> float:
    """Return the median distance from zero, in standard deviations of a normal distribution."""
    return MAD_SCALE * float(np.median(np.abs(residuals)))


@dataclass(frozen=True)
class Noise:
    """What is usual of alike series over steps: one alone tells too little of its own.

    Attributes:
        variance: Beside the best level.
        alike: Correlation of neighbors.
        series_n: How many tell that.
        strict: Part of the chances that each series has.
    """

    variance: float
    alike: float
    series_n: int
    strict: float

    @classmethod
    def of(cls, rests: Sequence[FloatArray], strict: float) -> Noise:
        """Measure it by what series, each of shape (steps,), have beyond a level that fits them."""
        cut = [np.clip(rest, -(most := _CUT * scaled_mad(rest)), most) for rest in rests]
        variance = float(np.median([_variance(rest) for rest in cut]))
        n, alike = cut[0].size, float(np.median([correlation(rest) for rest in cut]))
        # A level that is fitted to chance takes likeness away; simulated for 12 to 300 steps.
        alike = min((alike + 2 / n) / (1 - 4 / n), _MOST_CORRELATION)
        return cls(variance, alike, min(len(cut), _MOST_POOLED), strict)

    def chance(self, values: FloatArray, fit: FloatArray, along: FloatArray) -> float:
        """Return how likely values rise or fall so much `along` what they are fitted to."""
        # Single steps that are far off are events, and no part of the spread.
        most = _CUT * scaled_mad(values - fit)
        cut = np.clip(values, fit - most, fit + most)
        at = along - along.mean()
        size = float(at @ at)
        slope = float(cut @ at) / size
        rest = cut - cut.mean() - slope * at
        variance, alike = _variance(rest), correlation(rest)
        alike = self.alike + (alike - self.alike) / min(self.series_n, 4)
        worth = (1 - alike) / (1 + alike)
        # Of a few steps that are apart from many, these few tell most.
        freedom = worth * size / float((at**2).max())
        if variance <= _SPREADS * self.variance:
            variance = self.variance + (variance - self.variance) / min(self.series_n, 4)
            freedom *= 1 + self.series_n
        error = math.sqrt(variance / size / worth)
        return 2 * student_tail(abs(slope) / error, max(freedom - 2, 1.0)) if error else 0.0


def _variance(rest: FloatArray) -> float:
    return float(rest @ rest) / max(rest.size - 2, 1)


@dataclass(frozen=True)
class Sample:
    """A weighted mean of the values of one run.

    Attributes:
        variance: Of one value.
        count: As many values of one weight would tell as much, were they independent.
        residuals: Shape (n,), in order of time, about the means of groups.
    """

    mean: float
    variance: float
    count: float
    residuals: FloatArray

    @classmethod
    def of(cls, values: FloatArray, weights: FloatArray, group: npt.NDArray[np.int64]) -> Sample:
        """Return the sample of some values.

        Args:
            values: Shape (n,), in order of time; n is at least 1.
            weights: Shape (n,), above 0; they add up to 1.
            group: Shape (n,), codes of values that share a mean: their spread is about that.
        """
        counts = np.bincount(group)
        means = np.bincount(group, values) / np.maximum(counts, 1)
        residuals = values - means[group]
        freedom = values.size - int((counts > 0).sum())
        variance = float((residuals**2).sum()) / freedom if freedom > 0 else 0.0
        mean, count = float((values * weights).sum()), 1 / float((weights**2).sum())
        return cls(mean, variance, count, residuals)


@dataclass(frozen=True)
class Difference:
    """The difference of two means, the second less the first.

    Attributes:
        freedom: Degrees of freedom after Welch, at least 1.
        correlation: Of neighbors, in both runs together.
    """

    change: float
    error: float
    freedom: float
    correlation: float

    @classmethod
    def of(cls, first: Sample, second: Sample) -> Difference:
        """Compare two samples. Source: B. L. Welch, Biometrika 34 (1947).

        n values with a correlation of r count as n (1 - r) / (1 + r).
        """
        r = correlation(first.residuals, second.residuals)
        counts = [item.count * (1 - r) / (1 + r) for item in (first, second)]
        parts = [first.variance / counts[0], second.variance / counts[1]]
        below = math.fsum(part**2 / max(n - 1, 1.0) for part, n in zip(parts, counts, strict=True))
        freedom = max(math.fsum(parts) ** 2 / below, 1.0) if below else math.inf
        return cls(second.mean - first.mean, math.sqrt(math.fsum(parts)), freedom, r)

    @property
    def p_value(self) -> float:
        """Two-sided p of no difference; 0 or 1 where nothing varies."""
        if not self.error:
            return float(self.change == 0)
        return 2 * (1 - student_cdf(abs(self.change) / self.error, self.freedom))

    def half_width(self) -> float:
        """Return by how much an interval of 95 % reaches to both sides of the change."""
        if not self.error:
            return 0.0
        return self.error * student_quantile(0.975, self.freedom)


def student_cdf(t: float, freedom: float) -> float:
    """Return the probability of a value up to `t`, by the incomplete beta function."""
    if math.isinf(freedom):
        return 0.5 * math.erfc(-t / math.sqrt(2))
    tail = student_tail(abs(t), freedom)
    return tail if t < 0 else 1 - tail


def student_tail(t: float, freedom: float) -> float:
    """Return the probability of a value beyond `t`, which is at least 0; exact where it is tiny."""
    return 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=1 << 10)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the value of a probability from one half on, by bisection of `student_cdf`."""
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability and high < 1e6:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < probability else (low, middle)
    return high


def fisher_p(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return how likely as many hits as the second run has, or more, are by chance alone.

    Fisher's exact test, one-sided: numbers of hits and of values in both runs are given.
    """
    hits_n, whole_n = first[0] + second[0], first[1] + second[1]
    most = min(hits_n, second[1])
    ways = [math.comb(second[1], n) * math.comb(first[1], hits_n - n) for n in range(most + 1)]
    return sum(ways[second[0] :]) / math.comb(whole_n, hits_n)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(_terms(a, b, x))


def _terms(a: float, b: float, x: float) -> Sequence[float]:
    terms = []
    for m in range(_ITERATIONS_N):
        terms += [
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
            (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2)),
        ]
    return terms


def _fraction(terms: Sequence[float]) -> float:
    """Return 1 / (1 + terms[0] / (1 + terms[1] / ...))."""
    value, c, d = 1.0, 1.0, 0.0
    for term in terms:
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return 1 / value


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
