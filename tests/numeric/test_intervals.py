"""Interval arithmetic against a bitmap that a reader can check, and the invariants of sums."""

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from effort import over_seeds
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.exclusive import exclusive_ns
from nsys_llm.numeric.intervals import (
    bin_edges,
    bounds,
    clip_to_windows,
    clipped_lengths,
    covered_ns,
    intersect_intervals,
    merged_unions,
    nesting_lanes,
    span_quarters,
    starts_inside,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)

END = 40  # the bitmaps reach from 0 to here

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8).map(
    lambda pairs: [(start, start + length) for start, length in pairs]
)


def columns(pairs):
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def bitmap(pairs):
    """Return for each instant of 0 .. END - 1 how many intervals cover it."""
    covers = np.zeros(END, dtype=np.int64)
    for start, end in pairs:
        covers[start:end] += 1
    return covers


def union_of(pairs):
    return union_intervals(*columns(pairs))


def exclusive(pairs):
    starts, ends = columns(pairs)
    return exclusive_ns(starts, ends, np.arange(len(pairs))).tolist()


@given(st.lists(intervals, max_size=4))
def test_merged_unions_are_the_union_of_all(sets):
    merged = merged_unions([union_of(pairs) for pairs in sets])
    assert np.array_equal(merged, union_of([pair for pairs in sets for pair in pairs]))


@given(intervals)
def test_the_union_covers_what_a_bitmap_covers(pairs):
    union = union_of(pairs)
    assert np.array_equal(bitmap(union.tolist()), (bitmap(pairs) > 0).astype(int))
    # Sorted, real, and with a gap before the next: the shortest way to write the set.
    assert (union[:, 1] > union[:, 0]).all()
    assert (union[1:, 0] > union[:-1, 1]).all()
    assert total_length_ns(union) == (bitmap(pairs) > 0).sum()


@given(intervals, st.integers(1, 4))
def test_exclusive_shares_do_not_depend_on_how_many_are_looked_at_at_once(pairs, size):
    with mock.patch("nsys_llm.numeric.exclusive._BLOCK", size):
        in_blocks = exclusive(pairs)
    assert in_blocks == exclusive(pairs)


@given(intervals, intervals)
def test_an_intersection_covers_what_both_bitmaps_cover(left, right):
    both = intersect_intervals(union_of(left), union_of(right))
    expected = (bitmap(left) > 0) & (bitmap(right) > 0)
    assert np.array_equal(bitmap(both.tolist()), expected.astype(int))


@given(intervals, intervals)
def test_clipped_pieces_cover_what_the_bitmaps_of_each_interval_and_the_windows_share(pairs, given):
    windows = union_of(given)
    owner, starts, ends = clip_to_windows(*columns(pairs), windows)
    lengths = clipped_lengths(*columns(pairs), windows).tolist()
    for row, pair in enumerate(pairs):
        of_row = owner == row
        pieces = list(zip(starts[of_row].tolist(), ends[of_row].tolist(), strict=True))
        expected = (bitmap([pair]) > 0) & (bitmap(given) > 0)
        assert np.array_equal(bitmap(pieces), expected.astype(int))
        assert lengths[row] == expected.sum()


@given(intervals)
def test_covered_time_and_membership_are_those_of_the_bitmap(given):
    windows, covers, instants = union_of(given), bitmap(given) > 0, range(-3, END + 4)
    at_ns = np.array(instants, dtype=np.int64)
    assert covered_ns(at_ns, windows).tolist() == [
        int(covers[: max(at, 0)].sum()) for at in instants
    ]
    assert starts_inside(at_ns, windows).tolist() == [
        0 <= at < END and bool(covers[at]) for at in instants
    ]


@given(intervals, intervals)
def test_a_difference_is_the_time_in_one_and_not_in_the_other(ours, others):
    left = subtract_intervals(union_of(ours), union_of(others))
    expected = (bitmap(ours) > 0) & (bitmap(others) == 0)
    assert ((bitmap(left.tolist()) > 0) == expected).all()
    assert total_length_ns(left) == expected.sum()
    assert (left[:, 1] > left[:, 0]).all()
    # Touching pieces of `ours` are one already, so that no two of the result touch.
    assert (left[1:, 0] > left[:-1, 1]).all()


def test_the_tie_break_decides_between_equal_intervals_whatever_the_row_order():
    same = np.array([0, 0]), np.array([3, 3])
    assert exclusive_ns(*same, np.array([8, 9])).tolist() == [2, 1]
    assert exclusive_ns(*same, np.array([9, 8])).tolist() == [1, 2]


@given(intervals)
def test_exclusive_shares_follow_the_rule_segment_by_segment(pairs):
    # Between two neighbouring bounds the same intervals run: each takes dt // k there.
    expected = [0] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda row: (*pairs[row], row))
    bounds = sorted({bound for pair in pairs for bound in pair})
    for low, high in pairwise(bounds):
        active = [row for row in order if pairs[row][0] <= low and pairs[row][1] >= high]
        for row in active:
            expected[row] += (high - low) // len(active)
        if active:
            expected[active[0]] += (high - low) % len(active)
    assert exclusive(pairs) == expected


def test_bounds_are_the_first_begin_and_the_last_end():
    assert bounds(np.array([[3, 5], [9, 12]])) == (3, 12)
    assert bounds(np.empty((0, 2), dtype=np.int64)) == (None, None)


def _overlap_in_part(left, right):
    (start, end), (low, high) = sorted((left, right), key=lambda span: (span[0], -span[1]))
    return start < low < end < high


@over_seeds(range(200))
def test_no_two_of_one_lane_overlap_in_part(seed):
    rng = np.random.default_rng(seed)
    start_ns = rng.integers(0, 30, rng.integers(0, 14))
    end_ns = start_ns + rng.integers(0, 12, start_ns.size)
    lane = nesting_lanes(start_ns, end_ns)
    spans = list(zip(start_ns.tolist(), end_ns.tolist(), strict=True))
    for left, span in enumerate(spans):
        for right in range(left):
            assert lane[left] != lane[right] or not _overlap_in_part(span, spans[right])
    alone = not any(
        _overlap_in_part(span, other) for at, span in enumerate(spans) for other in spans[:at]
    )
    assert alone == (lane.max(initial=0) == 0)
    assert set(lane.tolist()) == set(range(int(lane.max(initial=-1)) + 1))


def test_a_chain_of_kernels_that_each_begin_early_needs_two_lanes():
    start_ns = np.arange(100) * 10
    assert nesting_lanes(start_ns, start_ns + 12).tolist() == [0, 1] * 50


def array(values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("start", "end", "most", "edges"),
    [
        (10, 20, 2, [10, 15, 20]),
        (10, 17, 3, [10, 12, 14, 17]),  # 7 = 2 + 2 + 3
        (10, 12, 5, [10, 11, 12]),  # no part is empty
        (10, 10, 5, [10, 10]),
        (10, 5, 5, [10, 10]),
    ],
)
def test_a_span_is_cut_into_parts_that_differ_by_one_ns_at_most(start, end, most, edges):
    assert bin_edges(start, end, most).tolist() == edges


def test_the_longest_capture_is_cut_without_an_overflow():
    edges = bin_edges(-(1 << 53), 1 << 53, 200)
    assert (edges[0], edges[-1], len(edges)) == (-(1 << 53), 1 << 53, 201)
    assert set(np.diff(edges).tolist()) == {(1 << 54) // 200, (1 << 54) // 200 + 1}


def test_quarters_end_at_the_end_of_the_span():
    assert span_quarters(10, 18).tolist() == [12, 14, 16, 18]
    # A span too short for four parts is taken as 4 ns.
    assert span_quarters(10, 10).tolist() == [11, 12, 13, 14]
