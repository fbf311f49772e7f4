"""Counts of values: they merge exactly, and give what numpy gives on the values themselves."""

from __future__ import annotations

from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric import distributions
from nsys_llm.numeric.distributions import (
    PERCENTS,
    Moments,
    OrderStatistics,
    ValueCounts,
    interpolate,
    sample_std,
)
from nsys_llm.numeric.stacking import stacked

GROUPS_N = 4

# Small values repeat; those above 2^40 leave the packed path.
values = st.one_of(st.integers(0, 9), st.integers(2**40 - 2, 2**40 + 2), st.integers(0, 2**44))
rows = st.lists(st.tuples(st.integers(0, GROUPS_N - 1), values), max_size=12)


def counts(pairs):
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return ValueCounts.from_values(table[:, 0].copy(), table[:, 1].copy())


def triples(counted):
    columns = counted.group, counted.value, counted.count
    return list(zip(*(column.tolist() for column in columns), strict=True))


def by_group(pairs):
    return [[value for group, value in pairs if group == code] for code in range(GROUPS_N)]


def exact_percentile(ordered, percent):
    """Return the percentile between the two values around it; 0 without values."""
    if not ordered:
        return 0
    at = Fraction(percent * (len(ordered) - 1), 100)
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
    return low + (high - low) * (at - int(at))


def test_counts_beyond_what_their_product_holds_have_their_standard_deviation():
    # 2^32 times 1 and as often 3: mean 2, each 1 off; n (n - 1) is near 2^66.
    many = ValueCounts(np.array([0, 0]), np.array([1, 3]), np.array([2**32, 2**32]))
    assert sample_std(many.moments(1))[0] == pytest.approx(1.0)


@given(rows)
def test_counting_finds_each_value_as_often_as_a_dictionary_does(pairs):
    expected: dict[tuple[int, int], int] = {}
    for pair in pairs:
        expected[pair] = expected.get(pair, 0) + 1
    assert triples(counts(pairs)) == [(*pair, n) for pair, n in sorted(expected.items())]


@given(rows)
def test_counting_in_blocks_equals_counting_at_once(pairs):
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    with (
        mock.patch.object(distributions, "_BLOCK", 2),
        mock.patch.object(distributions, "_FEWEST_REPEATS", 1),
    ):
        counted = ValueCounts.in_blocks(
            len(table), lambda rows: (table[rows, 0].copy(), table[rows, 1].copy())
        )
    assert triples(counted) == triples(counts(pairs))


def test_what_hardly_repeats_is_counted_at_once():
    values, asked = np.arange(9), []

    def of(rows):
        asked.append(rows)
        return values[rows] * 0, values[rows]

    with mock.patch.object(distributions, "_BLOCK", 4):
        counted = ValueCounts.in_blocks(9, of)
    assert triples(counted) == [(0, value, 1) for value in range(9)]
    assert asked == [slice(0, 4), slice(0, 9)]


@given(rows, rows, rows)
def test_merging_is_associative_and_commutative_and_equals_counting_at_once(first, two, three):
    parts = [counts(first), counts(two), counts(three)]
    at_once = triples(counts([*first, *two, *three]))
    assert triples(ValueCounts.merge(parts)) == at_once
    assert triples(ValueCounts.merge(parts[::-1])) == at_once
    left = ValueCounts.merge([ValueCounts.merge(parts[:2]), parts[2]])
    right = ValueCounts.merge([parts[0], ValueCounts.merge(parts[1:])])
    assert triples(left) == triples(right) == at_once


@given(rows)
def test_merging_with_nothing_changes_nothing(pairs):
    counted, nothing = counts(pairs), ValueCounts.empty()
    for parts in ([counted], [counted, nothing], [nothing, counted], [nothing, counted, nothing]):
        assert triples(ValueCounts.merge(parts)) == triples(counted)
    assert triples(ValueCounts.merge([])) == []


@given(rows, st.lists(st.integers(0, 2), min_size=GROUPS_N, max_size=GROUPS_N))
def test_regrouping_equals_counting_under_the_new_names(pairs, new_group):
    renamed = counts([(new_group[group], value) for group, value in pairs])
    assert triples(counts(pairs).regrouped(np.array(new_group))) == triples(renamed)


@given(rows)
def test_moments_equal_those_of_the_expanded_values(pairs):
    moments = counts(pairs).moments(GROUPS_N)
    groups = by_group(pairs)
    assert moments.n.tolist() == [len(group) for group in groups]
    assert moments.total.tolist() == [sum(group) for group in groups]
    assert moments.squares.tolist() == [sum(value * value for value in group) for group in groups]
    assert moments.minimum.tolist() == [min(group, default=0) for group in groups]
    assert moments.maximum.tolist() == [max(group, default=0) for group in groups]


@given(rows)
def test_percentiles_are_the_exact_ones_of_the_expanded_values_rounded(pairs):
    order = counts(pairs).order_statistics(GROUPS_N)
    shown = interpolate(order)
    for code, group in enumerate(by_group(pairs)):
        # As numpy's `linear`, which rounds often and is off by 1e-15 and more.
        expected = [float(exact_percentile(sorted(group), percent)) for percent in PERCENTS]
        assert shown[code] == pytest.approx(expected, rel=2**-52, abs=0.0)
        # What is interpolated are values of the group itself, never of the next one.
        assert {*order.low[code].tolist(), *order.high[code].tolist()} <= {*(group or [0])}


@given(rows)
def test_standard_deviations_equal_numpys_and_do_not_cancel(pairs):
    shown = sample_std(counts(pairs).moments(GROUPS_N))
    for code, group in enumerate(by_group(pairs)):
        if len(group) < 2:
            assert np.isnan(shown[code])
            continue
        mean = Fraction(sum(group), len(group))
        exact = sum((value - mean) ** 2 for value in group) / (len(group) - 1)
        assert shown[code] == pytest.approx(float(exact) ** 0.5, rel=1e-14, abs=0.0)
        # numpy subtracts a rounded mean: near 2^44 that is off by some 1e-3 ns.
        assert shown[code] == pytest.approx(np.std(group, ddof=1), rel=1e-9, abs=1e-2)


@given(rows, st.sampled_from([(0, 2**40), (2**23, 0), (2**23, 2**40)]))
def test_big_values_and_groups_take_the_general_path_to_the_same_counts(pairs, shift):
    group, value = shift
    small = [(code, number % 10) for code, number in pairs]
    moved = [(code + group, number + value) for code, number in small]
    expected = [(code + group, number + value, n) for code, number, n in triples(counts(small))]
    assert triples(counts(moved)) == expected
    merged = ValueCounts.merge([counts(moved[:3]), counts(moved[3:])])
    assert triples(merged) == expected


def test_the_largest_packed_value_and_group_are_not_mixed_up_with_their_neighbours():
    edge = [(0, 2**40 - 1), (1, 0), (0, 2**40), (2**23 - 1, 2**40 - 1), (2**23, 0)]
    for part in (edge[:2], edge[:3], edge[3:4], edge):
        assert triples(counts(part)) == [(*pair, 1) for pair in sorted(part)]


def test_groups_are_taken_and_joined_in_the_order_asked_for():
    first, two = counts([(0, 3), (1, 8), (1, 8)]), counts([(0, 5)])
    moments = stacked(Moments, [first.moments(2), two.moments(1)])
    assert moments.total.tolist() == [3, 16, 5]
    taken = moments.take(np.array([2, 1]))
    assert (taken.n.tolist(), taken.squares.tolist()) == ([1, 2], [25, 128])
    assert (taken.minimum.tolist(), taken.maximum.tolist()) == ([5, 8], [5, 8])
    order = stacked(OrderStatistics, [first.order_statistics(2), two.order_statistics(1)])
    median = PERCENTS.index(50)
    assert interpolate(order.take(np.array([2, 0])))[:, median].tolist() == [5.0, 3.0]


@pytest.mark.parametrize("value", [2**20 - 1, 2**39, 2**40 - 1])
@pytest.mark.parametrize("count", [1, 2**21, 2**40])
def test_squares_are_summed_exactly_however_large_and_many(value, count):
    ints = [np.array([number], dtype=np.int64) for number in (0, value, count)]
    assert ValueCounts(*ints).moments(1).squares.tolist() == [value * value * count]
