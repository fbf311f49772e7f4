"""Calls of threads as lines of time, on calls of a few ns and against a bitmap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.facts.device.host_timeline import ThreadCalls


def calls_of(*rows):
    """Return calls out of (start, end, thread)."""
    starts, ends, threads = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return ThreadCalls.of(starts, ends, threads, np.ones(len(rows), dtype=bool))


def test_calls_are_sorted_by_thread_and_start():
    calls = calls_of((5, 6, 9), (0, 2, 9), (3, 4, 7))
    assert calls.threads.tolist() == [7, 9]
    assert calls.start_ns.tolist() == [3, 0, 5]
    assert calls.row.tolist() == [2, 1, 0]
    assert calls.place.tolist() == [2, 1, 0]
    assert calls.bounds.tolist() == [0, 1, 3]
    assert [calls.code(thread) for thread in (6, 7, 8, 9, 10)] == [-1, 0, -1, 1, -1]


def test_of_calls_that_start_together_the_longer_is_the_outer_one():
    calls = calls_of((0, 3, 1), (0, 8, 1))
    assert calls.row.tolist() == [1, 0]
    assert calls.outer.tolist() == [0, 0]


def test_a_call_of_no_length_is_inside_none_that_starts_with_it():
    # It had returned when the other began, whichever row comes first.
    for rows in ([(3, 3, 1), (3, 8, 1)], [(3, 8, 1), (3, 3, 1)]):
        calls = calls_of((0, 3, 1), *rows)
        assert calls.outer.tolist() == [0, 1, 2]
        assert calls.end_ns.tolist() == [3, 3, 8]
    assert calls_of((0, 8, 1), (3, 3, 1)).outer.tolist() == [0, 0]


def test_calls_that_overlap_belong_to_the_one_begun_first():
    calls = calls_of((0, 5, 1), (3, 8, 1))
    assert calls.spans(0).tolist() == [[0, 5], [5, 8]]


def test_a_row_that_is_left_out_has_no_place():
    starts, ends = np.array([0, 4]), np.array([3, 2])
    calls = ThreadCalls.of(starts, ends, np.array([1, 1]), np.array([True, False]))
    assert calls.place.tolist() == [0, -1]


@given(
    st.lists(
        st.tuples(st.integers(0, 25), st.integers(0, 8), st.integers(1, 3)), min_size=1, max_size=14
    )
)
def test_each_instant_belongs_to_one_call_at_most(raw):
    calls = calls_of(*((start, start + length, thread) for start, length, thread in raw))
    for code, thread in enumerate(calls.threads.tolist()):
        covered, counted = np.zeros(40, dtype=int), np.zeros(40, dtype=int)
        for start, length, owner in raw:
            if owner == thread:
                covered[start : start + length] = 1
        for start, end in calls.spans(code).tolist():
            counted[start:end] += 1
        assert counted.tolist() == covered.tolist()
        ends = calls.end_ns[calls.bounds[code] : calls.bounds[code + 1]]
        assert (np.diff(ends) >= 0).all()
