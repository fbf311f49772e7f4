"""Spreads over ranks, against a plain table in which absent ranks stand as 0."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.rank_spread import RankSpread

#: Values of some parts on 5 ranks at most; None where a rank lacks the part.
TABLES = st.integers(1, 5).flatmap(
    lambda ranks_n: st.lists(
        st.lists(st.none() | st.integers(0, 4), min_size=ranks_n, max_size=ranks_n).filter(
            lambda row: any(value is not None for value in row)
        ),
        min_size=1,
        max_size=4,
    )
)


def spread_of(table):
    rows = [
        (part, rank, value)
        for part, row in enumerate(table)
        for rank, value in enumerate(row)
        if value is not None
    ]
    part, rank, value = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return RankSpread(part, rank, value, len(table), len(table[0]) if table else 0)


def test_a_rank_without_a_part_counts_as_zero():
    # Part 0: 4, 0, 9, 4 -> median 4, above it 5. Part 1: 0, 0, 0, 7 -> median 0, above it 7.
    spread = spread_of([[4, None, 9, 4], [None, None, None, 7]])
    assert spread.present_n().tolist() == [3, 1]
    assert spread.total().tolist() == [17, 7]
    assert spread.ordered(0).tolist() == [0, 0]
    assert spread.ordered(3).tolist() == [9, 7]
    assert spread.twice_median().tolist() == [8, 0]
    assert spread.excess().tolist() == [5, 7]
    assert spread.rank_of_most().tolist() == [2, 3]
    assert spread.rank_of_least().tolist() == [1, 0]
    assert spread.at(np.array([2, 0])).tolist() == [9, 0]


def test_without_parts_all_results_are_empty():
    spread = spread_of([])
    for result in (spread.excess(), spread.rank_of_least(), spread.rank_of_most()):
        assert result.size == 0


@given(table=TABLES)
def test_all_results_equal_those_of_the_full_table(table):
    full = np.array([[value or 0 for value in row] for row in table])
    spread = spread_of(table)
    assert spread.total().tolist() == full.sum(axis=1).tolist()
    assert (spread.twice_median() / 2).tolist() == np.median(full, axis=1).tolist()
    assert (
        spread.lower_median().tolist() == np.percentile(full, 50, axis=1, method="lower").tolist()
    )
    for position in range(full.shape[1]):
        assert spread.ordered(position).tolist() == np.sort(full, axis=1)[:, position].tolist()
    ranks_n = full.shape[1]
    others = [np.delete(full, rank, axis=1) for rank in range(ranks_n)]
    if ranks_n > 1:
        medians = np.stack([np.median(values, axis=1) for values in others], axis=1)
        above = np.maximum(full - medians, 0).sum(axis=1)
        assert spread.excess().tolist() == np.floor(above).tolist()
    least, most = full.argmin(axis=1), full.argmax(axis=1)
    assert spread.rank_of_least().tolist() == least.tolist()
    # argmax takes an absent rank before one that has 0, if all are 0.
    assert spread.ordered(full.shape[1] - 1).tolist() == full.max(axis=1).tolist()
    real = full.max(axis=1) > 0
    assert spread.rank_of_most()[real].tolist() == most[real].tolist()
    assert spread.at(most).tolist() == full.max(axis=1).tolist()
