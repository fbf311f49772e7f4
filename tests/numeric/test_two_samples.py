"""Tests of two runs: against scipy's numbers, by enumeration, and by simulation."""

from __future__ import annotations

import math
from itertools import combinations
from math import comb

import numpy as np
import pytest

from nsys_llm.numeric.two_samples import (
    Difference,
    Order,
    Sample,
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
