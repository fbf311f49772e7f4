"""Times that add up to more than 64 bits hold are refused in one line, never wrapped around."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from effort import a_few_recipes
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.profile.tables import Table
from nsys_llm.run.cli import main
from nsys_llm.run.worker import map_profiles
from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.trace.time_limits import _MOST_OF_RANK_NS, _added_ns, refuse_endless_run

DAY_NS = 86_400 * 10**9


def long_kernels(path: Path, kernels_n: int, days: int) -> Path:
    """Write a profile in which every kernel lasts so long; they overlap."""
    profile = TraceBuilder()
    for nth in range(10):
        profile.kernel(
            "k",
            start_ns=100 * nth + 9,
            duration_ns=days * DAY_NS,
            launch=(100 * nth, 100 * nth + 2),
        )
    profile.nvtx("step", 0, 500).nvtx("step", 500, 1_000)
    profile.write_sqlite(path)
    with closing(sqlite3.connect(path)) as database, database:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        # The ten of them again and again.
        for _ in range(kernels_n // 10 - 1):
            database.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 10")
    return path


def inputs(recipe: str, path: Path) -> list[str]:
    baseline = ["--baseline", str(path)] if recipe == "trace_diff" else []
    return [*baseline, "--input", str(path)]


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_rank_whose_times_add_up_to_centuries_is_refused(recipe, tmp_path, capsys):
    # 12,000 kernels of 10 days are 1.04e19 ns; 64 bits hold 9.2e18.
    path = long_kernels(tmp_path / "rank0.sqlite", 12_000, 10)
    words = [*inputs(recipe, path), "--output", str(tmp_path / "out"), "--mode", "none"]
    assert main([recipe, *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "error: " in lines[0]
    assert "rank0: damaged times (kernels last 120,000 days when added up)" in "".join(lines)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", a_few_recipes())
def test_a_few_such_kernels_are_counted_to_the_nanosecond(recipe, tmp_path):
    path = long_kernels(tmp_path / "rank0.sqlite", 20, 10)
    words = [*inputs(recipe, path), "--output", str(tmp_path / "out"), "--mode", "none", "--quiet"]
    assert main([recipe, *words]) == 0
    assert json.loads((tmp_path / "out" / "report.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize(("ranks_n", "refused"), [(31, False), (32, True)])
def test_ranks_that_add_up_to_more_are_refused_together(ranks_n, refused, tmp_path):
    path = long_kernels(tmp_path / "rank0.sqlite", 10, 1)
    options = resolved_options(load_manifest("tail_stats"), {})
    profiles = [ProfileInput(str(path), "rank0")]
    (outcome,) = map_profiles(profiles, recipe="tail_stats", options=options).profiles
    (rank,) = outcome.ranks
    (kernels,) = (row for row in rank.coverage if row.op == "kernel")
    most = replace(rank, coverage=(replace(kernels, total_ns=_MOST_OF_RANK_NS),))
    with pytest.raises(ProfileError, match="all ranks lasts") if refused else nullcontext():
        refuse_endless_run([most] * ranks_n)


times = st.one_of(
    st.integers(-(2**53), 2**53), st.sampled_from([NULL_INT, 2**63 - 1, -1, 0, 2**53])
)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=200))
def test_the_quick_sum_refuses_what_exact_integers_would(rows):
    start_ns, end_ns = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    exact = sum(
        end - start for start, end in rows if start > -(2**53) and end < 2**53 and end >= start
    )
    added_ns = _added_ns(Table({"start_ns": start_ns, "end_ns": end_ns}))
    near = abs(exact - _MOST_OF_RANK_NS) < _MOST_OF_RANK_NS // 1_000
    assert near or (added_ns >= _MOST_OF_RANK_NS) == (exact >= _MOST_OF_RANK_NS)
