"""What must hold of prices, causes and the one order: on real traces, the demo and planted jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from judgement.truth import KINDS, planted
from machine import simulate, write_profiles
from quick_run import quick_part

from nsys_llm.recipes.llm_overview.tables.joins import JOINS
from nsys_llm.run.api import load
from nsys_llm.taxonomy.idle_causes import HOST_CAUSES

LEAST_PCT = 1.0
#: Of the details of a finding; the rest is in tables.
MOST_WORDS = 40
#: Of each kind one seed.
CASES = [(kind, seed) for seed, kind in enumerate(KINDS)]


def checked(overview):
    """Fail unless an overview's items hold what is promised of them."""
    tables = overview.tables
    items, wall = tables["opportunities"], tables["wall"]
    findings = overview.report.findings
    parts = {name: part.tables for name, part in overview.parts.items()}
    for row in items.to_dict("records"):
        check_item(row, wall, parts)
    in_order(items)
    listed = [finding.title for finding in findings if finding.kind == "performance"]
    assert listed == items["title"].tolist()
    causes = items[["cause", "cause_rank", "cause_detail"]].copy()
    # What a detail says of a rank or a host only describes it.
    named = causes["cause"].isin(["kernels", "copies", "wait", "place"])
    causes.loc[~named, "cause_detail"] = None
    assert not causes.duplicated().any(), causes
    for part in overview.parts.values():
        rows = part.tables["findings"]
        rows = rows[rows["kind"] == "performance"]
        in_order(rows)
        for details in (*rows["details"], *items["details"]):
            assert len(re.sub("`[^`]*`", "name", details).split()) <= MOST_WORDS, details
    return tables


def in_order(rows):
    """Fail unless rows stand as the contract says, worked out of their columns again."""
    key = [
        (
            row["severity"] == "tail",
            -(0.0 if pd.isna(row["gain_pct"]) else row["gain_pct"])
            / (2 if pd.isna(row["about_basis"]) else 1),
            0.0 if pd.isna(row["bound_pct"]) else -row["bound_pct"],
        )
        for row in rows.to_dict("records")
    ]
    assert key == sorted(key)


def check_item(row, wall, parts):
    """Fail unless an item is priced within its bound and its GPU, and is worth a line."""
    gpu = wall[(wall["rank"] == row["rank"]) & (wall["device_id"] == row["device_id"])]
    room_ns = gpu.loc[gpu["wall_class"].isin(row["wall_classes"].split(", ")), "time_ns"].sum()
    assert 0 <= row["gain_ns"] <= room_ns <= row["span_ns"], row["title"]
    bound_ns = None if pd.isna(row["bound_ns"]) else row["bound_ns"]
    basis = None if pd.isna(row["about_basis"]) else row["about_basis"]
    assert bound_ns is None or row["gain_ns"] <= bound_ns <= room_ns, row["title"]
    assert basis is not None or row["gain_ns"] == bound_ns
    assert row["gain_pct"] == pytest.approx(100 * row["gain_ns"] / row["span_ns"])
    rare = row["severity"] == "tail" and row["gain_tail_pct"] >= 10 and basis != "replay"
    assert row["gain_pct"] >= LEAST_PCT or rare, row["title"]
    if row["cause"] == "host":
        idle = gpu[(gpu["wall_class"] == "idle") & gpu["detail"].isin(HOST_CAUSES)]
        waited = parts["tail_stats"]["rank_verdicts"]["about_ns"].fillna(0).sum()
        assert row["gain_ns"] <= idle["time_ns"].sum() + waited
    if basis == "replay" and row["cause"] not in ("kernels", "rank"):
        replays = parts["step_budget"]["what_if"].set_index("change")
        text = {"host": "host=0", "transfer": "transfer=0.5"}.get(row["cause"])
        text = f"wait:{row['cause_detail']}" if row["cause"] == "wait" else text
        assert row["gain_pct"] <= replays.loc[text, "gain_pct"] * 1.1 + 0.1


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_items_of_planted_jobs(tmp_path, kind, seed):
    write_profiles(simulate(planted(kind, seed)[0]), tmp_path)
    checked(quick_part("llm_overview", tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(300))
def test_items_of_random_jobs(tmp_path, seed):
    kind = Random(seed).choice(sorted(KINDS))
    write_profiles(simulate(planted(kind, 1000 + seed)[0]), tmp_path)
    checked(quick_part("llm_overview", tmp_path))


@pytest.fixture(scope="module")
def demo(shared_runs):
    return quick_part("llm_overview", shared_runs.ranks("demo") / "baseline")


def test_how_slow_a_rank_is_reads_alike_in_all_recipes(demo):
    matches = [
        re.search(r"GPU is slow: compute ([\d.]+ %) longer", finding.title)
        for part in demo.parts.values()
        for finding in part.report.findings
    ]
    percents = [match[1] for match in matches if match]
    # comm_stats writes of stages alone.
    assert len(percents) == len(demo.parts) - 1
    assert len(set(percents)) == 1


def test_items_of_the_demo(demo):
    overview = demo
    checked(overview)
    # A replay, which step_budget alone has, counts and gains less than the others wait: a rank
    # gains as much in a recipe's own report.
    items = overview.tables["opportunities"]
    (rank,) = items[items["cause"] == "rank"].to_dict("records")
    made = {
        name: finding.price
        for name, part in overview.parts.items()
        for finding in part.report.findings
        if finding.cause and finding.cause.kind == "rank"
    }
    assert len(made) > 3
    assert rank["about_basis"] == "replay"
    assert {price.gain_ns for price in made.values()} == {rank["gain_ns"]}


@pytest.mark.nightly("h100_mfu/before.sqlite")
@pytest.mark.parametrize("name", ["h100_mfu/before.sqlite", "public/training_rtx3070ti.sqlite"])
def test_items_of_real_traces(traces, name):
    checked(quick_part("llm_overview", traces / name))


def test_one_order_everywhere(shared_runs):
    """Terminal, page of Markdown, tables, record, first sentence and `show` list alike."""
    outcome, folder = shared_runs.run("demo", "llm_overview")
    items = pd.read_parquet(folder / "opportunities.parquet")
    titles = [title.replace("`", "") for title in items["title"]]
    findings = pd.read_parquet(folder / "findings.parquet")
    findings = findings[findings["kind"] == "performance"]
    record = json.loads(Path(folder, "report.json").read_text("utf-8"))
    shown = [
        item["title"] for item in record["report"]["findings"] if item["kind"] == "performance"
    ]
    page = Path(folder, "report.md").read_text("utf-8").replace("`", "")
    assert findings["title"].tolist() == shown == items["title"].tolist()
    assert titles[0] in load(folder).answer.replace("`", "")
    screen = " ".join(" ".join(outcome.printed).split())
    for text in (page[page.index("## Findings") :], screen):
        places = [text.find(title[:20]) for title in titles]
        there = [place for place in places if place >= 0]
        assert there
        assert there == sorted(there)


def test_what_is_part_of_what_is_little_and_in_no_circle():
    assert len(JOINS) <= 15
    # A row joins in its turn: what an earlier row left is never part of a later row's part.
    for earlier, join in enumerate(JOINS):
        for later in JOINS[earlier + 1 :]:
            both = join.part in later.wholes and later.part in join.wholes
            assert not both or (join.part, later.part) in {("wait", "host"), ("rank", "experts")}
