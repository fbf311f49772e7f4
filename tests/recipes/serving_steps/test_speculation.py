"""Whether drafts pay: servers whose drafts cost and bring what is planted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from effort import at_night
from quick_run import quick
from results import plain
from serving_plants import Server

from nsys_llm.recipes.serving_steps.analysis import ANALYSIS

#: Drafts take a third of a step; three are verified at once.
DEAR = Server("vllm_sums", width=4, accept=0.05, draft_ns=90_000, steps_n=260, output=(60, 200))
KINDS = {
    "both": replace(DEAR, plain=0.4),
    "verifies only": DEAR,
    "sglang": replace(DEAR, engine="sglang_sums"),
}


def of(server, seed, folder):
    tables = quick("serving_steps", server.run(seed).write(folder / "rank0.sqlite"))
    return tables, tables["speculation"].iloc[0]


def lost(tables):
    return [row for row in ANALYSIS.findings(tables) if row.rule == "drafts_lose"]


@pytest.mark.parametrize(
    ("kind", "accept", "verdict"),
    [
        ("both", 0.05, "loses"),
        ("both", 0.9, "pays"),
        ("sglang", 0.05, "loses"),
        # No step without drafts, and the drafts run inside of the others: nothing is known.
        ("verifies only", 0.05, None),
        *at_night(("sglang", 0.9, "pays"), ("verifies only", 0.9, None)),
    ],
)
def test_the_verdict_is_that_of_the_plant_or_none(kind, accept, verdict, tmp_path):
    tables, _ = of(replace(KINDS[kind], accept=accept), 3, tmp_path)
    assert plain(tables["speculation"])["verdict"] == [verdict]
    assert bool(lost(tables)) == (verdict == "loses")
    assert (f"speculation {verdict}" in ANALYSIS.answer(tables)) == (verdict is not None)


def test_without_keys_only_what_is_needed_is_known(tmp_path):
    tables, row = of(replace(KINDS["both"], engine="vllm"), 2, tmp_path)
    assert tables["speculation"]["accepted"].isna().all()
    assert row["needed"] > 0.2
    assert not lost(tables)
    assert "accepted not known, needed" in ANALYSIS.answer(tables)
