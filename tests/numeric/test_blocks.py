"""Blocks of rows: each row once, and none empty."""

import numpy as np
import pytest

from nsys_llm.numeric.blocks import blocks, gathered


@pytest.mark.parametrize("rows_n", [0, 1, 3, 4, 7])
def test_each_row_is_in_one_block(rows_n, monkeypatch):
    monkeypatch.setattr("nsys_llm.numeric.blocks._BLOCK", 3)
    rows = np.arange(rows_n)
    parts = [rows[block].tolist() for block in blocks(rows_n)]
    assert [row for part in parts for row in part] == rows.tolist()
    assert all(parts)
    assert list(blocks(9, 5)) == [slice(0, 5), slice(5, 9)]


def test_values_are_gathered_with_a_narrow_index(monkeypatch):
    monkeypatch.setattr("nsys_llm.numeric.blocks._BLOCK", 2)
    values = np.array([5, 7, -1], dtype=np.int16)
    found = gathered(values, np.array([0, -1, 1, 1, 0], dtype=np.int32))
    assert found.tolist() == [5, -1, 7, 7, 5]
    assert found.dtype == np.int16
