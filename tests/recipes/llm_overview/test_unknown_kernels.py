"""Kernels that no rule knows, and memory that is allocated in the loop, are the first words."""

from __future__ import annotations

import pytest
from quick_run import quick_part
from trace_builder import TraceBuilder

GEMM = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
UNKNOWN = "void acme::zigzag_blend_v7<float, (int)4>(T1 *, int)"


def overview(path):
    return quick_part("llm_overview", path).report


@pytest.mark.slow
@pytest.mark.parametrize(("unknown_ns", "is_first"), [(400_000, True), (20_000, False)])
def test_the_largest_is_named_with_its_share_and_command(tmp_path, unknown_ns, is_first):
    trace, at_ns = TraceBuilder(), 0
    for _ in range(100):
        for name, ns in ((UNKNOWN, unknown_ns), (GEMM, 200_000)):
            trace.kernel(name, start_ns=at_ns, duration_ns=ns, launch=(at_ns - 900, at_ns - 500))
            at_ns += ns
    report = overview(trace.write_sqlite(tmp_path / "r.sqlite"))
    assert report.screen is not None
    lines = [line for line in report.screen.lines if "zigzag" in line]
    assert len(lines) == is_first
    if is_first:
        assert "66.7 %" in lines[0]
        assert "ncu --kernel-name" in lines[0]
        assert "nothing" not in report.answer
        assert "No recipe found anything" not in report.answer


@pytest.mark.slow
def test_memory_that_is_allocated_in_the_loop_comes_first_with_its_call(tmp_path):
    trace, at_ns = TraceBuilder(), 1_000_000
    for _ in range(100):
        trace.api("cudaMallocAsync_v11020", start_ns=at_ns, duration_ns=220_000)
        at_ns += 221_000
        trace.kernel(
            GEMM, start_ns=at_ns + 8_000, duration_ns=120_000, launch=(at_ns, at_ns + 4_000)
        )
        at_ns += 5_000
    first = overview(trace.write_sqlite(tmp_path / "r.sqlite")).findings[0]
    assert first.title.startswith("Memory is allocated in the loop: rank 0's GPU idles")
    assert first.recommendation.startswith(
        "Keep buffers from step to step instead of `cudaMallocAsync`"
    )
