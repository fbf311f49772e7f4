"""Time in calls, against bitmaps: per thread, per group, beside what the GPU did."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.intervals import union_intervals
from nsys_llm.recipes.llm_hotspots.per_rank.host_time import HostTime

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


def times_of(rows, busy, windows, set_of=range(GROUPS)):
    """Return the times of each group, and of sets of groups."""
    start, length, thread, group = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    time = HostTime.of(start, start + length, group, thread, busy, windows)
    return time.by_groups(np.array(set_of), max(set_of) + 1)


def covered(intervals):
    instants = np.zeros(END, dtype=bool)
    for start, end in intervals:
        instants[start:end] = True
    return instants


@given(rows=calls, busy=spans, windows=st.none() | spans)
def test_times_of_groups_equal_those_of_a_bitmap(rows, busy, windows):
    times, _ = times_of(rows, busy, windows)
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
        together = np.logical_or.reduce(threads)
        assert times.union_ns[group] == int(together.sum())
        assert times.hidden_ns[group] == int((together & working).sum())
        assert times.outside_ns[group] == int((together & outside).sum())


@given(rows=calls, busy=spans, windows=st.none() | spans)
def test_sets_of_groups_have_the_times_of_their_calls_together(rows, busy, windows):
    # Groups 0 and 2 are set 1, group 1 is set 0.
    set_of = [1, 0, 1]
    groups, sets = times_of(rows, busy, windows, set_of)
    alone, _ = times_of(rows, busy, windows)
    regrouped = [(*row[:3], set_of[row[3]]) for row in rows]
    together, _ = times_of(regrouped, busy, windows)
    for name in vars(alone):
        assert getattr(groups, name).tolist() == getattr(alone, name).tolist(), name
        assert getattr(sets, name).tolist() == getattr(together, name).tolist()[:2], name


@given(rows=calls, busy=spans, random=st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(rows, busy, random):
    times, _ = times_of(rows, busy, None)
    random.shuffle(rows)
    other, _ = times_of(rows, busy, None)
    for name, values in vars(times).items():
        assert values.tolist() == getattr(other, name).tolist(), name
