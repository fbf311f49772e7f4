"""What exposed communication and copies are: title, gain and advice follow that."""

from __future__ import annotations

import sqlite3

import pytest
from quick_run import quick
from trace_builder import TraceBuilder

REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096>)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)"
GEMM = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
FUSED = "void deep_gemm::sm100_fp8_fp4_mega_moe_impl<(unsigned int)8192>(void *, int *)"


def layers(trace: TraceBuilder, name: str, *, talk_ns: int, stream: int, hidden: bool = False):
    """Add ten layers of 1 ms of products, each with an operation behind or beside them."""
    at_ns = 0
    for _ in range(10):
        trace.kernel(GEMM, start_ns=at_ns, duration_ns=500_000)
        trace.kernel(GEMM, start_ns=at_ns + 500_000, duration_ns=500_000)
        if hidden:
            trace.kernel(ALL_GATHER, start_ns=at_ns + 100_000, duration_ns=300_000, stream_id=25)
        trace.kernel(name, start_ns=at_ns + 1_000_000, duration_ns=talk_ns, stream_id=stream)
        at_ns += 1_000_000 + talk_ns
    return trace


def exposed(tmp_path, trace: TraceBuilder):
    tables = quick("llm_hotspots", trace.write_sqlite(tmp_path / "r.sqlite"))
    findings = tables["findings"]
    (row,) = findings[findings["rule"] == "exposed_communication"].to_dict("records")
    parts = tables["exposed_communication"]
    wall = tables["wall"]
    talks = wall[wall["wall_class"] == "communication"]["time_ns"]
    assert parts["exposed_ns"].sum() == talks.sum()
    return row, tables


@pytest.mark.parametrize(
    ("name", "talk_ns", "stream", "title", "advice"),
    [
        (REDUCE_SCATTER, 250_000, 21, "Exposed reduce-scatter: 20.0 %", "a layer's gradients"),
        (ALL_GATHER, 250_000, 21, "Exposed all-gather: 20.0 %", "Gather the next layer"),
        (ALL_REDUCE, 250_000, 21, "Exposed all-reduce: 20.0 %", "buckets"),
        (ALL_REDUCE, 25_000, 21, "Exposed all-reduce: 2.4 %", "Messages are small"),
        (SEND_RECV, 250_000, 21, "Exposed send/recv or all-to-all: 20.0 %", "next exchange"),
        (SEND_RECV, 250_000, 7, "Send/recv or all-to-all on the compute stream", "separate stream"),
        (ALL_REDUCE, 250_000, 7, "All-reduce on the compute stream: 20.0 %", "separate stream"),
        (ALL_REDUCE, 25_000, 7, "All-reduce on the compute stream: 2.4 %", "Messages are small"),
    ],
)
def test_the_operation_its_stream_and_size_decide_the_words(
    tmp_path, name, talk_ns, stream, title, advice
):
    trace = layers(TraceBuilder(), name, talk_ns=talk_ns, stream=stream)
    row, _ = exposed(tmp_path, trace)
    assert row["title"].startswith(title)
    assert advice in row["recommendation"]
    assert row["gain_ns"] == pytest.approx(10 * talk_ns / 2)
    window_ns = row["window_start_ns"], row["window_end_ns"]
    assert window_ns == (1_000_000, 1_000_000 + talk_ns)


@pytest.mark.parametrize(
    ("connections", "hidden", "stream", "gain_ns", "is_named"),
    [
        # others run beside the computation, so these could: all of it
        ("1", True, 21, 2_500_000, True),
        ("8", True, 21, 1_250_000, False),
        (None, True, 21, 1_250_000, False),
        # nothing of this job overlaps, or it cannot: half, as a usual fix has it
        ("1", False, 21, 1_250_000, False),
        ("1", True, 7, 1_250_000, False),
    ],
)
def test_one_line_of_launches_is_named_where_it_explains(
    tmp_path, connections, hidden, stream, gain_ns, is_named
):
    variables = {} if connections is None else {"CUDA_DEVICE_MAX_CONNECTIONS": connections}
    trace = TraceBuilder().environment(RANK="0", **variables)
    layers(trace, REDUCE_SCATTER, talk_ns=250_000, stream=stream, hidden=hidden)
    row, tables = exposed(tmp_path, trace)
    assert row["gain_ns"] == gain_ns
    assert ("CUDA_DEVICE_MAX_CONNECTIONS=1 is set" in row["recommendation"]) == is_named
    recorded = tables["files"]["max_connections"]
    assert recorded.dropna().tolist() == ([int(connections)] if connections else [])


@pytest.mark.parametrize(("stream", "title"), [(7, "on the compute stream"), (21, "Exposed send")])
def test_a_stream_computes_though_it_exchanges_as_often(tmp_path, stream, title):
    # A layer of experts: as many exchanges as products; another stream packs what is sent.
    trace = TraceBuilder()
    for at in range(0, 40_000_000, 2_000_000):
        trace.kernel(GEMM, start_ns=at, duration_ns=900_000)
        if at % 4_000_000:
            trace.kernel("pack", start_ns=at + 900_000, duration_ns=9_000, stream_id=21)
        trace.kernel(SEND_RECV, start_ns=at + 1_000_000, duration_ns=900_000, stream_id=stream)
    row, _ = exposed(tmp_path, trace)
    assert title in row["title"]


def test_communication_that_computation_hides_is_no_finding(tmp_path):
    trace = TraceBuilder().kernel(GEMM, start_ns=0, end_ns=1_000)
    trace.kernel(ALL_REDUCE, start_ns=100, end_ns=900, stream_id=21)
    tables = quick("llm_hotspots", trace.write_sqlite(tmp_path / "r.sqlite"))
    assert "exposed_communication" not in set(tables["findings"]["rule"])


def test_several_operations_are_communication(tmp_path):
    trace = TraceBuilder()
    trace.kernel(GEMM, start_ns=0, duration_ns=1_000_000)
    for nth, name in enumerate((REDUCE_SCATTER, ALL_GATHER)):
        trace.kernel(name, start_ns=(1 + nth) * 1_000_000, duration_ns=1_000_000, stream_id=21)
    row, _ = exposed(tmp_path, trace)
    assert row["title"] == "Exposed communication: 66.7 % of the time, waiting included"


@pytest.mark.parametrize(
    ("devices", "is_communication"),
    [((0, 1), True), ((0, 0), False), ((0, 5), False), (None, False)],
)
def test_copies_between_gpus_of_one_process_are_communication(tmp_path, devices, is_communication):
    trace = TraceBuilder().process(pid=100, gpu_ids=(0, 1))
    for device in (0, 1):
        trace.kernel(GEMM, start_ns=0, duration_ns=1_000_000, device_id=device)
    trace.memcpy("PtoP", start_ns=1_000_000, duration_ns=500_000, size_bytes=1 << 23)
    path = trace.write_sqlite(tmp_path / "r.sqlite")
    if devices is not None:
        with sqlite3.connect(path) as base:
            base.execute(
                "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcDeviceId = ?, dstDeviceId = ?", devices
            )
    tables = quick("llm_hotspots", path)
    wall = tables["wall"][tables["wall"]["device_id"] == 0].set_index("wall_class")["time_ns"]
    talks_ns = 500_000 * is_communication
    assert (wall["communication"], wall["copies"]) == (talks_ns, 500_000 - talks_ns)
    (title,) = tables["findings"]["title"][tables["findings"]["severity"].notna()]
    named = "Exposed peer copies: 33.3 %" if is_communication else "1 PtoP (peer) copy, 8.39 MB"
    assert title.startswith(named)


@pytest.mark.parametrize(
    ("kind", "size_bytes", "copies_n", "memory", "title", "advice"),
    [
        ("HtoD", 1 << 20, 10, "pageable", "10 HtoD copies of pageable memory, 10.5 MB", "pinned"),
        ("HtoD", 1 << 20, 10, "pinned", "10 HtoD copies of pinned memory, 10.5 MB", "step ahead"),
        ("HtoD", 512, 200, "pageable", "200 HtoD copies of pageable memory, 102 kB", "Batch them"),
        ("PtoP", 1 << 20, 10, None, "10 PtoP (peer) copies, 10.5 MB", "Copies between GPUs"),
    ],
)
def test_copies_say_how_many_of_what(tmp_path, kind, size_bytes, copies_n, memory, title, advice):
    trace = TraceBuilder().kernel(GEMM, start_ns=0, duration_ns=10_000_000)
    for nth in range(copies_n):
        start_ns = 10_000_000 + nth * 30_000
        trace.memcpy(
            kind, start_ns=start_ns, duration_ns=20_000, size_bytes=size_bytes, src_memory=memory
        )
    tables = quick("llm_hotspots", trace.write_sqlite(tmp_path / "r.sqlite"))
    (row,) = tables["findings"][tables["findings"]["rule"] == "exposed_copies"].to_dict("records")
    assert row["title"].startswith(title)
    assert row["title"].endswith("exposed")
    assert advice in row["recommendation"]
    assert ("pinned memory" in row["recommendation"]) == (advice == "pinned")


def test_what_computes_and_communicates_at_once_is_in_neither_sum(tmp_path):
    trace = TraceBuilder()
    trace.kernel(GEMM, start_ns=0, duration_ns=400)
    trace.kernel(FUSED, start_ns=400, duration_ns=500)
    trace.kernel(ALL_REDUCE, start_ns=900, duration_ns=100)
    tables = quick("llm_hotspots", trace.write_sqlite(tmp_path / "r.sqlite"))
    wall = tables["wall"].set_index("wall_class")["time_ns"]
    assert wall[["compute", "fused", "communication"]].tolist() == [400, 500, 100]
    findings = tables["findings"].set_index("rule")
    assert findings.loc["fused_communication", "title"].startswith(
        "Kernels that compute and communicate at once take 50.0 % of the time"
    )
    only = TraceBuilder().kernel(GEMM, start_ns=0, duration_ns=400)
    tables = quick("llm_hotspots", only.write_sqlite(tmp_path / "only.sqlite"))
    assert "fused" not in set(tables["wall"]["wall_class"])
    assert "fused_communication" not in set(tables["findings"]["rule"])


def test_the_wait_in_a_fused_kernel_makes_no_rank_slow(tmp_path):
    paths = []
    for rank in range(4):
        trace = TraceBuilder().process(pid=100 + rank, gpu_ids=(rank,))
        trace.environment(RANK=str(rank), WORLD_SIZE="4")
        for step in range(30):
            # Rank 3 comes last: the others wait in the kernel that all of them leave at once.
            at_ns, late_ns = step * 1_000_000, 200_000 * (rank == 3)
            trace.nvtx(f"step {step}", at_ns, at_ns + 900_000)
            trace.kernel(GEMM, start_ns=at_ns, duration_ns=300_000, launch=(at_ns, at_ns + 1))
            trace.kernel(
                FUSED,
                start_ns=at_ns + 300_000 + late_ns,
                end_ns=at_ns + 900_000,
                launch=(at_ns + 2 + late_ns, at_ns + 3 + late_ns),
            )
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    findings = quick("llm_hotspots", *paths)["findings"]
    assert not any("more to compute" in title for title in findings["title"])
