"""What ran beside an operation, against a bitmap of nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.facts.tails.concurrency import Timeline

OPS = st.lists(
    st.tuples(st.integers(0, 25), st.integers(0, 9), st.integers(0, 2), st.integers(0, 1)),
    min_size=1,
    max_size=20,
)


def timeline(ops):
    start, length, lane, label = (
        np.array(column, dtype=np.int64) for column in zip(*ops, strict=True)
    )
    order = np.argsort(start, kind="stable")
    return Timeline(*(column[order] for column in (start, start + length, lane, label)))


@given(OPS)
def test_the_time_that_others_ran_is_counted_once(ops):
    ops_timeline = timeline(ops)
    rows = range(ops_timeline.start_ns.size)
    for member in (ops_timeline.label == 0, ops_timeline.label == 1):
        expected = [
            sum(
                any(
                    member[k]
                    and k != i
                    and ops_timeline.start_ns[k] <= now < ops_timeline.end_ns[k]
                    for k in rows
                )
                for now in range(ops_timeline.start_ns[i], ops_timeline.end_ns[i])
            )
            for i in rows
        ]
        assert ops_timeline.others_ns(np.arange(len(rows)), member).tolist() == expected


@given(OPS)
def test_the_one_that_ran_longest_beside_is_found(ops):
    ops_timeline = timeline(ops)
    rows = range(ops_timeline.start_ns.size)
    other, shared_ns = ops_timeline.longest_beside(np.arange(len(rows)))
    for i in rows:
        overlap = [
            min(ops_timeline.end_ns[i], ops_timeline.end_ns[k])
            - max(ops_timeline.start_ns[i], ops_timeline.start_ns[k])
            if k != i
            else 0
            for k in rows
        ]
        assert shared_ns[i] == max(0, *overlap)
        assert other[i] == -1 if max(0, *overlap) == 0 else overlap[other[i]] == shared_ns[i]
    assert ops_timeline.overlaps or not any(shared_ns > 0)


@given(OPS)
def test_operations_are_found_again(ops):
    ops_timeline = timeline(ops)
    columns = (ops_timeline.start_ns, ops_timeline.end_ns, ops_timeline.lane, ops_timeline.label)
    place = ops_timeline.places(*columns)
    for column in columns:
        assert column[place].tolist() == column.tolist()


def test_one_after_the_other_does_not_overlap():
    assert not timeline([(0, 4, 0, 0), (4, 1, 1, 0)]).overlaps
    assert timeline([(0, 4, 0, 0), (3, 1, 1, 0)]).overlaps


def test_the_longest_is_found_behind_shorter_ones_that_begin_before():
    """Of 100 ns others take 10, 50 and 25, and a last one most, but outside of them."""
    ops_timeline = timeline(
        [(0, 100, 0, 0), (1, 10, 1, 1), (20, 50, 1, 1), (40, 25, 2, 1), (90, 99, 2, 1)]
    )
    other, shared_ns = ops_timeline.longest_beside(np.array([0]))
    assert (other.tolist(), shared_ns.tolist()) == ([2], [50])
