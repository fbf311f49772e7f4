"""The chance that one of several equals stands out: a bound, and one that still tells."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from effort import over_seeds

from nsys_llm.numeric.chance import largest_sum_chance


def exact(values):
    """Return the probability by trying all orders that matter: one row's, times the rows."""
    columns = values.T.tolist()
    most = values.sum(axis=1).max()
    sums = [sum(picked) for picked in product(*columns)]
    return min(sum(total >= most for total in sums) / len(sums) * len(values), 1.0)


@over_seeds(range(200))
def test_it_bounds_what_a_count_of_all_cases_gives(seed):
    random = np.random.default_rng(seed)
    shape = int(random.integers(2, 5)), int(random.integers(1, 6))
    values = random.integers(0, (2, 10, 10**9)[seed % 3], shape)
    assert exact(values) <= largest_sum_chance(values) + 1e-9


@pytest.mark.parametrize(("rows_n", "columns_n"), [(2, 6), (4, 6), (8, 20), (1024, 3)])
def test_a_row_that_has_all_of_it_is_as_likely_as_drawing_it_every_time(rows_n, columns_n):
    values = np.zeros((rows_n, columns_n), dtype=np.int64)
    values[rows_n // 2] = 150_000
    chance = largest_sum_chance(values)
    assert chance == pytest.approx(rows_n * rows_n**-columns_n, rel=0.05)


def test_one_large_value_says_nothing():
    values = np.zeros((4, 30), dtype=np.int64)
    values[:, :] = np.random.default_rng(0).integers(0, 100, (4, 30))
    values[1, 7] = 1_000_000
    assert largest_sum_chance(values) > 0.5


@pytest.mark.parametrize("values", [np.zeros((3, 4)), np.ones((1, 4)), np.zeros((0, 0))])
def test_nothing_to_compare_is_chance(values):
    assert largest_sum_chance(values.astype(np.int64)) == 1.0


@pytest.mark.parametrize("shape", [(2, 16), (4, 25), (8, 50), (64, 30)])
def test_of_equals_one_in_twenty_is_named_at_most(shape):
    random = np.random.default_rng(1)
    kinds = (random.exponential, lambda size: random.pareto(1.2, size))
    for draw in kinds:
        named = [
            largest_sum_chance((1000 * draw(size=shape)).astype(np.int64)) < 0.05
            for _ in range(300)
        ]
        assert sum(named) <= 15 + 3 * math.sqrt(15)


def test_a_row_that_is_a_little_larger_is_found():
    random = np.random.default_rng(2)
    values = random.integers(900, 1100, (4, 60))
    values[2] += 60
    assert largest_sum_chance(values) < 0.05
