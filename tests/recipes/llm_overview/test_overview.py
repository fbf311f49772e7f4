"""llm_overview: one read, the tables of single runs, and every finding accounted for."""

from __future__ import annotations

from collections import Counter

import pytest
from command_line import run
from effort import nightly_but
from rendered import record_of
from results import analyse, differences, read_report, read_results
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest

PARTS = load_manifest("llm_overview").recipes


@pytest.fixture(scope="module")
def demo(shared_runs):
    return shared_runs.ranks("demo")


@pytest.fixture(scope="module")
def result(demo, tmp_path_factory):
    out = tmp_path_factory.mktemp("overview") / "out"
    return analyse(out, demo / "after", recipe="llm_overview")


#: What a recipe by itself may judge otherwise: it knows less of the ranks, and has no replay. So
#: may its prices, and by these its severities and the order of its findings.
FIGURES_OF_RANKS = (
    "waiting_pct",
    "bound_ns",
    "more_pct",
    "late_ns",
    "chance",
    "blocks_n",
    "about_ns",
    "evidence",
    "reason",
)


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", nightly_but(PARTS, ["idle_gaps", "step_budget"]))
def test_each_recipe_has_the_tables_of_a_run_of_its_own_which_judges_alike(
    demo, result, recipe, tmp_path
):
    single = analyse(tmp_path / "single", demo / "after", recipe=recipe)
    alone, part = read_results(single), read_results(result / "parts" / recipe)
    findings, its_findings = (some.pop("findings").to_pylist() for some in (alone, part))
    verdicts, its_verdicts = (
        {"rank_verdicts": some.pop("rank_verdicts")} for some in (alone, part)
    )
    assert differences(alone, part) == []
    said, its_said = (Counter(one["rule"] for one in some) for some in (findings, its_findings))
    assert said == its_said
    assert differences(verdicts, its_verdicts, (*FIGURES_OF_RANKS, "verdict")) == []
    words, its_words = (
        some["rank_verdicts"]["verdict"].to_pylist() for some in (verdicts, its_verdicts)
    )
    assert all(word in (None, "late", its) for word, its in zip(words, its_words, strict=True))
    record, its = (read_report(folder) for folder in (single, result / "parts" / recipe))
    for some in (record, its):
        del some["report"]["findings"], some["report"]["answer"]
    assert record == its


@pytest.mark.slow
def test_nsight_systems_lists_tables_by_their_titles_and_recipes_by_their_folders(shared_runs):
    _, result = shared_runs.run("demo", "llm_overview")
    outputs = record_of(result)["Outputs"]
    assert outputs["opportunities.parquet"] == "What to fix"
    assert {f"parts/{recipe}" for recipe in PARTS} == {
        name for name in outputs if name.startswith("parts/")
    }
    assert all((result / name).exists() for name in outputs)
    assert len(set(outputs.values())) == len(outputs)
    part = record_of(result / "parts" / "idle_gaps")["Outputs"]
    assert part["gaps.parquet"] == "Longest gaps"


def test_a_recipe_that_is_not_there_is_one_line(demo, tmp_path):
    words = ["--only", "idle_gaps,nothing", "--output", tmp_path / "out"]
    ended = run(*words, "--input", demo / "after", recipe="llm_overview")
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert "--only: no recipe 'nothing'; there are: " in ended.errors[0]


@pytest.mark.slow
def test_profiles_without_gpu_work_are_not_said_to_be_in_order(tmp_path):
    TraceBuilder().nvtx("work", 0, 1_000).write_sqlite(tmp_path / "rank0.sqlite")
    out = analyse(tmp_path / "out", tmp_path / "rank0.sqlite", recipe="llm_overview")
    assert read_report(out)["report"]["answer"] == (
        "Nothing ran on a GPU. `files` says what was read."
    )
