"""Gaps between operations: by hand, and against a bitmap."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.gaps import find_gaps, gap_blocks, start_order

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=12)


def ns(*values):
    return np.array(values, dtype=np.int64)


def gaps_of(spans, windows):
    spans = sorted(spans)
    starts, ends = ns(*(span[0] for span in spans)), ns(*(span[1] for span in spans))
    gaps = find_gaps(starts, ends, np.array(windows, dtype=np.int64).reshape(-1, 2))
    columns = (gaps.start_ns, gaps.end_ns, gaps.before, gaps.after)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("spans", "windows", "gaps"),
    [
        # Of operations that end together, the one that began first is before the gap.
        ([(0, 4), (2, 4), (6, 7)], [(0, 7)], [(4, 6, 0, 2)]),
        # One of no length splits a gap; edges of a window are gaps, too.
        ([(0, 2), (5, 5), (9, 10)], [(0, 10)], [(2, 5, 0, 1), (5, 9, 1, 2)]),
        ([(3, 5)], [(0, 9)], [(0, 3, -1, 0), (5, 9, 0, -1)]),
    ],
)
def test_gaps_by_hand(spans, windows, gaps):
    assert gaps_of(spans, windows) == gaps


def test_a_gap_in_two_windows_is_two_gaps_with_one_begin():
    gaps = find_gaps(ns(0, 10), ns(2, 11), np.array([[0, 4], [6, 11]]))
    assert gaps.start_ns.tolist() == [2, 6]
    assert gaps.end_ns.tolist() == [4, 10]
    assert gaps.since_ns.tolist() == [2, 2]


@given(SPANS, st.lists(st.integers(0, 40), min_size=2, max_size=6, unique=True))
def test_gaps_are_what_a_bitmap_leaves(raw, edges):
    edges = sorted(edges)[: len(edges) // 2 * 2]
    windows = list(zip(edges[::2], edges[1::2], strict=True))
    spans = sorted((start, start + length) for start, length in raw)
    covered = np.zeros(50, dtype=bool)
    inside = np.zeros(50, dtype=bool)
    for start, end in spans:
        covered[start:end] = True
    for start, end in windows:
        inside[start:end] = True
    gaps = gaps_of(spans, windows)
    counted = np.zeros(50, dtype=int)
    for start, end, before, after in gaps:
        assert start < end
        counted[start:end] += 1
        if before >= 0:
            assert spans[before][1] == max(span[1] for span in spans if span[0] <= start)
        if after >= 0:
            assert spans[after][0] == min(span[0] for span in spans if span[0] >= end)
    assert counted.tolist() == (inside & ~covered).astype(int).tolist()


def ordered(starts, *ties):
    """Return the order with ties given for all rows."""
    order = start_order(starts, lambda rows: [tie[rows] for tie in ties])
    return None if order is None else order.tolist()


def test_starts_are_ordered_with_what_breaks_ties_and_stay_where_they_are_in_order():
    assert ordered(ns(4, 1, 4, 4), ns(2, 0, 1, 1), ns(0, 0, 5, 3)) == [1, 3, 2, 0]
    assert ordered(ns(1, 2, 5)) is None
    assert ordered(ns(1, 2, 2, 5), ns(0, 1, 1, 0)) == [0, 1, 2, 3]


@given(SPANS, st.lists(st.integers(0, 40), max_size=6, unique=True), st.integers(1, 4))
def test_gaps_do_not_depend_on_how_many_operations_are_looked_at_at_once(raw, edges, size):
    edges = sorted(edges)[: len(edges) // 2 * 2]
    windows = np.array(edges, dtype=np.int64).reshape(-1, 2)
    starts = ns(*(start for start, _ in raw))
    ends = ns(*(start + length for start, length in raw))
    order = start_order(starts, lambda some: (some,))
    ordered = slice(None) if order is None else order
    whole = find_gaps(starts[ordered], ends[ordered], windows)
    with mock.patch("nsys_llm.numeric.blocks._BLOCK", size):
        parts = list(gap_blocks(starts, ends, order, windows))
    for name, values in vars(whole).items():
        assert np.concatenate([getattr(part, name) for part in parts]).tolist() == values.tolist()
