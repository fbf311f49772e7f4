"""Tails of CUDA API calls: numbers by hand, classes, and what first launches cost."""

from __future__ import annotations

import numpy as np
import pytest
from results import rows, tables_of
from trace_builder import TraceBuilder

RECIPE = "tail_stats"


def tables(output, *inputs, options=()):
    return tables_of(output, *inputs, options=options, recipe=RECIPE)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two ranks; rank 0 loads two kernels (20 and 30 ns), rank 1 one (8 ns); others take 4."""
    folder = tmp_path_factory.mktemp("ranks")
    first = TraceBuilder().api("cudaFree_v3020", start_ns=0, end_ns=40)
    for index, (name, duration) in enumerate([("a", 20), ("b", 30), ("a", 4), ("b", 4), ("a", 4)]):
        at_ns = 100 * (index + 1)
        first.kernel(name, start_ns=at_ns + 50, duration_ns=4, launch=(at_ns, at_ns + duration))
    first.write_sqlite(folder / "rank0.sqlite")
    second = TraceBuilder()
    for index, duration in enumerate([8, 4, 4, 6]):
        at_ns = 100 * (index + 1)
        second.kernel("a", start_ns=at_ns + 50, duration_ns=4, launch=(at_ns, at_ns + duration))
    second.api("cuMemAlloc_v2", start_ns=900, end_ns=907)
    second.write_sqlite(folder / "rank1.sqlite")
    return tables(folder / "out", folder)


def test_functions_are_counted_over_all_ranks_without_version(ranks):
    # Launches: 4 4 4 4 4 6 8 20 30; median 4, so 2 + 4 + 16 + 26 beyond; 20 and 30 are outliers.
    columns = "api class ranks_n calls_n total_ns p50_ns max_ns excess_ns outliers_n"
    assert rows(ranks["api_tails"], f"{columns} outlier_excess_ns") == [
        ("cudaLaunchKernel", "launch", 2, 9, 84, 4.0, 30, 48, 2, 42),
        ("cudaFree", "free", 1, 1, 40, 40.0, 40, 0, 0, 0),
        ("cuMemAlloc", "alloc", 1, 1, 7, 7.0, 7, 0, 0, 0),
    ]


def test_what_first_launches_of_kernels_cost_is_summed(ranks):
    columns = "api loading_n loading_ns loading_excess_ns"
    # 20 and 30 on rank 0, 8 on rank 1, each beyond 4.
    assert rows(ranks["api_tails"], columns)[0] == ("cudaLaunchKernel", 3, 58, 46)
    by_rank = [row for row in rows(ranks["rank_api_tails"], f"rank {columns}") if row[2]]
    assert by_rank == [(0, "cudaLaunchKernel", 2, 50, 42), (1, "cudaLaunchKernel", 1, 8, 4)]


def test_a_rank_is_measured_by_the_median_of_all_and_says_when(ranks):
    table = ranks["rank_api_tails"]
    columns = "rank api calls_n p50_ns all_p50_ns excess_ns first_start_ns first_ns"
    # Rank 1: 4 4 6 8 has the median 5, and 2 + 4 beyond 4.
    assert rows(table, f"{columns} longest_start_ns") == [
        (0, "cudaLaunchKernel", 5, 4.0, 4.0, 42, 100, 20, 200),
        (0, "cudaFree", 1, 40.0, 40.0, 0, 0, 40, 0),
        (1, "cudaLaunchKernel", 4, 5.0, 4.0, 6, 100, 8, 100),
        (1, "cuMemAlloc", 1, 7.0, 7.0, 0, 900, 7, 900),
    ]


def test_a_window_counts_the_calls_that_start_in_it(tmp_path):
    builder = TraceBuilder()
    for at_ns, duration in ((100, 10), (200, 4), (300, 10)):
        builder.kernel("a", start_ns=at_ns + 2, duration_ns=4, launch=(at_ns, at_ns + duration))
    path = builder.write_sqlite(tmp_path / "t.sqlite")
    frames = tables(tmp_path / "o", path, options=["--filter-time", "105/305"])
    # Inside: 5 ns of the first, 4, and 5 of the last.
    columns = "calls_n total_ns max_ns loading_n"
    assert rows(frames["api_tails"], columns) == [(2, 14, 10, 0)]


def test_a_graphs_first_launch_loads_once(tmp_path):
    builder = TraceBuilder()
    for at_ns, took_ns in ((100, 60), (300, 5)):
        nodes = [(name, at_ns + 100 + 9 * i, at_ns + 104 + 9 * i) for i, name in enumerate("ab")]
        builder.graph_launch(nodes, launch=(at_ns, at_ns + took_ns))
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    columns = "api class loading_n loading_ns"
    assert rows(frames["api_tails"], columns) == [("cudaGraphLaunch", "graph_launch", 1, 60)]


def test_broken_calls_are_left_out(tmp_path):
    builder = TraceBuilder().kernel("a", start_ns=200, duration_ns=4, launch=(100, 104))
    builder.api("cudaLaunchKernel_v7000", start_ns=900, end_ns=100)
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    assert rows(frames["api_tails"], "calls_n total_ns") == [(1, 4)]


def loading(folder, *ranks):
    """Tables of ranks, each a list of (kernel, duration of its launch call)."""
    for number, launches in enumerate(ranks):
        trace = TraceBuilder()
        for index, (name, duration) in enumerate(launches):
            at_ns = 50_000_000 * index
            trace.kernel(
                name, start_ns=at_ns + 40_000_000, duration_ns=4, launch=(at_ns, at_ns + duration)
            )
        trace.write_sqlite(folder / f"rank{number}.sqlite")
    return tables(folder / "out", folder)


def loading_cost(frames):
    (row,) = rows(frames["api_tails"], "loading_n loading_ns loading_excess_ns usual_p50_ns")
    return row


def test_first_launches_alone_count_with_all_of_their_time(tmp_path):
    # Their own median, 17.6 ms, would leave 164 us of 35.2 ms.
    frames = loading(tmp_path, [("a", 17_436_000), ("b", 17_764_000)])
    assert loading_cost(frames) == (2, 35_200_000, 35_200_000, None)


@pytest.mark.parametrize("seed", range(6))
def test_first_launches_are_measured_by_the_later_ones_however_few(tmp_path, seed):
    rng = np.random.default_rng(seed)
    ranks = [
        [(name, int(rng.integers(1_000_000, 30_000_000))) for name in "abcdefgh"[:kernels_n]]
        + [("a", int(rng.integers(2_000, 9_000))) for _ in range(rng.integers(1, 4))]
        for kernels_n in rng.integers(2, 8, 3)
    ]
    row = loading_cost(loading(tmp_path, *ranks))
    firsts = [call for calls in ranks for call in calls if call[1] > 10_000]
    later = [ns for calls in ranks for _, ns in calls if ns < 10_000]
    usual = float(np.median(later))
    cost = sum(ns - usual for _, ns in firsts)
    # Halves of a nanosecond are cut off.
    assert row == (len(firsts), sum(ns for _, ns in firsts), int(cost), usual)
