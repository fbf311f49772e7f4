"""What is added up in blocks gives the same numbers however small the blocks are."""

from __future__ import annotations

from importlib import import_module

import pandas as pd
import pytest
from quick_run import quick

from nsys_llm.testing.demo import write_demo

BLOCKS = (
    "facts.device.idle_split",
    "critical_path.job.sums",
    "numeric.blocks",
    "numeric.distributions",
)


@pytest.fixture(scope="module")
def rank(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo"), scale=0.02).after[0]


@pytest.mark.nightly("tail_stats", "idle_gaps")
@pytest.mark.parametrize(
    "recipe", ["llm_hotspots", "tail_stats", "idle_gaps", "nvtx_phase_attribution", "step_budget"]
)
def test_tables_are_the_same_in_blocks_of_any_size(rank, monkeypatch, recipe):
    whole = quick(recipe, rank)
    for module in BLOCKS:
        monkeypatch.setattr(import_module(f"nsys_llm.{module}"), "_BLOCK", 37)
    monkeypatch.setattr(import_module("nsys_llm.numeric.blocks"), "_SMALL_BLOCK", 37)
    monkeypatch.setattr(import_module("nsys_llm.critical_path.path.blocks"), "_NODES", 37)
    monkeypatch.setattr(import_module("nsys_llm.numeric.distributions"), "_FEWEST_REPEATS", 1)
    path = "nsys_llm.facts.phases.phases.few_codes"
    monkeypatch.setattr(path, lambda codes_n, rows_n: False)
    in_blocks = quick(recipe, rank)
    assert in_blocks.keys() == whole.keys()
    for name, table in whole.items():
        pd.testing.assert_frame_equal(in_blocks[name], table)
