"""API calls whose truth is known by hand: sums and percentiles."""

from __future__ import annotations

import pytest
from results import rows, tables_of
from trace_builder import TraceBuilder

SYNC, QUERY = "cudaStreamSynchronize_v3020", "cudaEventQuery_v3020"


def planted():
    """Three threads call.

    thread  function               call
    100     cudaMalloc             [1, 3)
    100     cudaLaunchKernel       [3, 5)    launches [5, 15)
    100     cudaStreamSynchronize  [6, 18)
    100     cudaLaunchKernel       [20, 22)  launches [25, 30)
    101     cudaStreamSynchronize  [10, 16)
    102     cudaEventQuery         [13, 17)
    102     cudaEventQuery         [28, 33)
    """
    trace = TraceBuilder().api("cudaMalloc_v3020", start_ns=1, end_ns=3)
    trace.kernel("k", start_ns=5, end_ns=15, launch=(3, 5))
    trace.kernel("k", start_ns=25, end_ns=30, launch=(20, 22))
    trace.api(SYNC, start_ns=6, end_ns=18).api(SYNC, start_ns=10, end_ns=16, tid=101)
    trace.api(QUERY, start_ns=13, end_ns=17, tid=102)
    return trace.api(QUERY, start_ns=28, end_ns=33, tid=102)


def api_tables(tmp_path, *options, trace=None):
    path = (trace or planted()).write_sqlite(tmp_path / "t.sqlite")
    return tables_of(tmp_path / "o", path, options=options)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return api_tables(tmp_path_factory.mktemp("planted"))


def test_each_function_s_time_is_that_of_all_threads(tables):
    apis = tables["apis"]
    assert rows(apis, "api class calls_n total_ns") == [
        ("cudaStreamSynchronize", "host_block", 2, 18),
        ("cudaEventQuery", "poll", 2, 9),
        ("cudaLaunchKernel", "launch", 2, 4),
        ("cudaMalloc", "alloc", 1, 2),
    ]
    assert apis["total_pct"].tolist() == [100 * part / 33 for part in (18, 9, 4, 2)]
    assert rows(apis, "min_ns p50_ns mean_ns max_ns")[:2] == [(6, 9.0, 9.0, 12), (4, 4.5, 4.5, 5)]


def test_each_rank_s_functions_tell_where_the_longest_call_is(tables):
    apis = tables["rank_apis"]
    assert rows(apis, "rank api longest_start_ns") == [
        (0, "cudaStreamSynchronize", 6),
        (0, "cudaEventQuery", 28),
        # Both launches take 2 ns: the earlier.
        (0, "cudaLaunchKernel", 3),
        (0, "cudaMalloc", 1),
    ]


def test_a_time_window_cuts_sums_and_counts_the_calls_that_start_in_it(tmp_path):
    tables = api_tables(tmp_path, "--filter-time", "8/14")
    # [8, 14) of [6, 18), [10, 14) of [10, 16) and 1 ns of the poll.
    assert rows(tables["apis"], "api calls_n total_ns") == [
        ("cudaStreamSynchronize", 1, 10),
        ("cudaEventQuery", 1, 1),
    ]
    # Percentiles and extremes are those of the whole calls that start in the window.
    assert rows(tables["apis"], "p50_ns max_ns") == [(6.0, 6), (4.0, 4)]
    assert rows(tables["rank_apis"], "longest_start_ns") == [(10,), (13,)]


def test_functions_over_all_ranks_have_the_percentiles_of_all_calls(tmp_path):
    # Rank 0 calls for 1 and 2 ns, rank 1 for 6 ns and a function of its own for 4.
    paths = []
    for rank, calls in enumerate([[("cudaFree_v3020", 1), ("cudaFree_v3020", 2)], []]):
        trace = TraceBuilder().kernel("k", start_ns=0, end_ns=50)
        for at, (name, length) in enumerate(calls or [("cudaFree_v3020", 6), (QUERY, 4)]):
            trace.api(name, start_ns=10 * at, duration_ns=length)
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    apis = tables_of(tmp_path / "o", *paths)["apis"]
    assert rows(apis, "api ranks_n calls_n total_ns p50_ns max_ns") == [
        ("cudaFree", 2, 3, 9, 2.0, 6),
        ("cudaEventQuery", 1, 1, 4, 4.0, 4),
    ]


def test_broken_calls_are_in_no_sum(tmp_path):
    trace = planted().api(SYNC, start_ns=9, end_ns=8).api("cudaFree_v3020", start_ns=4, end_ns=1)
    tables = api_tables(tmp_path, trace=trace)
    assert rows(tables["apis"], "api calls_n total_ns max_ns") == [
        ("cudaStreamSynchronize", 2, 18, 12),
        ("cudaEventQuery", 2, 9, 5),
        ("cudaLaunchKernel", 2, 4, 2),
        ("cudaMalloc", 1, 2, 2),
    ]


def test_a_report_without_api_calls_has_no_rows_about_them(tmp_path):
    tables = api_tables(tmp_path, trace=TraceBuilder().kernel("k", start_ns=0, end_ns=5))
    for name in ("apis", "rank_apis", "kernel_launches", "callstacks"):
        assert len(tables[name]) == 0, name
