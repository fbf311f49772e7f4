"""A column that is read part by part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsys_llm.profile.column_rows import ColumnRows, TooManyRows, constant_as_view

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
