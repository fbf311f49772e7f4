"""Codes for distinct values: dense and sparse ids give the same as numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import (
    distinct,
    distinct_codes,
    distinct_rows,
    first_of_each,
    order_by_code,
    replaced,
    rows_by_code,
    runs,
    sorted_distinct,
    summed,
)

# Dense ones are marked in a table, sparse ones (up to both ends of 64 bits) are sorted.
ids = st.one_of(
    st.lists(st.integers(-5, 5), max_size=10),
    st.lists(st.sampled_from([NULL_INT, -1, 0, 2**62, 2**63 - 1]), max_size=10),
    st.lists(st.integers(2**62, 2**62 + 9), max_size=10),
)


@given(ids)
def test_distinct_values_are_those_of_a_sorted_set(values):
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
    assert sorted_distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


@given(ids)
def test_codes_lead_back_to_the_values(values):
    used, codes = distinct_codes(np.array(values, dtype=np.int64))
    assert used.tolist() == sorted(set(values))
    assert codes.dtype == np.int64
    assert used[codes].tolist() == values


@given(ids)
def test_values_are_replaced_by_what_stands_for_them(values):
    made = replaced(np.array(values, dtype=np.int64), lambda used: used // 2)
    assert made.tolist() == [value // 2 for value in values]


def test_sums_by_code_are_exact_where_doubles_would_round():
    # 2^53 + 1 is no double; code 1 has no values.
    sums = summed(np.array([2, 0, 2]), np.array([2**53, 4, 1]), 3)
    assert sums.tolist() == [4, 0, 2**53 + 1]


@given(st.lists(st.tuples(st.integers(-2, 2), st.just(7), st.integers(0, 3)), min_size=1))
def test_rows_of_several_columns_are_coded_in_lexicographic_order(rows):
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    first, code = distinct_rows(columns)
    used = sorted(set(rows))
    assert [rows[row] for row in first.tolist()] == used
    assert first.tolist() == [rows.index(row) for row in used]
    assert [used[index] for index in code.tolist()] == rows


def test_sparse_columns_do_not_outgrow_64_bits():
    columns = [np.array([2**62, NULL_INT, 2**62, 5], dtype=np.int64) for _ in range(4)]
    first, code = distinct_rows(columns)
    assert (first.tolist(), code.tolist()) == ([1, 3, 0], [2, 0, 2, 1])
    assert distinct_rows([np.empty(0, dtype=np.int64)])[0].size == 0


@pytest.mark.parametrize("high", [3, 1 << 16])
def test_rows_by_code_keep_their_order(high):
    assert order_by_code(np.array([high, 1, high, 0, 1])).tolist() == [3, 1, 4, 0, 2]


@given(st.integers(2, 5), st.data())
def test_rows_of_each_code_are_those_that_a_mask_finds(codes_n, data):
    code = np.array(data.draw(st.lists(st.integers(0, codes_n - 1))), dtype=np.uint8)
    rows = [some.tolist() for some in rows_by_code(code, codes_n)]
    assert rows == [np.flatnonzero(code == value).tolist() for value in range(codes_n)]


def test_rows_of_a_single_code_are_all_and_of_none_there_are_none():
    assert rows_by_code(np.zeros(3, dtype=np.uint8), 1) == [slice(None)]
    assert rows_by_code(np.zeros(0, dtype=np.uint8), 0) == []


def test_the_first_chosen_row_of_each_code_counts():
    codes, values = np.array([1, 0, 1, 1, 0]), np.array([10, 11, 12, 13, 14])
    chosen = np.array([False, True, True, True, True])
    assert first_of_each(codes, values, chosen, 3, -1).tolist() == [11, 12, -1]


def test_runs_are_as_long_as_they_may_be_and_leave_nothing_out():
    sizes = np.array([3, 1, 2, 9, 1, 1])
    assert list(runs(sizes, 4)) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(runs(sizes[:0], 4)) == []
