"""Launches whose truth is known by hand: counts, rates, stages."""

from __future__ import annotations

import numpy as np
import pytest
from results import rows, tables_of
from trace_builder import TraceBuilder

MS, US = 1_000_000, 1_000


def launches(tmp_path, trace, *options, table="launches"):
    return tables_of(tmp_path / "o", trace.write_sqlite(tmp_path / "t.sqlite"), options=options)[
        table
    ]


def planted():
    """Five launches with a call, one without, and what each stage takes.

    kernel   call       kernel     api  queue  kernel  overall
    a        [0, 2)     [5, 9)     2    3      4       9
    b        [10, 16)   [14, 15)   6    -      1       6       starts before its call returns
    c        none       [20, 21)
    d        [22, 23)   [23, 25)   1    0      2       3
    n1       [30, 31)   [33, 34)   1    2      1       4       nodes of one graph
    n2       the same   [35, 37)   1    4      2       7
    """
    trace = TraceBuilder().kernel("a", start_ns=5, end_ns=9, launch=(0, 2))
    trace.kernel("b", start_ns=14, end_ns=15, launch=(10, 16)).kernel("c", start_ns=20, end_ns=21)
    trace.kernel("d", start_ns=23, end_ns=25, launch=(22, 23))
    return trace.graph_launch([("n1", 33, 34), ("n2", 35, 37)], launch=(30, 31))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    return tables_of(folder / "o", planted().write_sqlite(folder / "t.sqlite"))


def test_host_launches_graphs_and_nodes_are_counted_apart(tables):
    table = tables["launches"]
    names = "kernels_n graph_nodes_n host_launches_n"
    assert rows(table, names) == [(6, 2, 3)]
    # 2 + 6 + 1, without the graph's 1.
    assert table["launch_api_ns"].tolist() == [9]


def test_each_kernel_has_its_stages_and_no_queue_where_it_never_queued(tables):
    table = tables["kernel_launches"]
    names = "name api tid launches_n queued_n api_p50_ns queue_p50_ns overall_max_ns"
    assert rows(table, names) == [
        ("a", "cudaLaunchKernel", 100, 1, 1, 2, 3, 9),
        ("b", "cudaLaunchKernel", 100, 1, 0, 6, None, 6),
        ("d", "cudaLaunchKernel", 100, 1, 1, 1, 0, 3),
        ("n1", "cudaGraphLaunch", 100, 1, 1, 1, 2, 4),
        ("n2", "cudaGraphLaunch", 100, 1, 1, 1, 4, 7),
    ]


def test_the_same_kernel_is_a_row_for_each_thread_and_function(tmp_path):
    trace = TraceBuilder()
    names = ("cudaLaunchKernel_v7000", "cudaLaunchKernel_ptsz_v7000", "cuLaunchKernel")
    for at, (tid, name) in enumerate([(100, names[0]), (101, names[0]), (100, names[1])]):
        call = (10 * at, 10 * at + 1)
        trace.kernel(
            "k", start_ns=10 * at + 2, duration_ns=1, launch=call, tid=tid, launch_name=name
        )
    trace.kernel("k", start_ns=40, duration_ns=1, launch=(38, 39), launch_name=names[2])
    table = launches(tmp_path, trace, table="kernel_launches")
    # The mark of the per-thread default stream is no part of the name.
    assert rows(table, "name api tid launches_n") == [
        ("k", "cudaLaunchKernel", 100, 2),
        ("k", "cuLaunchKernel", 100, 1),
        ("k", "cudaLaunchKernel", 101, 1),
    ]


def test_without_api_calls_nothing_is_known_of_launch_calls(tmp_path):
    table = launches(tmp_path, TraceBuilder().kernel("k", start_ns=1, duration_ns=4))
    assert rows(table, "host_launches_n launch_api_ns") == [(None,) * 2]
    assert rows(table, "kernels_n p50_ns rate_peak_100ms") == [(1, 4.0, 10.0)]


#: Begins and lengths of kernels, and what is said of them.
RATES = [
    # From 60 ms on, 100 ms hold the starts at 60, 130 and 159.999999 ms; 160 ms is beyond.
    ([0, 60 * MS, 130 * MS, 160 * MS - 1, 160 * MS], [0] * 5, "rate_peak_100ms", 30.0),
    # 1 ms of work, a gap of 10 ms, 1 ms, a gap of 1 ns less, 1 ms.
    ([0, 11 * MS, 22 * MS - 1], [MS] * 3, "rate_active", 3e9 / (13 * MS - 1)),
    # Short kernels are below the limit, not at it.
    ([0, MS, 2 * MS], [4_999, 5_000, 9_999], "under_5us_pct", 100 / 3),
]


@pytest.mark.parametrize(("starts", "lengths", "column", "expected"), RATES)
def test_rates_are_those_of_busy_times_wherever_they_begin(
    tmp_path, starts, lengths, column, expected
):
    trace = TraceBuilder()
    for start_ns, duration_ns in zip(starts, lengths, strict=True):
        trace.kernel("k", start_ns=start_ns, duration_ns=duration_ns)
    assert launches(tmp_path, trace)[column].tolist() == pytest.approx([expected])


def test_an_idle_begin_of_the_window_is_no_active_time_either(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=20 * MS, duration_ns=MS)
    table = launches(tmp_path, trace, "--filter-time", f"0/{22 * MS}")
    assert rows(table, "window_ns rate_active") == [(22 * MS, 500.0)]


#: Kernels within 100 ms, their duration, and whether they are a storm.
STORMS = [
    (5_000, 10 * US, True),
    (4_999, 10 * US, False),
    (5_000, 10 * US + 1, False),
    (10_000, 20 * US, True),
    (9_999, 20 * US, False),
    (10_000, 20 * US + 1, False),
]


@pytest.mark.slow
def test_a_storm_is_many_kernels_and_small_ones(tmp_path):
    paths = []
    for rank, (kernels_n, duration_ns, _) in enumerate(STORMS):
        # On streams that overlap.
        start_ns = np.arange(kernels_n) * 10 * US
        trace = TraceBuilder().kernels(
            ["k"], np.zeros(kernels_n, dtype=int), start_ns=start_ns, end_ns=start_ns + duration_ns
        )
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    table = tables_of(tmp_path / "o", *paths)["launches"]
    assert rows(table, "storm rate_peak_100ms") == [(storm, 10.0 * n) for n, _, storm in STORMS]


@pytest.mark.slow
def test_launch_calls_belong_to_the_device_of_their_work(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=5, end_ns=9, launch=(0, 2))
    trace.kernel("b", start_ns=6, end_ns=9, launch=(3, 6), device_id=1)
    trace.api("cudaLaunchKernel_v7000", start_ns=7, end_ns=8)  # whose kernel was cut off
    table = launches(tmp_path, trace)
    names = "device_id host_launches_n launch_api_ns"
    assert rows(table, names) == [(0, 1, 2), (1, 1, 3)]
    # To look at one of two devices does not make it the only one.
    other = tmp_path / "other"
    other.mkdir()
    filtered = launches(other, trace, "--device", "0")
    assert rows(filtered, names) == [(0, 1, 2)]


def test_launches_with_broken_calls_have_no_stages(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=5, end_ns=9, launch=(4, 2))
    assert len(launches(tmp_path, trace, table="kernel_launches")) == 0


def test_a_range_chooses_launches_and_kernels_alike(tmp_path):
    trace = planted().nvtx("step", 10, 24)
    table = launches(tmp_path, trace, "--filter-nvtx", "step")
    # b and d, launched at 10 and 22.
    assert rows(table, "kernels_n host_launches_n launch_api_ns") == [(2, 2, 7)]
