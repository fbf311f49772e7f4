"""Samples weighted by what ran in them, by hand and against a count of every ns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.facts.device.gpus import overlaps, sample_windows


def array(values):
    return np.array(values, dtype=np.int64)


def test_a_sample_speaks_of_the_period_before_it():
    assert sample_windows(array([10, 20, 30])).tolist() == [[0, 10], [10, 20], [20, 30]]


def test_after_a_pause_a_sample_speaks_of_one_period_only():
    # Distances 10, 50, 10, 4: the period is 10.
    windows = sample_windows(array([10, 20, 70, 80, 84]))
    assert windows.tolist() == [[0, 10], [10, 20], [60, 70], [70, 80], [80, 84]]


def test_one_sample_tells_no_period():
    assert sample_windows(array([10])).shape == (0, 2)
    assert sample_windows(array([])).shape == (0, 2)


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 2)), max_size=12
    ),
    times=st.lists(st.integers(0, 40), unique=True, max_size=8),
)
def test_overlaps_are_those_counted_ns_by_ns(spans, times):
    windows = sample_windows(array(sorted(times)))
    starts, groups = array([span[0] for span in spans]), array([span[2] for span in spans])
    ends = starts + array([span[1] for span in spans])
    expected = {}
    for start, end, group in zip(starts.tolist(), ends.tolist(), groups.tolist(), strict=True):
        for index, (low, high) in enumerate(windows.tolist()):
            shared = len(set(range(start, end)) & set(range(low, high)))
            if shared:
                expected[group, index] = expected.get((group, index), 0) + shared
    triples = zip(
        *(column.tolist() for column in overlaps(starts, ends, groups, windows)), strict=True
    )
    assert {(group, index): ns for group, index, ns in triples} == expected
