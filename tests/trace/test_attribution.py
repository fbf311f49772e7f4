"""Joins of operations and API calls against a dictionary, and ranges against plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.trace.attribution import duplicate_keys, join_launches

# Dense ids use a table; sparse huge ones, and calls without an id, use a search.
id_lists = st.one_of(
    st.lists(st.integers(0, 6), max_size=8),
    st.lists(st.sampled_from([NULL_INT, -1, 0, 3, 2**32, 2**53 + 1, 2**63 - 1]), max_size=8),
    st.lists(st.integers(2**62, 2**62 + 4), max_size=8),
)


def int64(values):
    return np.array(values, dtype=np.int64)


def joined(op_ids, calls):
    starts = int64([start for _, start in calls])
    return join_launches(int64(op_ids), int64([key for key, _ in calls]), starts).tolist()


def test_without_starts_the_first_row_wins():
    assert join_launches(int64([5]), int64([4, 5, 5]), None).tolist() == [1]


@given(id_lists, id_lists, st.data())
def test_the_join_is_that_of_a_dictionary(op_ids, call_ids, data):
    starts = data.draw(
        st.lists(st.integers(0, 3), min_size=len(call_ids), max_size=len(call_ids)), "starts"
    )
    earliest: dict[int, int] = {}
    for row in sorted(range(len(call_ids)), key=lambda row: (starts[row], row)):
        earliest.setdefault(call_ids[row], row)
    expected = [earliest.get(key, -1) if key >= 0 else -1 for key in op_ids]
    assert joined(op_ids, list(zip(call_ids, starts, strict=True))) == expected


@given(id_lists)
def test_duplicate_keys_are_those_claimed_twice(call_ids):
    expected = {key for key in call_ids if key >= 0 and call_ids.count(key) > 1}
    assert duplicate_keys(int64(call_ids)).tolist() == sorted(expected)


def test_ids_without_a_value_between_two_equal_ones_hide_nothing():
    # The step from 1 down to NULL is larger than 63 bits hold, and would come out positive.
    assert duplicate_keys(int64([1, NULL_INT, -3, 1])).tolist() == [1]


def test_the_earliest_call_is_found_where_a_later_row_has_no_time():
    calls, starts = int64([7, 7, 7]), int64([5, 2, NULL_INT])
    assert join_launches(int64([7]), calls[:2], starts[:2]).tolist() == [1]
    assert join_launches(int64([7]), calls, starts).tolist() == [2]
