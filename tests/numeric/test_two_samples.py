"""Tests of two runs: against scipy's numbers, by enumeration, and by simulation."""

import math
from itertools import combinations
from math import comb, erfc, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.two_samples import (
    Difference,
    Order,
    Sample,
    adjusted,
    compare_ranks,
    correlation,
    fisher_p,
    prediction_half,
    student_cdf,
    student_quantile,
    student_tail,
    winsorized,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062047), (2, 4.3026527), (4, 2.7764451), (8, 2.3060041), (30, 2.0422725)],
)
def test_students_quantile(freedom, quantile):
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-6)
    assert student_cdf(quantile, freedom) == pytest.approx(0.975, abs=1e-8)
    assert student_cdf(-quantile, freedom) == pytest.approx(0.025, abs=1e-8)


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    [
        (0.001, 2, 22.3271),
        (0.001, 3, 10.2145),
        (0.0005, 5, 6.8688),
        (0.0005, 30, 3.6460),
        (0.001, 120, 3.1595),
        (2.0**-200 / math.pi, 1, 2.0**200),
        (0.0, 3, math.inf),
    ],
)
def test_students_tail_is_that_of_printed_tables(tail, freedom, value):
    # Of a value that is printed to four digits, its last one is 0.00016 of the tail.
    assert student_tail(value, freedom) == pytest.approx(tail, rel=2e-4)


def test_fishers_test_counts_all_ways_to_place_the_hits():
    for n0, n1 in ((5, 5), (6, 9)):
        values = range(n0 + n1)
        for hits in range(6):
            of_second = [sum(place >= n0 for place in way) for way in combinations(values, hits)]
            for seen in range(max(0, hits - n0), min(hits, n1) + 1):
                expected = sum(n >= seen for n in of_second) / comb(n0 + n1, hits)
                assert fisher_p((hits - seen, n0), (seen, n1)) == pytest.approx(expected)
    assert fisher_p((0, 14), (4, 14)) == pytest.approx(0.0489, abs=1e-4)


def test_welch_by_hand_where_values_are_independent():
    """Variances 1.6 and 3.2 of means of 4 and 8: 0.8 together; 0.64 / (0.16 / 3 + 0.16 / 7)."""
    alone = np.array([1.0, -1.0])
    difference = Difference.of(Sample(1.0, 1.6, 4.0, alone), Sample(2.0, 3.2, 8.0, alone))
    assert difference.correlation == 0
    assert difference.error == pytest.approx(0.8**0.5)
    assert difference.freedom == pytest.approx(0.64 / (0.16 / 3 + 0.16 / 7))
    t = 1 / 0.8**0.5
    assert difference.p_value == pytest.approx(2 * (1 - student_cdf(t, difference.freedom)))
    width = difference.half_width()
    assert width == pytest.approx(student_quantile(0.975, difference.freedom) * 0.8**0.5)


def test_what_does_not_vary_differs_or_does_not():
    same = Sample(1.0, 0.0, 9.0, np.zeros(9))
    assert Difference.of(same, same).p_value == 1
    assert Difference.of(same, Sample(2.0, 0.0, 9.0, np.zeros(9))).p_value == 0


def test_groups_of_values_have_their_own_means():
    values, group = np.array([1.0, 11.0, 2.0, 12.0, 3.0, 13.0]), np.array([0, 1, 0, 1, 0, 1])
    sample = Sample.of(values, np.full(6, 1 / 6), group)
    assert (sample.mean, sample.variance) == (7.0, 1.0)


def test_neighbors_of_both_runs_tell_one_correlation_by_the_shorter():
    """Lags 1 and -1, of spreads 2 and 2: none but the correction for 3 values; no mean of both."""
    first, second = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]), np.array([1.0, -1.0, 0.0])
    assert correlation(first, second) == correlation(second, first) == pytest.approx(1 / 3)
    shorter = Sample(0.0, 1.0, 4.0, first[:2]), Sample(0.0, 1.0, 4.0, second[:2])
    assert Difference.of(*shorter).error == pytest.approx((2 / (4 * (1 - 0.5) / (1 + 0.5))) ** 0.5)


def test_far_values_are_moved_in_by_group_and_alike_ones_stay():
    values = np.array([1.0, 2.0, 3.0, 4.0, 90.0, 7.0, 7.0, 7.0, 50.0])
    group = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    # Of the first group the median is 3, the MAD 1.
    expected = [1.0, 2.0, 3.0, 4.0, 3 + 2.5 * 1.4826, 7.0, 7.0, 7.0, 50.0]
    assert winsorized(values, group).tolist() == pytest.approx(expected)


def test_orders_are_those_of_all_pairs():
    rng = np.random.default_rng(3)
    for _ in range(50):
        first, second = (rng.integers(0, 12, size=rng.integers(1, 9)) for _ in range(2))
        order = Order.of(first.astype(float), second.astype(float))
        pairs = [(a < b) + (a == b) / 2 for a in first for b in second]
        assert order.longer == pytest.approx(sum(pairs) / len(pairs))
        passed, n = order.counts
        sign = 1 if order.longer >= 0.5 else -1
        passes = sorted(sum(sign * a < sign * b for a in first) for b in second)
        # So many pass so many: each of n, and no other n has more pairs, unless it is of all.
        assert passes[-n] == passed
        if n < second.size:
            assert 2 * passes[0] < first.size
            assert n * passed == max(k * passes[-k] for k in range(1, second.size + 1))


def test_one_more_run_lies_within_the_band_of_those_before():
    # s of 1, 2, 3 is 1; t(0.975, 2) 4.3027.
    assert prediction_half([1.0, 2.0, 3.0]) == pytest.approx(4.3027 * (4 / 3) ** 0.5, rel=1e-4)
    assert prediction_half([1.0, 2.0]) is None


def test_a_long_series_has_its_correlation():
    values = np.zeros(4_000)
    for step, shock in enumerate(np.random.default_rng(5).standard_normal(4_000)):
        values[step] = 0.6 * values[step - 1] + shock
    assert correlation(values - values.mean()) == pytest.approx(0.6, abs=0.05)
    assert correlation(np.array([1.0, -1.0, 1.0, -1.0])) == 0
    assert correlation(np.zeros(5)) == 0


def counts(*groups):
    code = np.concatenate([np.full(len(values), i) for i, values in enumerate(groups)])
    values = np.concatenate([np.array(values, dtype=np.int64) for values in groups])
    return ValueCounts.from_values(code.astype(np.int64), values)


def compared(first, second):
    return float(compare_ranks(counts(first), counts(second), 1)[0])


# scipy 1.16, mannwhitneyu(second, first, method="asymptotic").
SCIPY = ([5, 5, 6, 7, 9, 9, 9, 12], [7, 9, 10, 10, 12, 14, 15, 15, 15], 0.01140917269350868)


def test_p_is_scipy_s():
    first, second, p = SCIPY
    assert compared(first, second) == pytest.approx(p, rel=1e-12)


def test_groups_are_compared_one_by_one_and_an_empty_side_gives_nothing():
    first = counts([1, 2, 3], [], [5])
    second = counts([4, 5, 6], [1], [])
    p_value = compare_ranks(first, second, 4)
    assert np.isnan(p_value).tolist() == [False, True, True, True]


@given(
    st.lists(st.integers(0, 6), min_size=5, max_size=6),
    st.lists(st.integers(0, 6), min_size=5, max_size=6),
)
def test_mean_and_variance_are_those_of_all_permutations(first, second):
    """Part the values in every way: p rests on the mean and the variance of U over all of them."""
    pooled = np.array([*first, *second])
    chosen = np.array(list(combinations(range(pooled.size), len(first))))
    is_first = np.zeros((len(chosen), pooled.size), dtype=bool)
    np.put_along_axis(is_first, chosen, True, axis=1)
    above = (pooled[None, :] > pooled[:, None]) + 0.5 * (pooled[None, :] == pooled[:, None])
    u = np.einsum("pi,ij,pj->p", is_first, above, ~is_first)
    here = u[(is_first[:, : len(first)]).all(axis=1)][0]
    mean, sigma = u.mean(), u.std()
    p = compared(first, second)
    if sigma == 0:
        assert p == 1.0
        return
    assert p == pytest.approx(erfc(max(abs(here - mean) - 0.5, 0) / sigma / sqrt(2)), rel=1e-9)


def test_large_counts_do_not_overflow():
    first = ValueCounts(np.array([0, 0]), np.array([10, 20]), np.array([1 << 40, 1 << 40]))
    second = ValueCounts(np.array([0, 0]), np.array([10, 20]), np.array([1 << 40, 1 << 41]))
    assert compare_ranks(first, second, 1)[0] == 0.0


def test_adjusted_values_are_scipy_s():
    # scipy.stats.false_discovery_control
    p_values = adjusted(np.array([0.01, 0.04, 0.03, 0.005, 0.5]))
    assert p_values == pytest.approx([0.025, 0.05, 0.05, 0.025, 0.5])


def test_unknown_values_stay_unknown_and_do_not_count():
    p_values = adjusted(np.array([np.nan, 0.01, np.nan, 0.02]))
    assert np.isnan(p_values).tolist() == [True, False, True, False]
    assert p_values[[1, 3]] == pytest.approx([0.02, 0.02])
    assert adjusted(np.array([])).size == 0
