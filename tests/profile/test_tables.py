"""Tables in memory: the rows taken of them, and what room they take."""

import weakref

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.column_rows import ColumnRows, TooManyRows, constant_as_view
from nsys_llm.profile.tables import Table, process_of_thread


def table_of(rows_n):
    same = np.broadcast_to(np.int64(7), (rows_n,))
    return Table({"same": same, "own": np.arange(rows_n) ** 2})


@given(st.lists(st.booleans(), max_size=9), st.booleans())
def test_rows_taken_are_those_of_each_column_and_one_value_stays_one(mask, by_mask):
    table, chosen = table_of(len(mask)), np.array(mask, dtype=bool)
    taken = table.take(chosen if by_mask else np.flatnonzero(chosen))
    assert taken["same"].tolist() == [7] * sum(mask)
    assert taken["own"].tolist() == [row**2 for row, kept in enumerate(mask) if kept]
    assert taken["same"].strides == (0,) or not any(mask)


def test_rows_are_taken_in_the_order_of_an_index_and_as_often():
    taken = table_of(4).take(np.array([3, 0, 3]))
    assert taken["own"].tolist() == [9, 0, 9]
    assert len(taken) == len(taken["same"]) == 3


def test_a_mask_that_leaves_all_copies_nothing():
    table = table_of(3)
    assert table.take(np.ones(3, dtype=bool)) is table


def test_columns_that_nobody_asks_for_are_not_taken():
    class Asked(dict):
        def __init__(self, columns):
            super().__init__(columns)
            self.names = []

        def __getitem__(self, name):
            self.names.append(name)
            return super().__getitem__(name)

    columns = Asked(table_of(4).columns)
    taken = Table(columns).take(np.array([True, False, True, True]))
    assert (len(taken), "own" in taken, "other" in taken) == (3, True, False)
    assert list(taken.columns) == ["same", "own"]
    assert columns.names == []
    assert taken["own"] is taken["own"]
    assert columns.names == ["own"]


def test_a_further_column_stands_beside_rows_that_were_taken():
    taken = table_of(4).take(np.array([True, False, True, True]))
    more = taken.plus(half=taken["own"] // 2).take(np.array([False, True, True]))
    assert (len(more), more["own"].tolist(), more["half"].tolist()) == (2, [4, 9], [2, 4])
    assert list(more.columns) == ["same", "own", "half"]
    assert "half" not in taken


@pytest.mark.parametrize("tid", [0, 0x123456, 0xFFFFFF])
def test_a_thread_belongs_to_its_process_and_null_to_none(tid):
    pid = (5 << 56) | (4101 << 24)
    processes = process_of_thread(np.array([pid | tid, NULL_INT, -1], dtype=np.int64))
    assert processes.tolist() == [pid, NULL_INT, ~0xFFFFFF]


def test_narrow_columns_are_asked_for_as_int64_and_wide_only_while_somebody_uses_them():
    stored = {"id": np.array([1, -2], dtype=np.int8), "start_ns": np.array([5, 2**40])}
    table = Table.stored(stored)
    first, second = table["id"], table["id"]
    assert (first.dtype, first.tolist(), len(table)) == (np.int64, [1, -2], 2)
    assert first is second
    assert table["start_ns"] is stored["start_ns"]
    assert set(table.columns) == set(stored)
    assert len(table.columns) == 2
    gone = weakref.ref(first)
    del first, second
    assert gone() is None
    further = table.plus(launch_row=np.array([0, -1], dtype=np.int32))
    assert further["launch_row"].dtype == np.int64
    assert further.take(np.array([False, True]))["id"].tolist() == [-2]


def test_arithmetic_on_a_column_leaves_it_as_it_is_while_its_outcome_lives():
    # Arrays from 256 kB on: numpy computes in place of an operand that nobody else refers to.
    end_ns = np.arange(1 << 16, dtype=np.int32)
    table = Table.stored({"start_ns": np.ones(1 << 16, dtype=np.int32), "end_ns": end_ns})
    duration_ns = table["end_ns"] - table["start_ns"]
    np.testing.assert_array_equal(duration_ns, end_ns - 1)
    np.testing.assert_array_equal(table["end_ns"], end_ns)


parts = st.lists(st.lists(st.integers(0, 1), max_size=4), max_size=6)


@given(parts)
def test_parts_together_are_the_column_and_one_value_takes_no_memory(given_parts):
    values = [value for part in given_parts for value in part]
    column = ColumnRows(len(values))
    for part in given_parts:
        column.add(constant_as_view(np.array(part, dtype=np.int64)))
    rows = column.rows()
    assert rows.tolist() == values
    assert not values or (rows.strides == (0,)) == (len(set(values)) == 1)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), max_size=5))
@example([[1, 2], [127, -128], [128], [-(2**31)], [2**31], [-(2**63), 2**63 - 1]])
def test_a_column_is_as_wide_as_its_values_need(given_parts):
    values = [value for part in given_parts for value in part]
    column = ColumnRows(len(values))
    for part in given_parts:
        column.add(np.array(part, dtype=np.int64))
    rows = column.rows()
    assert rows.tolist() == values
    if rows.strides != (0,) and values:
        narrower = np.iinfo(f"int{rows.itemsize * 4}") if rows.itemsize > 1 else None
        assert narrower is None or min(values) < narrower.min or max(values) > narrower.max


def test_more_rows_than_were_announced_are_refused():
    column = ColumnRows(3)
    column.add(np.array([1, 2]))
    with pytest.raises(TooManyRows):
        column.add(np.array([3, 4]))
