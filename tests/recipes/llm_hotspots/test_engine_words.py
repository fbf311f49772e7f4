"""Advice names the switches of the engine that runs, and of no other."""

from __future__ import annotations

import pytest
from results import tables_of

from nsys_llm.recipes.llm_hotspots.findings.engine_words import in_words_of
from nsys_llm.report.findings import Finding
from nsys_llm.testing.trace_builder import TraceBuilder

ONE = Finding("memory_near_full", "device", "Title", "Evidence.", ("m",), "Leave room.")


@pytest.mark.parametrize(
    ("engine", "switch"),
    [
        ("vllm", "`--gpu-memory-utilization`"),
        ("sglang", "`--mem-fraction-static`"),
        ("trtllm", "`kv_cache_config.free_gpu_memory_fraction`"),
        ("pytorch", "`torch.cuda.memory_summary()`"),
    ],
)
def test_advice_is_in_the_words_of_the_engine(engine, switch):
    (finding,) = in_words_of(engine, [ONE])
    assert finding.recommendation.startswith("Leave room. In ")
    assert switch in finding.recommendation


@pytest.mark.parametrize("engine", ["generic", "", None])
def test_without_an_engine_nothing_is_added(engine):
    assert in_words_of(engine, [ONE]) == [ONE]


def test_a_run_speaks_of_its_own_engine(tmp_path):
    report = TraceBuilder(gpu_name="NVIDIA H100 80GB HBM3")
    report.kernel("void vllm::rms_norm_kernel<float>(float *)", start_ns=0, end_ns=4_000_000)
    report.allocate(78 << 30, address=1, at_ns=2_000_000)
    path = report.write_sqlite(tmp_path / "rank0.sqlite")
    by_rule = tables_of(tmp_path / "out", path)["findings"].set_index("rule")
    assert "--gpu-memory-utilization" in by_rule.loc["memory_near_full", "recommendation"]
