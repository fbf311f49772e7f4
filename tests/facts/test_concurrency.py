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


def overlaps(ops):
    """Return how long each two of some operations run at once, 0 of one and itself."""
    first = np.maximum.outer(ops.start_ns, ops.start_ns)
    shared = np.maximum(np.minimum.outer(ops.end_ns, ops.end_ns) - first, 0)
    np.fill_diagonal(shared, 0)
    return shared


@given(OPS)
def test_the_time_that_others_ran_is_counted_once(ops):
    every = timeline(ops)
    rows, ns = np.arange(every.start_ns.size), np.arange(40)
    runs = (every.start_ns[:, None] <= ns) & (ns < every.end_ns[:, None])
    for member in (every.label == 0, every.label == 1):
        others = [(runs[member & (rows != row)].any(axis=0) & runs[row]).sum() for row in rows]
        assert every.others_ns(rows, member).tolist() == others


@given(OPS)
def test_the_one_that_ran_longest_beside_is_found(ops):
    every = timeline(ops)
    rows, shared = np.arange(every.start_ns.size), overlaps(every)
    other, shared_ns = every.longest_beside(rows)
    assert shared_ns.tolist() == shared.max(axis=1).tolist()
    assert ((other == -1) == (shared_ns == 0)).all()
    assert (shared[rows, other] == shared_ns)[other >= 0].all()
    assert every.overlaps or not shared_ns.any()


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
