"""Real traces: what has no source says so in one line; GPU metrics of 2022 give categories."""

from __future__ import annotations

import pytest
from command_line import run
from quick_run import quick

from nsys_llm.recipes.roofline.analysis import ANALYSIS


@pytest.mark.traces
@pytest.mark.parametrize("name", ["training_rtx3070ti", "forward_2_7b_a100"])
def test_a_trace_without_a_source_says_so(tmp_path, traces, name):
    path = traces / "public" / f"{name}.sqlite"
    ended = run("--input", path, "--output", tmp_path / "out", recipe="roofline")
    assert ended.code == 0
    assert ended.errors == []
    assert "No roofline: give --model config.json" in " ".join(ended.printed)


@pytest.mark.traces
def test_gpu_metrics_of_2022_give_categories(traces):
    tables = quick("roofline", traces / "public" / "gpu_metrics_2022.sqlite")
    rows = tables["category_roofline"]
    assert set(rows["category"]) == {"gemm", "unmatched"}
    # Its kernels ran in five samples: too few to say anything.
    assert set(rows["reason"]) == {"few samples"}
    assert rows["mbu_pct"].isna().all()
    assert "GPU metrics" not in ANALYSIS.answer(tables)
