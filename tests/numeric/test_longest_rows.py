"""The longest of each group, against sorting everything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.longest import among_largest, candidate_rows, longest_of_each

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=40
)


def arrays(rows):
    rows = sorted(rows, key=lambda row: row[2])
    return (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))


def by_hand(group, value, start, most):
    longest = []
    for code in sorted(set(group.tolist())):
        members = [row for row in range(group.size) if group[row] == code]
        members.sort(key=lambda row: (-value[row], start[row], row))
        longest += members[:most]
    return longest


@given(ROWS, st.integers(1, 5))
def test_the_longest_of_each_group_come_first_and_ties_by_time(rows, most):
    group, value, start = arrays(rows)
    longest = longest_of_each(group, value, [start, np.arange(group.size)], most)
    assert longest.tolist() == by_hand(group, value, start, most)


@given(ROWS, st.integers(1, 5))
def test_the_candidates_hold_the_longest_and_the_earliest_of_equals(rows, most):
    group, value, start = arrays(rows)
    counts = ValueCounts.from_values(group, value)
    candidates = candidate_rows(group, value, start, counts, most)
    assert candidates.tolist() == sorted(candidates.tolist())
    assert set(by_hand(group, value, start, most)) <= set(candidates.tolist())


def test_of_many_equal_rows_few_are_candidates():
    zeros, start = np.zeros(1000, dtype=np.int64), np.arange(1000)
    counts = ValueCounts.from_values(zeros, zeros + 7)
    assert candidate_rows(zeros, zeros + 7, start, counts, 3).tolist() == [0, 1, 2]


def test_no_rows_have_no_longest():
    nothing = np.empty(0, dtype=np.int64)
    assert candidate_rows(nothing, nothing, nothing, ValueCounts.empty(), 3).size == 0
    assert longest_of_each(nothing, nothing, [nothing], 3).size == 0


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(1, 9))
def test_among_the_largest_are_equals_of_the_last(values, most):
    kept = among_largest(np.array(values, dtype=np.int64), most)
    least = sorted(values)[-most:][:1]
    assert kept.tolist() == [[value] >= least for value in values]
