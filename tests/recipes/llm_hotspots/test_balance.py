"""Overlap and bandwidth of llm_hotspots on planted cases, all by hand."""

from __future__ import annotations

import json

import pytest
from results import read_report, rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.kernels import bandwidth_findings
from nsys_llm.report.prices.pricing import priced

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
PARTS = (
    "compute_only_ns communication_only_ns copy_only_ns compute_communication_ns compute_copy_ns "
    "communication_copy_ns compute_communication_copy_ns graph_ns"
)


def test_overlap_is_told_in_parts_that_add_up_to_busy_time(tmp_path):
    trace = TraceBuilder().kernel(GEMM, start_ns=0, end_ns=10)
    trace.kernel(NCCL, start_ns=6, end_ns=14, stream_id=8)
    trace.memcpy("HtoD", start_ns=8, end_ns=12, size_bytes=1, stream_id=9)
    trace.kernel(NCCL, start_ns=20, end_ns=21)
    trace.graph_launch([("g", 30, 37)], launch=(25, 26), mode="graph")
    trace.kernel(GEMM, start_ns=35, end_ns=40, stream_id=8).write_sqlite(tmp_path / "t.sqlite")
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite")
    # 0-6 compute, 6-8 both, 8-10 all three, 10-12 communication and copy, 12-14 and 20-21
    # communication; 30-37 is the graph's, 37-40 compute.
    assert rows(frames["overlap"], PARTS) == [(6 + 3, 2 + 1, 0, 2, 0, 2, 2, 7)]
    assert frames["overlap"]["busy_ns"].tolist() == frames["devices"]["busy_ns"].tolist() == [25]
    columns = "compute_ns communication_ns copy_ns exposed_communication_ns"
    assert rows(frames["overlap"], columns) == [(10 + 5, 8 + 1, 4, 2 + 1 + 2)]
    columns = "exposed_communication_pct exposed_start_ns exposed_end_ns"
    assert rows(frames["overlap"], columns) == [(100 * 5 / 9, 10, 14)]


@pytest.fixture
def weighed(tmp_path):
    """Return a function that runs with a file of weights on two GEMVs of 10 and 20 ns."""
    trace = TraceBuilder().kernel("gemv<1>", start_ns=0, duration_ns=10)
    trace.kernel("gemv<2>", start_ns=20, duration_ns=20).kernel("other", start_ns=50, end_ns=60)

    def analysed(weights, *options):
        (tmp_path / "w.json").write_text(json.dumps(weights))
        trace.write_sqlite(tmp_path / "t.sqlite")
        words = ["--weights", str(tmp_path / "w.json"), *options]
        frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=words, whole=True)
        return frames["bandwidth"]

    return analysed


@pytest.mark.slow
def test_bandwidth_is_bytes_over_the_mean_duration(weighed, tmp_path):
    bandwidth = weighed({"GEMV": 45_000, "re:^oth": 33_500, "absent": 1})
    # Of both GEMVs the mean is 15 ns, so 3000 GB/s of 3350; other reads 33,500 bytes in 10 ns.
    columns = "pattern size_bytes example launches_n total_ns mean_ns rate_gb_s"
    assert rows(bandwidth, columns) == [
        ("GEMV", 45_000, "gemv<2>", 2, 30, 15.0, 3000.0),
        ("re:^oth", 33_500, "other", 1, 10, 10.0, 3350.0),
        ("absent", 1, None, 0, 0, None, None),
    ]
    columns = "peak_gb_s efficiency_pct judgement"
    assert rows(bandwidth, columns) == [
        (3350.0, pytest.approx(100 * 3000 / 3350, rel=1e-14), "little headroom"),
        (3350.0, 100.0, "little headroom"),
        (3350.0, None, None),
    ]
    # What the file said is recorded, and not where it lies.
    recorded = read_report(tmp_path / "o")["options"]["weights"]
    assert recorded == [["GEMV", 45_000], ["re:^oth", 33_500], ["absent", 1]]


#: Bytes, duration and the judgement: rates in bytes a ns of 3350 are
#: 50 %, 65 %, 65 %, 75 %, 90 % and 110 %.
EFFICIENCIES = [
    (1_675_000, 1000, "room"),
    (2_177_500, 1000, "usual for its size"),
    (21_775_000, 10_000, "room"),
    (7_537_500, 3000, "some headroom"),
    (30_150_000, 10_000, "little headroom"),
    (3_685_000, 1000, "above peak"),
]


def test_efficiency_is_judged_by_the_guide_s_thresholds(tmp_path):
    trace, weights = TraceBuilder(), {}
    for nth, (size_bytes, duration_ns, _) in enumerate(EFFICIENCIES):
        trace.kernel(f"g{nth}", start_ns=20_000 * nth, duration_ns=duration_ns)
        weights[f"g{nth}"] = size_bytes
    (tmp_path / "w.json").write_text(json.dumps(weights))
    path = trace.write_sqlite(tmp_path / "t.sqlite")
    words = ["--weights", str(tmp_path / "w.json")]
    tables = tables_of(tmp_path / "o", path, options=words)
    judged = tables["bandwidth"]["judgement"].tolist()
    assert judged == [word for _, _, word in EFFICIENCIES]
    findings = {item.name: item for item in priced([*bandwidth_findings(tables)], tables)}
    assert findings.keys() == {"g0", "g2"}
    # At 80 % it would take 50/80 of its time.
    assert findings["g0"].price.gain_ns == 1_000 * 3 // 8
    assert ": 1,675 GB/s of 3,350 GB/s" in findings["g0"].details


def test_gpus_of_different_peaks_have_no_efficiency(tmp_path):
    for rank, name in enumerate(["NVIDIA H200", "NVIDIA H100 80GB HBM3"]):
        trace = TraceBuilder(gpu_name=name).kernel("g", start_ns=0, end_ns=5)
        trace.memset(start_ns=9, end_ns=11, size_bytes=8)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    (tmp_path / "w.json").write_text('{"g": 10}')
    inputs = [tmp_path / f"rank{rank}.sqlite" for rank in (0, 1)]
    frames = tables_of(tmp_path / "o", *inputs, options=["--weights", str(tmp_path / "w.json")])
    columns = "rate_gb_s peak_gb_s efficiency_pct judgement"
    assert rows(frames["bandwidth"], columns) == [(2.0, None, None, None)]
    assert frames["memops"]["peak_gb_s"].tolist() == [4800.0, 3350.0]
