"""Time in calls, against bitmaps: per thread, per group, beside what the GPU did."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.intervals import union_intervals
from nsys_llm.recipes.llm_hotspots.per_rank.host_time import HostTime, drained_gaps

END = 40
GROUPS, THREADS = 3, 3

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6).map(
    lambda pairs: union_intervals(
        np.array([start for start, _ in pairs], dtype=np.int64),
        np.array([start + length for start, length in pairs], dtype=np.int64),
    )
)
calls = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 9), st.integers(0, THREADS - 1), st.integers(0, 2)
    ),
    max_size=9,
)


def time_of(rows, busy, windows):
    start, length, thread, group = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    time = HostTime.of(start, start + length, thread, busy, windows)
    return time, time.by_group(group, GROUPS), group


def covered(intervals):
    instants = np.zeros(END, dtype=bool)
    for start, end in intervals:
        instants[start:end] = True
    return instants


@given(rows=calls, busy=spans, windows=st.none() | spans)
def test_times_of_groups_equal_those_of_a_bitmap(rows, busy, windows):
    _, times, _ = time_of(rows, busy, windows)
    seen = np.ones(END, dtype=bool) if windows is None else covered(windows)
    working = covered(busy)
    outside = np.ones(END, dtype=bool)
    if len(busy):
        outside[busy[0, 0] : busy[-1, 1]] = False
    for group in range(GROUPS):
        group_calls = [
            (start, start + length, thread) for start, length, thread, g in rows if g == group
        ]
        lengths = [covered([(start, end)]) & seen for start, end, _ in group_calls]
        threads = [
            covered([(start, end) for start, end, thread in group_calls if thread == nth]) & seen
            for nth in range(THREADS)
        ]
        assert times.total_ns[group] == sum(int(bitmap.sum()) for bitmap in lengths)
        assert times.thread_union_ns[group] == sum(int(bitmap.sum()) for bitmap in threads)
        together = np.logical_or.reduce(threads)
        assert times.union_ns[group] == int(together.sum())
        assert times.hidden_ns[group] == int((together & working).sum())
        assert times.outside_ns[group] == int((together & outside).sum())


@given(rows=calls, busy=spans, windows=st.none() | spans)
def test_sets_of_groups_have_the_times_of_their_calls_together(rows, busy, windows):
    # Groups 0 and 2 are set 1, group 1 is set 0.
    time, times, group = time_of(rows, busy, windows)
    of_group = np.array([1, 0, 1])
    fine, coarse = time.by_groups(group, GROUPS, of_group, 2)
    together = time.by_group(of_group[group], 2)
    for name in vars(times):
        assert getattr(fine, name).tolist() == getattr(times, name).tolist(), name
        assert getattr(coarse, name).tolist() == getattr(together, name).tolist(), name


@given(rows=calls, busy=spans, random=st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(rows, busy, random):
    _, times, _ = time_of(rows, busy, None)
    random.shuffle(rows)
    _, other, _ = time_of(rows, busy, None)
    for name, values in vars(times).items():
        assert values.tolist() == getattr(other, name).tolist(), name


def drained(waits, busy, windows=None):
    tables = [np.array(intervals, dtype=np.int64).reshape(-1, 2) for intervals in (waits, busy)]
    return drained_gaps(*tables, None if windows is None else np.array(windows))


def test_the_gpu_runs_dry_where_an_idle_gap_outlasts_the_wait():
    # The gap [5, 9) begins in the wait [2, 7) and ends after it.
    assert drained([(2, 7)], [(0, 5), (9, 12)]) == (1, 4)


def test_a_gap_between_work_that_was_launched_before_is_no_drain():
    # [5, 6) ends inside the wait: the next kernel was in the queue already.
    assert drained([(2, 9)], [(0, 5), (6, 20)]) == (0, 0)


def test_a_gap_that_begins_before_the_wait_is_not_its_own():
    assert drained([(6, 8)], [(0, 5), (9, 12)]) == (0, 0)
    assert drained([(5, 8)], [(0, 5), (9, 12)]) == (1, 4)
    assert drained([(2, 5)], [(0, 5), (9, 12)]) == (0, 0)


def test_a_drain_is_cut_to_the_windows():
    assert drained([(2, 7)], [(0, 5), (9, 12)], [(0, 8)]) == (1, 3)


def test_a_gap_inside_a_wait_that_a_window_cuts_is_no_drained_one():
    # The wait is [0, 10), the gap [4, 6): the window [0, 5) ends in it, which ends no wait.
    busy, wait = np.array([[0, 4], [6, 20]]), np.array([[0, 10]])
    assert drained_gaps(wait, busy, np.array([[0, 5]])) == (0, 0)
    # A wait [0, 5) does end in the gap; 1 ns of that is inside the window.
    assert drained_gaps(np.array([[0, 5]]), busy, np.array([[0, 5]])) == (1, 1)
    assert drained_gaps(np.array([[0, 5]]), busy, np.array([[5, 9]])) == (0, 0)
