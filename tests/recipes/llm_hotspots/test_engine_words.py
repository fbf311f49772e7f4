"""Advice names the switches of the engine that runs, and of no other."""

from __future__ import annotations

import pytest
from results import tables_of

from nsys_llm.recipes.llm_hotspots.findings.engine_words import in_words_of
from nsys_llm.report.findings import Finding
from nsys_llm.testing.trace_builder import TraceBuilder

ONE = Finding("launch_bound", "high", "device", "Title", "Evidence.", ("launches",), "Launch less.")


@pytest.mark.parametrize(
    ("engine", "switch"),
    [
        ("vllm", "`--enforce-eager`"),
        ("sglang", "`--disable-cuda-graph`"),
        ("trtllm", "`cuda_graph_config`"),
        ("pytorch", "`torch.compile"),
    ],
)
def test_advice_is_in_the_words_of_the_engine(engine, switch):
    (told,) = in_words_of(engine, [ONE])
    assert told.recommendation.startswith("Launch less. In ")
    assert switch in told.recommendation


@pytest.mark.parametrize("engine", ["generic", "", None])
def test_without_an_engine_nothing_is_added(engine):
    assert in_words_of(engine, [ONE]) == [ONE]


def test_other_findings_stay_as_they_are():
    other = Finding("dominant_kernel", "high", "kernel", "T", "E.", ("kernels",), "Look at it.")
    assert in_words_of("vllm", [other]) == [other]


def test_a_run_speaks_of_its_own_engine(tmp_path):
    # 40 steps of 10 ms: a kernel of vLLM's own for 2 ms, and a wait that goes on for 4 ms more.
    report = TraceBuilder()
    for n in range(40):
        at = 10_000_000 * n
        name = "void vllm::rms_norm_kernel<float>(float *)"
        report.kernel(name, start_ns=at + 10, end_ns=at + 2_000_000)
        report.api("cudaStreamSynchronize_v3020", start_ns=at + 20, end_ns=at + 6_000_000)
    path = report.write_sqlite(tmp_path / "rank0.sqlite")
    found = tables_of(tmp_path / "out", path)["findings"].set_index("rule")
    assert "--async-scheduling" in found.loc["sync_in_loop", "recommendation"]
