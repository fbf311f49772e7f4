"""Mann-Whitney's U and Benjamini-Hochberg: against permutations, and scipy's numbers."""

from __future__ import annotations

from itertools import combinations
from math import erfc, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.two_samples import adjusted, compare_ranks


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


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusted_values_rise_with_p_and_are_no_less(p_values):
    p = np.array(p_values)
    q = adjusted(p)
    assert (q >= p - 1e-12).all()
    assert (q <= 1).all()
    assert (np.diff(q[np.argsort(p, kind="stable")]) >= -1e-12).all()
