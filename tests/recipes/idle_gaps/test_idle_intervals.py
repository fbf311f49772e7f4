"""When all ranks are in a state: by hand and against a bitmap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.intervals import union_intervals
from nsys_llm.recipes.idle_gaps.tables.cross_rank_idle import common_intervals


def spans(*pairs):
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def test_nothing_counts_outside_the_span():
    every = common_intervals([spans((0, 6)), spans((2, 9)), spans((4, 8))], (0, 5))
    assert every.tolist() == [[4, 5]]


RANKS = st.lists(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=5), min_size=2, max_size=5
)


@given(RANKS)
def test_common_intervals_are_those_of_a_bitmap(raw):
    ranks, bitmap = [], np.zeros((len(raw), 30), dtype=bool)
    for row, some in enumerate(raw):
        starts, lengths = np.array(some, dtype=np.int64).reshape(-1, 2).T
        ranks.append(union_intervals(starts, starts + lengths))
        bitmap[row] = filled(ranks[-1])
    bitmap[:, :2] = bitmap[:, 24:] = False
    assert filled(common_intervals(ranks, (2, 24))).tolist() == bitmap.all(axis=0).tolist()


def filled(intervals):
    bitmap = np.zeros(30, dtype=bool)
    for start, end in intervals.tolist():
        bitmap[start:end] = True
    return bitmap
