"""llm_overview: one read, the tables of single runs, and every finding accounted for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest
from command_line import run
from effort import nightly_but
from machine.parts import GEMM, ranked
from machine.profile_writer import write_profiles
from machine.program import Program, Sync
from machine.simulation import simulate
from quick_run import quick
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


def working_between_steps(late_ns, *, rank=2, steps_n=8):
    """Return a job with as much work before its steps as in them; one rank is late in all of it."""

    def body(make, at, step):
        late = [make.copy("DtoD", late_ns, stream=7)] if at == rank else []
        layers = [[make.kernel(GEMM, 30_000), make.reduce(800)] for _ in range(4)]
        return [*late, *chain(*layers), Sync("stream")]

    before = ranked(4, steps_n, body, 0, stepped=False)
    steps = ranked(4, steps_n, body, 1)
    pairs = zip(before.ranks, steps.ranks, strict=True)
    return Program(
        tuple(
            replace(then, threads=((*first.threads[0], *then.threads[0]),)) for first, then in pairs
        )
    )


@pytest.mark.nightly
def test_a_rank_that_is_late_outside_of_steps_too_is_priced_in_its_steps(tmp_path):
    outcome = simulate(working_between_steps(500_000))
    write_profiles(outcome, tmp_path)
    healed_ns = simulate(working_between_steps(1)).wall_ns
    in_steps_ns = (outcome.wall_ns - healed_ns) / 2
    tables = quick("llm_overview", tmp_path, "--step", "re:ProfilerStep")
    gained = tables["opportunities"].set_index("cause_rank").loc[2]
    assert gained["gain_ns"] == pytest.approx(in_steps_ns, rel=0.05)
