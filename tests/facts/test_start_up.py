"""Before its first step a program loads, compiles or captures: that is no host's fault."""

from __future__ import annotations

import pytest
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_overview.findings.answer import answer

US, MS = 1_000, 1_000_000
STEPS = 12


def then_steps(trace, at):
    """Add steps of 1 ms of which kernels take 980 us."""
    for step in range(STEPS):
        trace.nvtx(f"decode step {step}", at, at + MS)
        for name, start in (("gemm", at + 10 * US), ("attention", at + 500 * US)):
            trace.kernel(
                name, start_ns=start, end_ns=start + 490 * US, launch=(at + US, at + 9 * US)
            )
        at += MS
    return trace


def loading(trace):
    """Copy 20 times 4 MB of a model, 200 us each, read from disk for 800 us between."""
    for copy in range(20):
        at = copy * MS
        launch = (at, at + 10 * US)
        trace.memcpy(
            "HtoD", start_ns=at + 10 * US, duration_ns=200 * US, size_bytes=4 << 20, launch=launch
        )
    return 20 * MS


def capturing(trace):
    """Instantiate ten graphs, each after one warm kernel, 2 ms each."""
    for graph in range(10):
        at = graph * 2 * MS
        launch = (at, at + 10 * US)
        trace.kernel("gemm", start_ns=at + 10 * US, duration_ns=100 * US, launch=launch)
        start = at + 200 * US
        trace.api("cudaGraphInstantiate_v12000", start_ns=start, end_ns=start + 1_700 * US)
    return 20 * MS


def reading_a_prompt(trace):
    """Launch the layers of a prompt one by one, too slowly; one function is looked up."""
    trace.api("cuModuleGetFunction", start_ns=300 * US, duration_ns=20 * US)
    for layer in range(20):
        at = layer * MS
        trace.kernel(f"layer_{layer}", start_ns=at + US, duration_ns=200 * US, launch=(at, at + US))
    return 20 * MS


@pytest.mark.parametrize("begin", [loading, capturing])
def test_what_is_idle_before_the_first_step_of_a_start_up_is_a_class_and_nobodys_fault(
    begin, tmp_path
):
    trace = TraceBuilder()
    then_steps(trace, begin(trace)).write_sqlite(tmp_path / "rank0.sqlite")
    tables = quick("idle_gaps", tmp_path)
    wall = tables["wall"].groupby("wall_class")["time_ns"].sum()
    # From the first operation to the first step; idle behind it are 20 us between steps, 10 before.
    busy_ns = 20 * 200 * US if begin is loading else 10 * 100 * US
    assert wall["start_up"] == 20 * MS - 10 * US - busy_ns
    assert wall["idle"] == 10 * US + (STEPS - 1) * 20 * US
    assert wall.get("load", 0) == (busy_ns if begin is loading else 0)
    assert not [title for title in tables["findings"]["title"] if "start-up" in title.lower()]
    causes = tables["rank_causes"].query("cause == 'start_up'")
    assert causes["idle_ns"].sum() == wall["start_up"]


def test_a_prompt_that_is_read_before_the_first_step_is_no_start_up(tmp_path):
    trace = TraceBuilder()
    then_steps(trace, reading_a_prompt(trace)).write_sqlite(tmp_path / "rank0.sqlite")
    tables = quick("idle_gaps", tmp_path)
    assert "start_up" not in set(tables["wall"]["wall_class"])
    assert any("host" in title for title in tables["findings"]["title"])


@pytest.mark.slow
def test_the_answer_tells_what_is_before_the_first_step(tmp_path):
    trace = TraceBuilder()
    then_steps(trace, loading(trace)).write_sqlite(tmp_path / "rank0.sqlite")
    # 20 ms of a span of 20 + 12 ms, but for what the first copy and the last kernel leave out.
    assert "62.5 % is loading before the first step" in answer(quick("llm_overview", tmp_path))


def test_copies_of_no_length_are_no_load(tmp_path):
    trace = TraceBuilder()
    trace.memcpy("HtoD", start_ns=10_000, duration_ns=0, size_bytes=1 << 20, launch=(1_000, 2_000))
    trace.kernel("gemm", start_ns=90_000, duration_ns=9_000, launch=(80_000, 81_000))
    tables = quick("idle_gaps", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    assert "load" not in set(tables["wall"]["wall_class"])
