"""Tables of idle_gaps on traces of a few ns, through the public run. All numbers by hand."""

from __future__ import annotations

import pytest
from results import only_tables, plain, read_frames, rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.view.figures import draw
from nsys_llm.view.results import Results


def idle(folder, *paths, options=()):
    words = ["--min-gap-ns", "1", *options]
    return tables_of(folder / "out", *paths, options=words, recipe="idle_gaps")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two ranks of one host; the second capture began 4 ns after the first.

    In the clock of the first: rank 0 idle 14-20 (device 0), rank 1 idle 17-22 and 26-30.
    """
    folder = tmp_path_factory.mktemp("ranks")
    first = TraceBuilder(hostname="node", system_clock_ns=1000).process(pid=1, name="a")
    first.kernel("a", start_ns=10, end_ns=14, launch=(2, 4))
    first.memcpy("HtoD", start_ns=20, end_ns=24, size_bytes=8, launch=(5, 6))
    first.kernel("b", start_ns=24, end_ns=32, launch=(7, 8))
    second = TraceBuilder(hostname="node", system_clock_ns=1004).process(pid=2, name="b")
    second.kernel("a", start_ns=5, end_ns=13, launch=(1, 2))
    second.kernel("b", start_ns=18, end_ns=22, launch=(2, 3))
    second.kernel("a", start_ns=26, end_ns=30, launch=(3, 4))
    paths = [
        first.write_sqlite(folder / "rank0.sqlite"),
        second.write_sqlite(folder / "rank1.sqlite"),
    ]
    return idle(folder, *paths)


def test_devices_tell_what_a_window_is_made_of(tables):
    # Rank 0: 10 to 32, of it 12 ns of kernels and 4 of a copy; rank 1: 5 to 30, 16 of kernels.
    names = "rank window_ns busy_ns kernel_busy_ns copy_only_ns overhead_ns idle_ns gaps_n"
    assert rows(tables["devices"], names) == [
        (0, 22, 16, 12, 4, 0, 6, 1),
        (1, 25, 16, 16, 0, 0, 9, 2),
    ]
    names = "idle_pct kernel_only_idle_pct gap_p50_ns gap_max_ns not_recorded_ns"
    assert rows(tables["devices"], names) == [
        (100 * 6 / 22, 100 * 10 / 22, 6.0, 6, 0),
        (36.0, 36.0, 4.5, 5, 0),
    ]
    assert set(tables["devices"]["windowed_by"]) == {"operations"}


def test_gaps_are_listed_longest_first(tables):
    names = "rank start_ns end_ns duration_ns before after cause"
    assert rows(tables["gaps"], names) == [
        (0, 14, 20, 6, "a", "memcpy HtoD", "queued"),
        (1, 13, 18, 5, "a", "b", "queued"),
        (1, 22, 26, 4, "b", "a", "queued"),
    ]


def test_causes_have_the_buckets_of_their_gaps(tables):
    assert rows(tables["rank_causes"], "rank cause bucket low_ns gaps_n idle_ns idle_pct") == [
        (0, "queued", "<5 us", 0, 1, 6, 100.0),
        (1, "queued", "<5 us", 0, 2, 9, 100.0),
    ]


def test_a_bucket_s_edge_belongs_to_the_bucket_above(tmp_path):
    trace = TraceBuilder()
    edges = [5_000, 20_000, 100_000, 1_000_000, 10_000_000]
    at, gaps = 0, []
    for length in [edge - below for edge in edges for below in (1, 0)]:
        trace.kernel("k", start_ns=at, end_ns=at + 1)
        gaps.append((at + 1, length))
        at += 1 + length
    trace.kernel("k", start_ns=at, end_ns=at + 1)
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    buckets = {low: n for low, n in rows(tables["rank_causes"], "low_ns gaps_n")}
    # Each edge begins a bucket, which also holds the one just below the next edge.
    assert buckets == {0: 1, 5_000: 2, 20_000: 2, 100_000: 2, 1_000_000: 2, 10_000_000: 1}


def test_patterns_join_the_ranks_and_keep_the_sum(tables):
    names = "before after ranks_n gaps_n total_ns p50_ns max_ns cause"
    assert rows(tables["patterns"], names) == [
        ("a", "memcpy HtoD", 1, 1, 6, 6.0, 6, "queued"),
        ("a", "b", 1, 1, 5, 5.0, 5, "queued"),
        ("b", "a", 1, 1, 4, 4.0, 4, "queued"),
    ]


def test_a_pattern_is_that_of_all_its_gaps(tmp_path):
    paths = []
    for rank, lengths in enumerate([(3, 9), (4, 30)]):
        trace, at = TraceBuilder(), 0
        for length in lengths:
            trace.kernel("a", start_ns=at, end_ns=at + 1)
            trace.kernel("b", start_ns=at + 1 + length, end_ns=at + 2 + length)
            at += 2 + length
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    tables = idle(tmp_path, *paths)
    # 3, 4, 9, 30: the median lies between 4 and 9. From b to a there is no gap.
    assert rows(tables["patterns"], "before after ranks_n gaps_n total_ns p50_ns max_ns") == [
        ("a", "b", 2, 4, 46, 6.5, 30)
    ]


def test_gaps_and_patterns_that_do_not_fit_are_counted(tmp_path):
    trace = TraceBuilder()
    for number in range(6):
        trace.kernel(f"k{number}", start_ns=10 * number, end_ns=10 * number + 9 - number)
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    tables = idle(tmp_path, path, options=["--top", "2", "--min-gap-ns", "4"])
    # Gaps of 1, 2, 3, 4 and 5 ns.
    assert plain(tables["gaps"])["duration_ns"] == [5, 4]
    assert tables["devices"]["gaps_n"].tolist() == [5]
    assert tables["rank_causes"]["idle_ns"].sum() == 15
    assert rows(tables["patterns"], "before after gaps_n total_ns p50_ns") == [
        ("k4", "k5", 1, 5, 5.0),
        ("k3", "k4", 1, 4, 4.0),
        (None, None, 3, 6, None),
    ]


def test_a_rank_without_the_device_asked_for_has_no_row(tmp_path):
    # Each rank sees the GPUs of its node, and uses one of them.
    paths = [
        TraceBuilder(hostname="n", system_clock_ns=5)
        .kernel("a", start_ns=0, end_ns=2, device_id=device)
        .kernel("a", start_ns=9, end_ns=12, device_id=device)
        .write_sqlite(tmp_path / f"rank{device}.sqlite")
        for device in range(2)
    ]
    tables = idle(tmp_path, *paths, options=["--device", "1"])
    assert rows(tables["devices"], "rank device_id idle_ns") == [(1, 1, 7)]
    assert tables["files"]["status"].tolist() == ["ok", "ok"]
    none = idle(tmp_path / "none", *paths, options=["--device", "7"])
    assert len(none["devices"]) == 0


def test_an_idle_map_adds_up_to_the_device(tables):
    parts = tables["idle_map"]
    # 22 ns make 22 parts, 25 ns 25.
    assert parts.groupby("rank")["part"].max().tolist() == [22, 25]
    for name in ("window_ns", "busy_ns", "idle_ns"):
        assert parts.groupby("rank")[name].sum().tolist() == tables["devices"][name].tolist()
    first = parts[parts["rank"] == 0]
    assert first["start_ns"][first["idle_ns"] > 0].tolist() == [14, 15, 16, 17, 18, 19]
    assert set(first["busy_pct"]) == {0.0, 100.0}


def test_an_idle_map_shows_all_ranks_at_once_though_each_uses_another_device(tmp_path):
    paths = []
    for rank in range(2):
        trace = TraceBuilder().kernel("a", start_ns=0, end_ns=9, device_id=rank)
        if rank == 1:
            trace.kernel("a", start_ns=0, end_ns=9, device_id=5)
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    folder = only_tables(tmp_path / "out", *paths, recipe="idle_gaps")
    parts, fields = read_frames(folder)["idle_map"], Results(folder).fields("idle_map")
    names = ["rank0", "rank1, device 1", "rank1, device 5"]
    assert parts["rank_device"].drop_duplicates().tolist() == names
    sections = load_manifest("idle_gaps").sections
    (spec,) = next(section.charts for section in sections if section.table == "idle_map")
    plot = draw(parts, fields, spec)
    assert "updatemenus" not in plot["layout"]
    assert plot["data"][0]["y"] == names


def test_an_operation_of_no_length_splits_a_gap(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=2).kernel("b", start_ns=9, end_ns=10)
    trace.memset(start_ns=5, end_ns=5, size_bytes=0)
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    gaps = [(5, 4, "memset", "b"), (2, 3, "a", "memset")]
    assert rows(tables["gaps"], "start_ns duration_ns before after") == gaps


def test_the_profiler_s_work_is_neither_busy_nor_idle(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=4).kernel("b", start_ns=20, end_ns=24)
    # Of it, 2 to 4 ran beside a kernel.
    trace.overhead("CUPTI Buffer flush", start_ns=2, end_ns=10, overhead_type=3)
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    names = "window_ns busy_ns overhead_ns idle_ns gaps_n gap_max_ns"
    assert rows(tables["devices"], names) == [(24, 8, 6, 10, 1, 16)]
    assert rows(tables["gaps"], "duration_ns idle_ns profiler_overhead_ns") == [(16, 10, 6)]


def test_idle_time_in_which_a_graph_without_a_row_ran_is_not_recorded(tmp_path):
    trace = TraceBuilder(schema="3.7.2").kernel("a", start_ns=0, end_ns=4, launch=(-9, -7))
    trace.kernel("b", start_ns=900, end_ns=910, launch=(890, 895))
    trace.graph_launch([("n", 20, 800)], launch=(10, 12), mode="graph")
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    # From 4 to the launch it was idle: its thread was in no call.
    names = "window_ns busy_ns not_recorded_ns idle_ns gaps_n"
    assert rows(tables["devices"], names) == [(910, 14, 890, 6, 1)]
    assert rows(tables["gaps"], "cause not_recorded_ns idle_ns") == [("not_recorded", 890, 6)]
    assert rows(tables["wall"], "wall_class time_ns")[-2:] == [("not_recorded", 890), ("idle", 6)]
    assert set(tables["findings"]["rule"]) == {"lost_work"}


def test_a_graph_launched_after_the_window_hides_nothing(tmp_path):
    trace = TraceBuilder(schema="3.7.2").kernel("a", start_ns=0, end_ns=4, launch=(-9, -7))
    trace.kernel("b", start_ns=90, end_ns=95, launch=(50, 52))
    trace.graph_launch([("n", 220, 800)], launch=(210, 212), mode="graph")
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    tables = idle(tmp_path, path, options=["--filter-time", "0/95"])
    assert rows(tables["devices"], "not_recorded_ns idle_ns") == [(0, 86)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), (0, 2)),
        # Beyond the last operation recorded it may have run.
        (("--whole-capture",), (40, 12)),
        (("--filter-time", "0/40"), (20, 12)),
    ],
)
def test_a_graph_that_the_capture_did_not_live_to_see_hides_nothing_before(
    tmp_path, options, expected
):
    trace = TraceBuilder(schema="3.7.2", duration_ns=60)
    trace.graph_launch([("n", 10, 14), ("m", 16, 20)], launch=(2, 4))
    trace.graph_launch([("n", 90, 94)], launch=(12, 13), mode="graph")
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"), options=options)
    assert rows(tables["devices"], "not_recorded_ns idle_ns") == [expected]


def test_copies_that_a_graph_captures_are_not_missing(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=200, end_ns=204)
    trace.api("cudaMemcpyAsync_v3020", start_ns=1, end_ns=2)
    trace.api("cudaStreamBeginCapture_v10000", start_ns=3, end_ns=4)
    for number in range(12):
        trace.api("cudaMemcpyAsync_v3020", start_ns=5 + number, end_ns=6 + number)
    trace.api("cudaMemsetAsync_v3020", start_ns=9, end_ns=10, tid=77)
    trace.api("cudaStreamEndCapture_v10000", start_ns=20, end_ns=22)
    trace.api("cudaMemcpyAsync_v3020", start_ns=30, end_ns=31)
    trace.api("cudaMemPrefetchAsync_v8000", start_ns=32, end_ns=33)
    trace.memset(start_ns=60, end_ns=61, size_bytes=4, launch=(40, 42))
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    # One before, one after, and the one with an operation; into the graph another thread fills too.
    assert rows(tables["devices"], "copy_calls_n copies_seen_n") == [(3, 1)]


def test_a_filter_by_range_keeps_what_else_ran_busy(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=10, end_ns=14, launch=(1, 2))
    trace.kernel("b", start_ns=18, end_ns=22, launch=(5, 6))
    trace.kernel("a", start_ns=30, end_ns=34, launch=(8, 9))
    trace.nvtx_ranges(["mine", "mine"], start_ns=[0, 7], end_ns=[3, 10])
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    (device,) = idle(tmp_path, path, options=["--filter-nvtx", "mine"])["devices"].to_dict(
        "records"
    )
    # Launched in the ranges: the first and the third; between them the second ran all the same.
    assert device["windowed_by"] == "selected operations"
    assert (device["window_ns"], device["busy_ns"], device["idle_ns"]) == (24, 12, 12)


def test_broken_calls_and_operations_do_no_harm(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=4, launch=(-9, -7))
    trace.kernel("b", start_ns=9, end_ns=12, launch=(7, 5))
    trace.kernel("c", start_ns=20, end_ns=16, launch=(13, 14))
    tables = idle(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    # The call that ends before it starts tells nothing; the kernel that does is left out.
    assert rows(tables["gaps"], "duration_ns after cause launch_api") == [(5, "b", "no_api", None)]
