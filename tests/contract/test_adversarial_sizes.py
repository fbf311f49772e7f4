"""Sizes that no job has: right sums and bounded work; at night in full size."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from effort import nightly_but
from quick_run import quick

from nsys_llm.testing.trace_builder import TraceBuilder

#: Processor time that a recipe may take for the largest of them; 2,000 ranks take 45 to 53 s.
MOST_CPU_S = 90

STEP_NS = 1_000


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


def letter(name: int) -> str:
    """Return a number in letters: digits of a name count as one name where they are counters."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(name))


@pytest.mark.nightly
@pytest.mark.parametrize(("deep_n", "times_n"), nightly_but([(500, 20), (500, 2_000)], [(500, 20)]))
@pytest.mark.parametrize("recipe", ["nvtx_phase_attribution", "idle_gaps"])
def test_ranges_nested_hundreds_deep_have_their_kernels(tmp_path, deep_n, times_n, recipe):
    depth = np.tile(np.arange(deep_n), times_n)
    begin_ns = np.repeat(np.arange(times_n) * 10 * deep_n * STEP_NS, deep_n)
    report = TraceBuilder()
    report.nvtx_ranges(
        [f"level {letter(level)}" for level in depth.tolist()],
        start_ns=begin_ns + depth * STEP_NS,
        end_ns=begin_ns + (4 * deep_n - depth) * STEP_NS,
    )
    # One in the innermost range, and one in the outermost alone.
    outer_ns = np.arange(times_n) * 10 * deep_n * STEP_NS
    launch_ns = np.sort(np.concatenate([outer_ns + 100, outer_ns + 2 * deep_n * STEP_NS]))
    report.kernels(
        ["gemm"],
        np.zeros(2 * times_n, dtype=np.int64),
        start_ns=launch_ns + 100,
        end_ns=launch_ns + 400,
        launch_ns=(launch_ns, launch_ns + 50),
    )
    tables = timed(recipe, report.write_sqlite(tmp_path / "rank0.sqlite"))
    if recipe == "idle_gaps":
        assert tables["devices"]["busy_ns"].sum() == 600 * times_n
        return
    coverage = tables["coverage"].set_index("op").loc["kernel"]
    assert coverage["attributed_ns"] == coverage["total_ns"] == 600 * times_n
    ranges = tables["ranges"].set_index("name")
    innermost = f"level {letter(deep_n - 1)}"
    assert ranges.loc["level a", ["inclusive_ns", "self_ns"]].tolist() == [
        600 * times_n,
        300 * times_n,
    ]
    assert ranges.loc[innermost, ["inclusive_ns", "self_ns"]].tolist() == [300 * times_n] * 2
    assert ranges["self_ns"].sum() == 600 * times_n
