"""Joins of operations and API calls against a dictionary, and ranges against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.trace.attribution import EarlyStarts, duplicate_keys, early_starts, join_launches

# Dense ids, sparse huge ones, and calls without an id.
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


def tables(pairs):
    """Return operations and calls out of pairs (start of the operation, start of its call)."""
    ops, starts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    known = starts != -1
    row = np.where(known, np.arange(ops.size), -1)
    calls = {"start_ns": starts, "end_ns": np.where(starts == NULL_INT, NULL_INT, starts + 5)}
    return Table({"start_ns": ops, "launch_row": row}), Table(calls)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(110, 100), (120, 100)], EarlyStarts()),
        ([(100, 100)], EarlyStarts()),
        ([(90, 100), (98, 100)], EarlyStarts(2, 10, 10)),
        # 1 of 200 is early: an odd row, and no clock.
        ([(110, 100)] * 199 + [(60, 100)], EarlyStarts(1, 0, 40)),
        # 2 of 100 are.
        ([(110, 100)] * 98 + [(95, 100), (60, 100)], EarlyStarts(2, 5, 40)),
        # What has no call, or one without times, says nothing.
        ([(90, -1), (120, 100), (50, NULL_INT)], EarlyStarts()),
        ([], EarlyStarts()),
    ],
)
def test_early_starts_are_counted_with_a_robust_figure(pairs, expected):
    assert early_starts(*tables(pairs)) == expected


@pytest.mark.parametrize("seed", range(30))
def test_the_figures_are_those_of_a_sorted_list(seed):
    rng = np.random.default_rng(seed)
    n, offset = int(rng.integers(1, 400)), int(rng.integers(-30, 30))
    pairs = [(1_000 + offset + int(x), 1_000) for x in rng.integers(0, 40, n)]
    early = sorted(max(call - op, 0) for op, call in pairs)
    figures = early_starts(*tables(pairs))
    assert figures.early_n == sum(early_ns > 0 for early_ns in early)
    assert figures.most_ns == early[-1]
    assert figures.usual_ns == next(
        early_ns for at, early_ns in enumerate(early, 1) if 100 * at >= 99 * len(early)
    )


def test_without_api_calls_nothing_is_known():
    op, _ = tables([(1, 2)])
    assert early_starts(op, None) == EarlyStarts()
    assert early_starts(op, Table({"correlation_id": np.array([1])})) == EarlyStarts()
