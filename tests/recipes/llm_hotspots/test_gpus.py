"""Which GPU is behind a CUDA device, and its samples weighted by what ran in them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.gpus import (
    BY_ORDER,
    BY_TABLE,
    ONLY_GPU,
    GpuLink,
    gpu_links,
    gpu_value,
    overlaps,
    sample_windows,
)
from nsys_llm.profile.tables import Table

PID = (7 << 24) | (1 << 48)


def table(**columns):
    return Table({name: np.array(values, dtype=np.int64) for name, values in columns.items()})


def gpus(*total_bytes):
    ids = range(len(total_bytes))
    return table(gpu_id=ids, cuda_id=ids, total_bytes=total_bytes)


def test_the_list_of_the_report_is_believed_first():
    listed = table(gpu_id=[3, 1], cuda_id=[0, 0], pid=[7, 8])
    links = gpu_links({"gpus": gpus(5, 5, 5, 5), "cuda_devices": listed}, PID, (0,))
    assert links == {0: GpuLink(3, BY_TABLE)}


def test_the_only_gpu_is_that_of_every_device():
    assert gpu_links({"gpus": gpus(5)}, PID, (0, 2)) == dict.fromkeys((0, 2), GpuLink(0, ONLY_GPU))


def test_cudas_order_is_an_assumption_and_labelled_so():
    links = gpu_links({"gpus": gpus(5, 6)}, PID, (1, 4))
    assert links == {1: GpuLink(1, BY_ORDER)}  # there is no fifth GPU


def test_nothing_is_known_without_tables_or_from_nulls():
    assert gpu_links({}, PID, (0,)) == {}
    unnumbered = table(gpu_id=[0, 1], cuda_id=[NULL_INT] * 2, total_bytes=[5, 5])
    unlinked = table(gpu_id=[NULL_INT], cuda_id=[0], pid=[7])
    assert gpu_links({"gpus": unnumbered, "cuda_devices": unlinked}, PID, (0,)) == {}


def test_a_value_is_that_of_the_gpu_or_of_all_if_they_are_alike():
    tables = {"gpus": gpus(5, 6)}
    assert gpu_value(tables, GpuLink(1, BY_TABLE), "total_bytes") == 6
    # By order, not known, or not listed: only what all GPUs share is known.
    for link in (GpuLink(1, BY_ORDER), None, GpuLink(9, BY_TABLE)):
        assert gpu_value(tables, link, "total_bytes") is None
        assert gpu_value({"gpus": gpus(5, 5)}, link, "total_bytes") == 5
    # What a driver says that does not know.
    for unknown in (0, NULL_INT):
        assert gpu_value({"gpus": gpus(unknown)}, GpuLink(0, ONLY_GPU), "total_bytes") is None
    assert gpu_value({}, None, "total_bytes") is None


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
