"""Real traces: what has no source says so in one line; GPU metrics of 2022 give categories."""

from __future__ import annotations

import pytest
from quick_run import quick

from nsys_llm.recipes.roofline.analysis import ANALYSIS


@pytest.mark.traces
def test_gpu_metrics_of_2022_give_categories(traces):
    tables = quick("roofline", traces / "public" / "gpu_metrics_2022.sqlite")
    rows = tables["category_roofline"]
    assert set(rows["category"]) == {"gemm", "unmatched"}
    # Its kernels ran in five samples: too few to say anything.
    assert set(rows["reason"]) == {"few samples"}
    assert rows["mbu_pct"].isna().all()
    assert "GPU metrics" not in ANALYSIS.answer(tables)
