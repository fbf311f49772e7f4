"""Device memory and GPU metrics on planted captures; all numbers by hand."""

from __future__ import annotations

import pytest
from results import plain, rows, tables_of
from trace_builder import TraceBuilder

SM, TENSOR = "SMs Active [Throughput %]", "Tensor Active [Throughput %]"


def written(trace, folder, *options):
    return tables_of(folder / "out", trace.write_sqlite(folder / "t.sqlite"), options=options)


def busy(**settings):
    """Return a trace whose device works from 0 to 40 ns."""
    trace = TraceBuilder(**settings).kernel("k", start_ns=0, end_ns=4)
    return trace.kernel("k", start_ns=36, end_ns=40)


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """Device: 8 at 2, 4 at 12 (6 to 8 a pinned block), 8 freed at 22, 2 at 30; 12 at most."""
    trace = busy(gpu_name="NVIDIA H100 80GB HBM3")
    trace.allocate(8, address=100, at_ns=2, call=(1, 3), api="cudaMalloc_v3020")
    trace.allocate(5, address=900, at_ns=6, memory="pinned").free(5, address=900, at_ns=8)
    trace.allocate(4, address=200, at_ns=12, call=(11, 13), api="cudaMallocAsync_v11020")
    trace.free(8, address=100, at_ns=22).free(99, address=7, at_ns=23)
    trace.allocate(2, address=300, at_ns=30, call=(29, 31), pool_bytes=64)
    return written(trace, tmp_path_factory.mktemp("memory"))


def test_memory_in_use_is_told_step_by_step(memory):
    levels = memory["memory"]
    assert rows(levels, "kind time_ns used_bytes") == [
        ("device", 2, 8),
        ("device", 12, 8 + 4),
        ("device", 22, 4),
        ("device", 30, 4 + 2),
        ("host", 6, 5),
        ("host", 8, 0),
    ]
    assert set(zip(levels["rank"], levels["device_id"], strict=True)) == {(0, 0)}


def test_watermarks_say_how_much_when_and_who(memory):
    device, host = (
        {name: values[row] for name, values in plain(memory["memory_watermarks"]).items()}
        for row in (0, 1)
    )
    expected = {"kind": "device", "peak_bytes": 12, "peak_ns": 12, "allocations_n": 3}
    expected |= {"frees_n": 1, "unmatched_frees_n": 1}
    # Quarters of [0, 40) end at 10, 20, 30 and 40; what happens at 30 belongs to the last.
    expected |= {"quarter_bytes": 8, "half_bytes": 12, "three_quarter_bytes": 4, "end_bytes": 6}
    expected |= {"total_bytes": 85899345920, "peak_pct": 100 * 12 / 85899345920}
    expected |= {"broken_n": 0, "window_start_ns": 0, "window_end_ns": 40}
    assert {name: device[name] for name in expected} == expected
    assert (host["kind"], host["peak_bytes"], host["end_bytes"]) == ("host", 5, 0)
    assert (host["total_bytes"], host["peak_pct"]) == (None, None)


def test_allocators_hold_what_is_in_use_at_the_peak_and_at_the_end(memory):
    columns = "kind api allocations_n allocated_bytes peak_bytes end_bytes"
    assert rows(memory["memory_allocators"], columns) == [
        ("device", "cudaMalloc", 2, 8 + 2, 8, 2),
        ("device", "cudaMallocAsync", 1, 4, 4, 4),
        ("host", None, 1, 5, 5, 0),
    ]


def test_a_window_begins_with_what_is_in_use_and_counts_what_starts_in_it(tmp_path):
    trace = busy().allocate(8, address=1, at_ns=2).allocate(4, address=2, at_ns=12)
    trace.free(8, address=1, at_ns=22).allocate(1, address=3, at_ns=26)
    tables = written(trace, tmp_path, "--filter-time", "10/24")
    # Before 10 the first block was allocated; at 22 it goes.
    expected = [(10, 8), (12, 12), (22, 4)]
    assert rows(tables["memory"], "time_ns used_bytes") == expected
    columns = "peak_bytes allocations_n frees_n end_bytes"
    assert rows(tables["memory_watermarks"], columns) == [(12, 1, 1, 4)]
    assert rows(tables["memory_allocators"], "allocations_n peak_bytes end_bytes") == [(1, 12, 4)]


@pytest.mark.slow
def test_memory_is_that_of_the_rank_s_process_and_its_devices(tmp_path):
    trace = TraceBuilder()
    for pid, size in ((100, 3), (200, 5)):
        trace.process(pid=pid).kernel("k", start_ns=0, end_ns=4)
        trace.allocate(size, address=1, at_ns=1).allocate(9, address=2, at_ns=2, device_id=1)
    tables = written(trace, tmp_path)
    columns = "rank device_id peak_bytes"
    expected = [(0, 0, 3), (0, 1, 9), (1, 0, 5), (1, 1, 9)]
    assert rows(tables["memory_watermarks"], columns) == expected
    tables = tables_of(tmp_path / "d", tmp_path / "t.sqlite", options=["--device", "0"])
    assert rows(tables["memory_watermarks"], columns) == [(0, 0, 3), (1, 0, 5)]


def test_broken_events_are_counted_and_left_out(tmp_path):
    trace = busy().allocate(8, address=1, at_ns=2)
    trace.allocate(-4, address=2, at_ns=3).allocate(1 << 60, address=3, at_ns=4)
    trace.allocate(2, address=4, at_ns=1 << 60)
    trace.raw("CUDA_GPU_MEMORY_USAGE_EVENTS", start=5, bytes=1, memoryOperationType=9, memKind=2)
    trace.raw("CUDA_GPU_MEMORY_USAGE_EVENTS", start=6, bytes=1, memoryOperationType=0, memKind=99)
    watermarks = written(trace, tmp_path)["memory_watermarks"]
    assert rows(watermarks, "kind peak_bytes broken_n") == [("device", 8, 4), ("unknown", 1, 4)]


def test_frees_alone_leave_a_level_of_zero(tmp_path):
    tables = written(busy().free(8, address=1, at_ns=2), tmp_path)
    columns = "peak_bytes unmatched_frees_n end_bytes"
    assert rows(tables["memory_watermarks"], columns) == [(0, 1, 0)]
    assert tables["memory_allocators"].empty


def test_many_steps_are_thinned_out(tmp_path):
    trace = busy()
    for index in range(300):
        trace.allocate(1, address=index, at_ns=10 * index)
    assert 100 <= len(written(trace, tmp_path)["memory"]) <= 200


def sampled(**settings):
    """GEMM in [10, 15) and [20, 27) ns, another kernel in [30, 40); samples at 10, 20, 30, 40."""
    trace = TraceBuilder(**settings).kernel("nvjet_tst_1x1", start_ns=10, end_ns=15)
    trace.kernel("nvjet_tst_1x1", start_ns=20, end_ns=27).kernel("x", start_ns=30, end_ns=40)
    return trace.gpu_metrics(
        {SM: [90, 20, 30, 40], TENSOR: [0, 50, 10, 0], "GPC Clock Frequency [MHz]": [1] * 4},
        times_ns=[10, 20, 30, 40],
    )


def test_metrics_are_weighted_by_the_time_that_kernels_ran_in_each_sample(tmp_path):
    metrics = written(sampled(), tmp_path)["gpu_metrics"]
    columns = "metric scope name mean_pct samples_n own_ns own_pct period_ns"
    # Of the GEMM 5 ns are in the sample at 20, 7 ns in that at 30; the window is [10, 40).
    sm, tensor = (5 * 20 + 7 * 30) / 12, (5 * 50 + 7 * 10) / 12
    assert rows(metrics, columns) == [
        (SM, "window", None, 30.0, 3, 30, 100.0, 10),
        (SM, "category", "gemm", sm, 2, 12, 60.0, 10),
        (SM, "category", "unmatched", 40.0, 1, 10, 100.0, 10),
        (SM, "kernel", "nvjet_tst_1x1", sm, 2, 12, 60.0, 10),
        (SM, "kernel", "x", 40.0, 1, 10, 100.0, 10),
        (TENSOR, "window", None, 20.0, 3, 30, 100.0, 10),
        (TENSOR, "category", "gemm", tensor, 2, 12, 60.0, 10),
        (TENSOR, "category", "unmatched", 0.0, 1, 10, 100.0, 10),
        (TENSOR, "kernel", "nvjet_tst_1x1", tensor, 2, 12, 60.0, 10),
        (TENSOR, "kernel", "x", 0.0, 1, 10, 100.0, 10),
    ]
    assert set(zip(metrics["gpu_id"], metrics["gpu_source"], strict=True)) == {(0, "table")}


def test_a_window_and_top_choose_what_metrics_tell_of(tmp_path):
    metrics = written(sampled(), tmp_path, "--filter-time", "12/25", "--top", "1")["gpu_metrics"]
    # In [12, 25): 3 ns at 20 %, 5 ns at 30 %; the window has 8 ns and 5 ns of these samples.
    expected = [
        ("window", (8 * 20 + 5 * 30) / 13, 13),
        ("category", (3 * 20 + 5 * 30) / 8, 8),
        ("kernel", (3 * 20 + 5 * 30) / 8, 8),
    ]
    assert rows(metrics[metrics["metric"] == SM], "scope mean_pct own_ns") == expected


def test_metrics_go_to_the_device_behind_which_their_gpu_is(tmp_path):
    trace = TraceBuilder().process(pid=100, gpu_ids=(1,)).kernel("k", start_ns=10, end_ns=20)
    trace.process(pid=200, gpu_ids=(0,)).kernel("k", start_ns=10, end_ns=20)
    for gpu in (0, 1):
        trace.gpu_metrics({SM: [0, 10 + gpu]}, times_ns=[10, 20], gpu_id=gpu)
    metrics = written(trace, tmp_path)["gpu_metrics"]
    windows = metrics[metrics["scope"] == "window"]
    expected = [(0, 0, 1, "table", 11.0), (1, 0, 0, "table", 10.0)]
    assert rows(windows, "rank device_id gpu_id gpu_source mean_pct") == expected


def test_one_sample_or_damaged_ones_say_nothing(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=30)
    trace.gpu_metrics({SM: [5, -1, 5000]}, times_ns=[10, 20, 30])
    assert written(trace, tmp_path)["gpu_metrics"].empty


@pytest.mark.slow
def test_what_is_freed_after_the_last_kernel_was_in_use_at_the_end_of_the_work(tmp_path):
    # Allocated at 2, the kernel ends at 30, freed at 40 as the process ends.
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=30)
    trace.allocate(8, address=100, at_ns=2, call=(1, 3)).free(8, address=100, at_ns=40)
    tables = written(trace, tmp_path)
    assert rows(tables["memory_watermarks"], "peak_bytes end_bytes") == [(8, 8)]
    assert rows(tables["memory_allocators"], "allocations_n end_bytes") == [(1, 8)]


def test_releases_up_to_2022_name_metrics_without_their_unit(tmp_path):
    trace = TraceBuilder(schema="3.7.2").kernel("nvjet_tst_1x1", start_ns=10, end_ns=20)
    values = {"SM Active": [0, 40], "Sync Compute In Flight": [0, 7], "Warps": [3, 4]}
    # A frequency in Hz that the export has cut to 32 bits, as real ones do.
    values |= {
        "SYS Clock Frequency": [1, 1_650_150_000],
        "GPC Clock Frequency": [0, -1_964_454_041],
    }
    trace.gpu_metrics(values, times_ns=[10, 20])
    metrics = written(trace, tmp_path)["gpu_metrics"]
    windows = metrics[metrics["scope"] == "window"]
    assert rows(windows, "metric mean_pct samples_n period_ns") == [
        ("SM Active", 40.0, 1, 10),
        ("Sync Compute In Flight", 7.0, 1, 10),
    ]
