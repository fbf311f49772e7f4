"""Pipelines compared: the bubble grows with fewer microbatches, and no rank is late for it."""

from __future__ import annotations

import pytest
from collective_world import world as collective_world
from pipeline_world import SEND_RECV, World, run_blocking, write_pipeline
from quick_run import quick

from nsys_llm.run.worker import load_analysis
from nsys_llm.testing.trace_builder import TraceBuilder


def compared(folder):
    tables = quick("trace_diff", "--baseline", str(folder / "before"), folder / "after")
    findings = tables["findings"]
    texts = [load_analysis("trace_diff").answer(tables), *findings["details"], *findings["title"]]
    return set(findings["rule"]), " ".join(texts)


@pytest.mark.parametrize("stages", [2, 4])
def test_a_larger_bubble_is_no_ranks_fault(stages, tmp_path):
    for name, microbatches, steps in (("before", 8, 2), ("after", 4, 4)):
        ran = run_blocking(World(stages, microbatches, steps_n=steps))
        write_pipeline(tmp_path / name, ran)
    rules, text = compared(tmp_path)
    assert "waiting" not in rules
    assert "most for rank" not in text
    assert "late peer" not in text


@pytest.mark.nightly
def test_a_late_rank_of_an_all_to_all_is_still_named(tmp_path):
    for name, slow in (("before", {}), ("after", {2: 1.5})):
        (tmp_path / name).mkdir()
        for rank, rank_rows in enumerate(collective_world(4, 4, slow=slow, steps=16)):
            trace, before = TraceBuilder(hostname="node"), 0
            for stream, _, start, end in rank_rows:
                trace.kernel("gemm(int)", start_ns=before + 1, end_ns=start)
                trace.kernel(SEND_RECV, start_ns=start, end_ns=end, stream_id=stream)
                before = end
            trace.write_sqlite(tmp_path / name / f"rank{rank}.sqlite")
    rules, text = compared(tmp_path)
    assert rules >= {"waiting", "one_rank"}
    assert "most for rank 2" in text
