"""Sizes that no job has: right sums and bounded work; at night in full size."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from effort import nightly_but
from quick_run import quick
from trace_builder import TraceBuilder

#: Processor time that a recipe may take for the largest of them; 2,000 ranks take 45 to 53 s.
MOST_CPU_S = 90


def timed(recipe: str, *inputs: Path) -> dict:
    began_s = time.process_time()
    tables = quick(recipe, *inputs)
    assert time.process_time() - began_s < MOST_CPU_S
    return tables


@pytest.mark.nightly
@pytest.mark.parametrize("ranks_n", nightly_but([(120,), (2_000,)], [(120,)]))
@pytest.mark.parametrize("recipe", ["llm_hotspots", "tail_stats"])
def test_thousands_of_ranks_add_up(tmp_path, ranks_n, recipe):
    report = TraceBuilder().kernel("gemm", start_ns=10, duration_ns=5, launch=(1, 3))
    report.kernel("gemm", start_ns=20, duration_ns=7, launch=(4, 6))
    folder = tmp_path / "ranks"
    folder.mkdir()
    first = report.write_sqlite(folder / "rank0.sqlite")
    for rank in range(1, ranks_n):
        os.link(first, folder / f"rank{rank}.sqlite")
    tables = timed(recipe, folder)
    whole, parts = (
        ("kernels", "rank_kernels") if recipe == "llm_hotspots" else ("tails", "rank_tails")
    )
    assert tables[whole]["launches_n"].sum() == 2 * ranks_n
    assert tables[whole]["total_ns"].sum() == 12 * ranks_n
    assert sorted(tables[parts]["rank"]) == list(range(ranks_n))
    assert set(tables[parts]["total_ns"]) == {12}
