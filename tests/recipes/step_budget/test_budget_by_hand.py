"""Paths of traces of a few operations; all numbers by hand."""

from __future__ import annotations

import pytest
from path_truth import check_identities, classes
from quick_run import quick
from trace_builder import TraceBuilder


def tables_and_sums(folder, trace, *words):
    """Return the tables, and the classes of the only step."""
    folder.mkdir(exist_ok=True)
    trace.write_sqlite(folder / "rank0.sqlite")
    tables = quick("step_budget", folder / "rank0.sqlite", *words)
    check_identities(tables)
    return tables, classes(tables["device_steps"].to_dict("records")[-1])


def path(tables):
    """Return class, activity and length of each stretch of the path, from the end back."""
    rows = tables["path"][tables["path"]["which"] == "worst"].to_dict("records")
    return [(row["class"], row["activity"], row["duration_ns"]) for row in rows]


def test_a_wait_after_everything_had_ended_waited_for_nothing(tmp_path):
    trace = TraceBuilder()
    trace.kernel("a", start_ns=100, end_ns=200, launch=(50, 60))
    trace.api("cudaDeviceSynchronize_v3020", start_ns=210, end_ns=230)
    trace.kernel("b", start_ns=300, end_ns=400, launch=(250, 280))
    tables, sums = tables_and_sums(tmp_path, trace)
    assert (sums["host_sync"], sums["compute"]) == (20, 100)
    assert tables["ceilings"][tables["ceilings"]["change"] == "wait"].empty


@pytest.mark.parametrize(("late_ns", "waited"), [(5_000, True), (30_000, False)])
def test_a_wait_that_a_row_names_ended_with_its_operation_as_far_as_clocks_agree(
    tmp_path, late_ns, waited
):
    trace = TraceBuilder(schema="3.25.0")
    trace.kernel("a", start_ns=100_000, end_ns=900_000, launch=(50, 60))
    end_ns = 900_000 - late_ns
    trace.api("cudaStreamSynchronize_v3020", start_ns=70, end_ns=end_ns, correlation_id=77)
    # Real exports name device 0 in all rows of waits.
    trace.waits("stream", start_ns=[80], end_ns=[end_ns - 1], correlation_ids=[77], stream_ids=7)
    trace.kernel("b", start_ns=930_000, end_ns=940_000, launch=(920_000, 925_000))
    _, sums = tables_and_sums(tmp_path, trace)
    assert sums["compute"] == (800_000 - late_ns + 10_000 if waited else 10_000)
    assert ("host_sync" in sums) != waited


def test_rows_of_waits_name_a_context_and_the_wrong_device(tmp_path):
    trace = TraceBuilder(schema="3.25.0").process(pid=1, gpu_ids=range(2))
    place = {"device_id": 1, "context_id": 2}
    trace.kernel("a", start_ns=100, end_ns=200, launch=(50, 60), **place)
    trace.kernel("c", start_ns=100, end_ns=190, launch=(61, 62), stream_id=8, **place)
    trace.api("cudaStreamSynchronize_v3020", start_ns=70, end_ns=230, correlation_id=77)
    trace.waits("stream", start_ns=[80], end_ns=[220], correlation_ids=[77], stream_ids=7)
    trace.kernel("b", start_ns=300, end_ns=400, launch=(250, 280), **place)
    _, sums = tables_and_sums(tmp_path, trace)
    assert (sums["compute"], sums["sync_latency"]) == (200, 30)


def test_without_its_launch_the_time_before_an_operation_is_unknown(tmp_path):
    trace = TraceBuilder()
    trace.kernel("a", start_ns=100, end_ns=200, launch=(50, 60))
    trace.kernel("b", start_ns=203, end_ns=300)
    trace.kernel("c", start_ns=9_300, end_ns=9_400)
    tables, sums = tables_and_sums(tmp_path, trace)
    assert sums == {"compute": 297, "device_latency": 3, "unknown": 9_000}
    assert ("unknown", "no_api", 9_000) in path(tables)


def test_a_graph_traced_as_a_whole_is_unknown_inside(tmp_path):
    trace = TraceBuilder(schema="3.30.1")
    trace.kernel("a", start_ns=100, end_ns=200, launch=(50, 60))
    trace.graph_launch([("n", 210, 400)], launch=(70, 90), mode="graph")
    _, sums = tables_and_sums(tmp_path, trace)
    assert sums == {"compute": 100, "device_latency": 10, "unknown": 190}


def two_streams(**rows):
    """Return b on stream 8, which began 1 us after a of stream 7 had ended; launched long before.

    Args:
        rows: `wait`: a row of a wait before b; `event`: the event that it waited for, too.
    """
    trace = TraceBuilder(schema="3.25.0")
    for n in range(5):
        at = 10_000 + 1_000 * n  # the usual lag between operations
        trace.kernel("k", start_ns=at, end_ns=at + 100, launch=(100 * n, 100 * n + 50))
    trace.kernel("a", start_ns=15_000, end_ns=50_000, launch=(1_000, 2_000))
    trace.kernel("x", start_ns=20_000, end_ns=21_000, launch=(2_100, 2_200), stream_id=8)
    if rows.get("wait") or rows.get("other"):
        trace.api("cudaEventRecord_v3020", start_ns=2_300, end_ns=2_400, correlation_id=71)
        trace.api("cudaStreamWaitEvent_v3020", start_ns=2_500, end_ns=2_600, correlation_id=72)
        at = {"start_ns": [2_510], "end_ns": [2_590], "correlation_ids": [72]}
        stream = 8 if rows.get("wait") else 9
        trace.waits("stream_wait", **at, stream_ids=stream, event_ids=5, event_sync_ids=6)
    if rows.get("event"):
        trace.event_records(event_ids=[5], event_sync_ids=[6], correlation_ids=[71], stream_id=7)
    trace.kernel("b", start_ns=51_000, end_ns=60_000, launch=(3_000, 4_000), stream_id=8)
    return trace


@pytest.mark.parametrize(
    ("rows", "edge", "certain"),
    [
        ({"wait": True, "event": True}, "event", True),
        ({"wait": True}, "event_inferred", False),
        ({}, "event_inferred", False),
        ({"other": True}, "room", False),
    ],
)
def test_streams_that_wait_for_each_other(tmp_path, rows, edge, certain):
    tables, sums = tables_and_sums(tmp_path, two_streams(**rows))
    assert sums == {"compute": 44_000 + 500, "device_latency": 1_000 + 5 * 900}
    lag = tables["path"][tables["path"]["class"] == "device_latency"].iloc[0]
    assert (lag["edge"], bool(lag["certain"])) == (edge, certain)


def test_far_apart_streams_are_not_taken_for_an_event(tmp_path):
    trace = TraceBuilder()
    trace.kernel("a", start_ns=20_000, end_ns=50_000, launch=(1_000, 2_000))
    trace.kernel("b", start_ns=54_000, end_ns=60_000, launch=(3_000, 4_000), stream_id=8)
    _, sums = tables_and_sums(tmp_path, trace)
    assert sums == {"compute": 6_000, "launch_latency": 34_000}


def test_a_thread_that_waited_for_another_hands_over(tmp_path):
    trace = TraceBuilder()
    trace.kernel("a", start_ns=100, end_ns=200, launch=(50, 60), tid=1)
    trace.kernel("b", start_ns=300, end_ns=350, launch=(220, 280), tid=2)
    trace.api("cudaEventRecord_v3020", start_ns=282, end_ns=290, tid=2)
    trace.kernel("c", start_ns=420, end_ns=500, launch=(330, 400), tid=1)
    tables, sums = tables_and_sums(tmp_path, trace)
    # The first thread was in no call from 60 to 330, and launched what follows on b.
    assert sums == {
        "compute": 80,
        "launch_latency": 20,
        "launch_api": 70 + 60,
        "host_no_cuda": (330 - 290) + (282 - 280) + (220 - 100),
        "other_api": 8,
    }
    assert tables["job_steps"]["certain_ns"].tolist() == [80 + 20 + 70]


def test_the_profilers_work_and_the_drivers_are_not_the_hosts(tmp_path):
    trace = TraceBuilder(schema="3.25.0")
    trace.kernel("a", start_ns=100, end_ns=200, launch=(50, 60))
    trace.overhead("CUPTI Buffer flush", start_ns=220, end_ns=240, overhead_type=3, tid=9)
    trace.overhead("Module loading", start_ns=260, end_ns=270, overhead_type=6)
    trace.kernel("b", start_ns=300, end_ns=400, launch=(250, 280))
    _, sums = tables_and_sums(tmp_path, trace)
    assert sums == {
        "compute": 100,
        "launch_latency": 20,
        "launch_api": 20,
        "module_load": 10,
        "host_no_cuda": 130,
        "profiler_overhead": 20,
    }


def test_what_began_inside_its_launch_shows_no_lag_of_a_stream(tmp_path):
    trace = TraceBuilder()
    trace.kernel("alone", start_ns=2_900, end_ns=3_900, launch=(1_000, 1_100))
    trace.kernel("alone", start_ns=11_900, end_ns=40_000, launch=(10_000, 10_100))
    trace.kernel("queued", start_ns=41_200, end_ns=50_000, launch=(12_000, 12_100))
    trace.kernel("inside", start_ns=55_000, end_ns=65_000, launch=(45_000, 60_000))
    trace.kernel("inside", start_ns=70_000, end_ns=90_000, launch=(61_000, 80_000))
    trace.kernel("last", start_ns=91_500, end_ns=92_000, launch=(89_400, 89_500))
    tables, _ = tables_and_sums(tmp_path, trace)
    # Launches take 1.8 us, the stream 1.2: the launch would have let the last one start later.
    assert path(tables)[:2] == [("compute", "last", 500), ("launch_latency", "", 2_000)]
