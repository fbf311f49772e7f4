"""Time beyond medians, outliers and modes, against arithmetic done by hand or numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.facts.tails.kernels import CompactHistogram
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.stacking import stacked
from nsys_llm.numeric.tails import (
    Beyond,
    beyond_medians,
    ratio,
    second_modes,
    twice_medians,
)


def counted(*groups):
    group = [index for index, values in enumerate(groups) for _ in values]
    value = [number for values in groups for number in values]
    return ValueCounts.from_values(np.array(group, dtype=np.int64), np.array(value, dtype=np.int64))


def medians(counts, groups_n):
    return twice_medians(counts.order_statistics(groups_n))


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=4))
def test_sums_are_those_of_numpy(groups):
    counts = counted(*groups)
    twice = medians(counts, len(groups))
    assert (twice / 2).tolist() == [np.median(values) for values in groups]
    sums = beyond_medians(counts, twice, len(groups))
    for index, values in enumerate(groups):
        beyond = np.maximum(0, np.array(values) - np.median(values))
        outlying = np.array(values) > 2 * np.median(values)
        outlying &= np.median(values) > 0
        assert sums.twice[index] == 2 * beyond.sum()
        assert sums.outliers_n[index] == outlying.sum()
        assert sums.outliers_twice[index] == 2 * beyond[outlying].sum()


@given(st.lists(st.integers(0, 99), max_size=20), st.lists(st.integers(0, 99), max_size=20))
def test_what_ranks_have_beyond_a_common_median_adds_up(left, right):
    whole = counted(left + right)
    twice = medians(whole, 1)
    parts = [beyond_medians(counted(part), twice, 1) for part in (left, right)]
    joined, all_of_it = stacked(Beyond, parts), beyond_medians(whole, twice, 1)
    for name in ("twice", "outliers_n", "outliers_twice"):
        assert getattr(joined, name).sum() == getattr(all_of_it, name).sum()


def test_joining_nothing_gives_no_groups():
    assert stacked(Beyond, []).twice.tolist() == []


def test_a_ratio_to_nothing_is_not_known():
    ratios = ratio(np.array([6.0, 6.0, 6.0]), np.array([3.0, 0.0, np.nan]))
    assert ratios[0] == 2.0
    assert np.isnan(ratios[1:]).all()


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ([10] * 95 + [50] * 5, True),  # 5 of 100, all alike, far away
        ([10] * 96 + [50] * 4, False),  # 4 are no mode
        ([10] * 295 + [50] * 5, False),  # less than 3 %: accidents
        ([10] * 95 + [50, 50, 50, 50, 76], False),  # a tail, not a mode: 76 > 1.5 * 50
        ([10] * 95 + [50, 50, 50, 50, 75], True),
        ([10] * 90 + [20] * 5 + [29] * 5, False),  # 29 < 1.5 * 20: no gap below it
        ([10] * 90 + [20] * 5 + [30] * 5, True),
        ([10] * 100, False),
    ],
)
def test_a_mode_is_many_alike_and_apart(values, mode):
    counts = counted(values)
    assert second_modes(counts, medians(counts, 1), 1).tolist() == [mode]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2**45)), max_size=30))
def test_narrow_counts_are_the_counts_again(pairs):
    group, value = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    counts = ValueCounts.from_values(group, value)
    again = CompactHistogram.of(counts).widened()
    for name in ("group", "value", "count"):
        assert getattr(again, name).dtype == np.int64
        assert getattr(again, name).tolist() == getattr(counts, name).tolist()


def test_small_counts_take_few_bytes():
    narrow = CompactHistogram.of(counted([3, 3, 70_000]))
    kinds = [column.dtype for column in (narrow.group, narrow.value, narrow.count)]
    assert kinds == [np.uint8, np.uint32, np.uint8]
