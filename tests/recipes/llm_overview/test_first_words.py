"""The first words of an overview: unrecorded work, unknown kernels, memory in the loop."""

from __future__ import annotations

import pytest
from quick_run import quick_part
from trace_builder import TraceBuilder

pytestmark = pytest.mark.slow

MS = 1_000_000
GEMM = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
UNKNOWN = "void acme::zigzag_blend_v7<float, (int)4>(T1 *, int)"


def overview(trace, folder):
    """Return the report of an overview, and those of its recipes."""
    part = quick_part("llm_overview", trace.write_sqlite(folder / "rank0.sqlite"))
    return part.report, part.parts


def sampled(active_pct):
    """One kernel of 1 ms in 100 ms, beside samples of how many SMs are active."""
    trace = TraceBuilder()
    for start_ns in (20_000, 99 * MS + 500_000):
        launch = (start_ns - 15_000, start_ns - 5_000)
        trace.kernel("gemm", start_ns=start_ns, duration_ns=500_000, launch=launch)
    times_ns = [MS * at for at in range(1, 100)]
    return trace.gpu_metrics(
        {"SMs Active [Throughput %]": [active_pct] * len(times_ns)}, times_ns=times_ns
    )


@pytest.mark.parametrize(("active_pct", "is_told"), [(95, True), (40, False)])
def test_idle_time_in_which_sms_are_active_is_none(tmp_path, active_pct, is_told):
    report, parts = overview(sampled(active_pct), tmp_path)
    remarks = [finding.title for finding in report.remarks]
    title = f"Most GPU work is not recorded: SMs are active {active_pct}.0 % of the time"
    assert (title in remarks) == is_told
    assert (report.wall[0].bound.word == "WORK NOT RECORDED") == is_told
    assert (report.opportunities == []) == is_told
    if is_told:
        assert report.screen.trust == title
        assert report.answer.endswith("; most of the GPU's work is not recorded.")
        assert report.wall[0].parts[0].text == "idle or not recorded 99.0 %"
        assert "Most of its work is not recorded" in parts["llm_hotspots"].report.answer
    assert any(item.cause for item in parts["idle_gaps"].report.opportunities)


def test_where_nothing_gains_the_largest_part_is_said_and_no_other(tmp_path):
    trace = TraceBuilder().kernel("gemm", start_ns=0, duration_ns=100 * MS)
    report, _ = overview(trace.kernel("other", start_ns=100 * MS, duration_ns=MS), tmp_path)
    assert report.answer.endswith("or more. The largest part of the time is GEMM, 99.0 %.")


@pytest.mark.parametrize(("unknown_ns", "is_first"), [(400_000, True), (20_000, False)])
def test_the_largest_is_named_with_its_share_and_command(tmp_path, unknown_ns, is_first):
    trace, at_ns = TraceBuilder(), 0
    for _ in range(100):
        for name, ns in ((UNKNOWN, unknown_ns), (GEMM, 200_000)):
            trace.kernel(name, start_ns=at_ns, duration_ns=ns, launch=(at_ns - 900, at_ns - 500))
            at_ns += ns
    report, _ = overview(trace, tmp_path)
    assert report.screen is not None
    lines = [line for line in report.screen.lines if "zigzag" in line]
    assert len(lines) == is_first
    if is_first:
        assert "66.7 %" in lines[0]
        assert "ncu --kernel-name" in lines[0]
        assert "nothing" not in report.answer
        assert "No recipe found anything" not in report.answer


def test_memory_that_is_allocated_in_the_loop_comes_first_with_its_call(tmp_path):
    trace, at_ns = TraceBuilder(), 1_000_000
    for _ in range(100):
        trace.api("cudaMallocAsync_v11020", start_ns=at_ns, duration_ns=220_000)
        at_ns += 221_000
        trace.kernel(
            GEMM, start_ns=at_ns + 8_000, duration_ns=120_000, launch=(at_ns, at_ns + 4_000)
        )
        at_ns += 5_000
    first = overview(trace, tmp_path)[0].findings[0]
    assert first.title.startswith("Memory is allocated in the loop: rank 0's GPU idles")
    assert first.recommendation.startswith(
        "Keep buffers from step to step instead of `cudaMallocAsync`"
    )
