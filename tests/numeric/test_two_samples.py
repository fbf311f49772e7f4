"""Tests of two runs: against scipy's numbers, by enumeration, and by simulation."""

from __future__ import annotations

import math
from itertools import combinations
from math import comb

import numpy as np
import pytest

from nsys_llm.numeric.two_samples import (
    Difference,
    Sample,
    correlation,
    fisher_p,
    student_cdf,
    student_quantile,
    student_tail,
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
    difference = Difference.of(Sample(1.0, 1.6, 4.0), Sample(2.0, 3.2, 8.0))
    assert difference.error == pytest.approx(0.8**0.5)
    assert difference.freedom == pytest.approx(0.64 / (0.16 / 3 + 0.16 / 7))
    t = 1 / 0.8**0.5
    assert difference.p_value == pytest.approx(2 * (1 - student_cdf(t, difference.freedom)))
    width = difference.half_width()
    assert width == pytest.approx(student_quantile(0.975, difference.freedom) * 0.8**0.5)


def test_what_does_not_vary_differs_or_does_not():
    same = Sample(1.0, 0.0, 9.0)
    assert Difference.of(same, same).p_value == 1
    assert Difference.of(same, Sample(2.0, 0.0, 9.0)).p_value == 0


def test_groups_of_values_have_their_own_means():
    values, group = np.array([1.0, 11.0, 2.0, 12.0, 3.0, 13.0]), np.array([0, 1, 0, 1, 0, 1])
    sample = Sample.of(values, np.full(6, 1 / 6), group)
    assert (sample.mean, sample.variance) == (7.0, 1.0)


def series(rng, n, r, pairs):
    noise = rng.standard_normal((pairs, n + 50))
    values = np.zeros_like(noise)
    for step in range(1, n + 50):
        values[:, step] = r * values[:, step - 1] + np.sqrt(1 - r * r) * noise[:, step]
    return values[:, 50:]


@pytest.mark.parametrize("n", [8, 14, 30, 100])
@pytest.mark.parametrize("r", [0.0, 0.3, 0.6])
def test_equal_runs_are_told_apart_no_more_often_than_stated(n, r):
    """5 % at most, of pairs that have 8 effective values a run: below that nothing is said."""
    rng = np.random.default_rng([n, round(10 * r)])
    pairs = 600
    called = 0
    weights, group = np.full(n, 1 / n), np.zeros(n, dtype=np.int64)
    for first, second in zip(series(rng, n, r, pairs), series(rng, n, r, pairs), strict=True):
        samples = [Sample.of(values, weights, group) for values in (first, second)]
        if min(sample.effective_n for sample in samples) >= 8:
            called += Difference.of(*samples).p_value < 0.05
    # Three standard errors beyond 5 %.
    assert called <= pairs * 0.05 + 3 * np.sqrt(pairs * 0.05 * 0.95)


def test_a_long_series_has_its_correlation():
    values = series(np.random.default_rng(5), 4_000, 0.6, 1)[0]
    assert correlation(values - values.mean()) == pytest.approx(0.6, abs=0.05)
    assert correlation(np.array([1.0, -1.0, 1.0, -1.0])) == 0
    assert correlation(np.zeros(5)) == 0
