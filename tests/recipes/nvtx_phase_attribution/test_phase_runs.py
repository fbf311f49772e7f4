"""Whole runs of nvtx_phase_attribution: modes, kinds of input, schemas, hostile names, bad rows."""

from __future__ import annotations

from phase_run import RECIPE, quick
from results import (
    rows,
    tables_of,
)
from trace_builder import TraceBuilder


def events(version, rank=0):
    """Return a rank with steps, phases, a graph by its capture, copies, and odd ranges."""
    report = TraceBuilder(schema=version, duration_ns=999).environment(RANK=str(rank))
    report.process(pid=100 + rank, name="server", gpu_ids=(0, 1))
    report.nvtx("layer", 1, 9).graph_node(501, start_ns=3)
    report.graph_node((1 << 32) + 1, start_ns=12, original_node_id=501)
    for step in range(3):
        at = 100 * step + 20
        report.nvtx(f"step, seq = {step}", at, at + 80).nvtx("decode", at + 1, at + 60)
        report.nvtx("ncclAllReduce", at + 20, at + 30, domain="NCCL", registered=True)
        report.kernel("gemm", start_ns=at + 500, duration_ns=9 + rank, launch=(at + 2, at + 4))
        report.kernel(
            "ncclDevKernel_AllReduce",
            start_ns=at + 520,
            duration_ns=7,
            launch=(at + 21, at + 22),
            device_id=1,
        )
        report.memcpy(
            "HtoD", start_ns=at + 540, duration_ns=2, size_bytes=64, launch=(at + 70, at + 71)
        )
        report.graph_launch([("node", at + 550, at + 555)], launch=(at + 90, at + 92))
    report.nvtx("request", 5, 400, kind="start_end").nvtx("open", 325, None)
    return report


def test_what_the_events_are_is_found(tmp_path):
    tables = quick(events("3.25.0").write_sqlite(tmp_path / "a.sqlite"))
    # Three kernels of 9 and three of 7 in decode; copies in the step alone; the graph's nodes
    # lie in no push/pop range at their launch, so that the start/end range holds them.
    assert {name: ns for name, ns in rows(tables["phases"], "phase gpu_ns") if ns} == {
        "decode": 48,
        "unmapped": 6 + 15,
    }
    assert dict(rows(tables["attribution"], "part gpu_ns")) == {"launch": 54, "graph_launch": 15}
    assert tables["marks"]["without_end_n"].tolist() == [1]
    by_path = dict(rows(tables["range_tree"], "path self_ns"))
    assert by_path["step / decode / ncclAllReduce@NCCL"] == 21
    assert by_path["request [start/end]"] == 15


def test_the_capture_of_nodes_comes_first_if_asked(tmp_path):
    path = events("3.25.0").write_sqlite(tmp_path / "a.sqlite")
    tables = quick(path, "--graph-ranges", "capture")
    assert dict(rows(tables["range_tree"], "path self_ns"))["layer"] == 15
    assert dict(rows(tables["attribution"], "part gpu_ns"))["graph_capture"] == 15
    # Runs of a graph are no length of the range that captured it.
    assert dict(rows(tables["ranges"], "name span_ns"))["layer"] == 0


def test_odd_ranges_cost_nothing_but_themselves(tmp_path):
    trace = TraceBuilder().nvtx("decode", 0, 50).nvtx("backwards", 30, 20).nvtx("empty", 5, 5)
    trace.raw("NVTX_EVENTS", start=1, end=40, eventType=59, textId=4711)
    trace.raw("NVTX_EVENTS", start=2, end=30, eventType=59, text=None)
    trace.raw("NVTX_EVENTS", start=3, end=20, eventType=59, text="nobody's", globalTid=None)
    trace.nvtx("mark", 4, kind="mark")
    trace.kernel("a", start_ns=60, duration_ns=4, launch=(6, 7))
    trace.kernel("b", start_ns=70, duration_ns=5, launch=(35, 36))
    trace.kernel("c", start_ns=80, duration_ns=6, launch=(45, 46))
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    tables = tables_of(tmp_path / "o", path, recipe=RECIPE)
    assert tables["phases"]["gpu_ns"].sum() == 15
    assert dict(rows(tables["phases"], "phase gpu_ns"))["decode"] == 15
    assert tables["marks"]["empty_n"].tolist() == [2]
