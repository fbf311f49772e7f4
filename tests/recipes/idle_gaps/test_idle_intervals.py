"""When all ranks, or all but one, are in a state: by hand and against a bitmap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.intervals import union_intervals
from nsys_llm.recipes.idle_gaps.tables.idle_intervals import common_intervals


def spans(*pairs):
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def test_all_ranks_together_and_each_rank_that_is_missing():
    every, alone = common_intervals([spans((0, 6)), spans((2, 9)), spans((4, 8))], (0, 10))
    # 4-6 all three; 2-4 ranks 0 and 1, so 2 is missing; 6-8 ranks 1 and 2, so 0 is.
    assert every.tolist() == [[4, 6]]
    assert {rank: intervals.tolist() for rank, intervals in alone.items()} == {
        2: [[2, 4]],
        0: [[6, 8]],
    }


def test_nothing_counts_outside_the_span():
    every, alone = common_intervals([spans((0, 9)), spans((0, 9))], (3, 5))
    assert every.tolist() == [[3, 5]]
    assert alone == {}


def test_stretches_that_touch_are_one():
    every, _ = common_intervals([spans((0, 4), (4, 8)), spans((0, 8))], (0, 8))
    assert every.tolist() == [[0, 8]]


def test_a_rank_that_is_never_in_the_state_is_always_missing():
    every, alone = common_intervals([spans(), spans((1, 3))], (0, 4))
    assert every.tolist() == []
    assert alone[0].tolist() == [[1, 3]]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=5),
        min_size=2,
        max_size=5,
    )
)
def test_common_intervals_are_those_of_a_bitmap(raw):
    ranks = []
    bitmap = np.zeros((len(raw), 30), dtype=bool)
    for row, some in enumerate(raw):
        starts, lengths = np.array(some, dtype=np.int64).reshape(-1, 2).T
        ranks.append(union_intervals(starts, starts + lengths))
        for start, end in ranks[-1].tolist():
            bitmap[row, start:end] = True
    every, alone = common_intervals(ranks, (2, 24))
    inside = np.zeros(30, dtype=bool)
    inside[2:24] = True
    assert filled([every]).tolist() == (bitmap.all(axis=0) & inside).tolist()
    for row in range(len(raw)):
        others = np.delete(bitmap, row, axis=0).all(axis=0) & ~bitmap[row] & inside
        assert filled([alone.get(row, spans())]).tolist() == others.tolist()


def filled(parts):
    bitmap = np.zeros(30, dtype=bool)
    for part in parts:
        for start, end in part.tolist():
            bitmap[start:end] = True
    return bitmap
