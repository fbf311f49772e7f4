"""What a run knows of its profiles, put together once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.report.analysis import Analysis
from nsys_llm.report.run import Run, absent_ranks
from nsys_llm.run.worker import load_analysis, map_profiles, merge_results
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import ProfileOutcome, RankOutcome

RECIPES = Path(__file__).parents[2] / "recipes"
OPTIONS = {"ranks": None, "world_size": None}


def profile(number, *notes, side="", reason=None):
    path = f"/in/rank{number}.sqlite"
    ranks = (RankOutcome(RankKey(path, 7, side), (0,), (), notes),)
    failed = {"ranks": (), "reason": reason} if reason else {"ranks": ranks}
    return ProfileOutcome(path, f"rank{number}", None, side=side, **failed)


def rank(number, side="", source="file_name"):
    return Rank(RankKey(f"/in/rank{number}.sqlite", 7, side), number, "f", source, None)


def run_of(*profiles, ranks=(), **options):
    manifest = load_manifest("trace_diff")
    analysis = load_analysis("trace_diff")
    return Run(manifest, analysis, {**OPTIONS, **options}, profiles, None, tuple(ranks))


def test_a_note_that_several_profiles_share_is_said_once():
    run = run_of(profile(0, "a"), profile(1, "a", "b"), profile(2, "a"))
    assert run.notes == (("rank0 and 2 more", "a"), ("rank1", "b"))
    assert run.notes is run.notes


def test_one_side_has_its_own_profiles_ranks_and_notes():
    run = run_of(
        profile(0, "a", side="baseline"),
        profile(1, side="input", reason="broken"),
        ranks=[rank(0, "baseline"), rank(1, "input")],
        world_size=2,
    )
    assert run.absent == (("baseline", 1), ("input", 0))
    baseline, other = run.side("baseline"), run.side("input")
    assert [outcome.label for outcome in baseline.profiles] == ["rank0"]
    assert (baseline.notes, other.notes) == ((("rank0", "a"),), ())
    assert (baseline.failed, other.failed) == ((), other.profiles)
    assert (baseline.absent, other.absent) == ((("baseline", 1),), (("input", 0),))


@pytest.mark.parametrize(
    ("ranks", "options", "absent"),
    [
        ([rank(0), rank(2)], {"world_size": 4}, [1, 3]),
        ([rank(0), rank(2)], {"world_size": None}, []),
        ([rank(0), rank(2)], {"world_size": 4, "ranks": [2, 7]}, [7]),
        # Beside ranks with a number of the job, an index is no rank.
        ([rank(0), rank(1, source="index")], {"world_size": 2}, [1]),
        ([rank(0, source="index"), rank(1, source="index")], {"world_size": 2}, []),
    ],
)
def test_ranks_that_were_asked_for_and_are_not_there(ranks, options, absent):
    assert absent_ranks(ranks, {**OPTIONS, **options}) == [("", number) for number in absent]


@pytest.mark.parametrize("recipe", recipe_names())
def test_an_analysis_is_wiring_only(recipe):
    document, *statements = ast.parse((RECIPES / recipe / "analysis.py").read_text("utf-8")).body
    assert isinstance(document, ast.Expr)
    assert "Method." in document.value.value
    assert "Limits." in document.value.value
    *imports, wiring = statements
    assert {type(node) for node in imports} == {ast.ImportFrom}
    assert isinstance(wiring, ast.AnnAssign)
    assert wiring.target.id == "ANALYSIS"
    analysis = load_analysis(recipe)
    assert isinstance(analysis, Analysis)
    # What is wired stands in the rooms that a reader would look into.
    place = f"nsys_llm.recipes.{recipe}"
    assert analysis.map_rank.__module__.startswith(f"{place}.per_rank.")
    assert analysis.merge.__module__ == analysis.partial.__module__ == f"{place}.partials"
    assert analysis.tabulate.__module__.startswith(f"{place}.tables.")
    for function in (analysis.findings, analysis.answer, analysis.caveats):
        assert function.__module__.startswith(f"{place}.findings.")


def test_an_analysis_is_loaded_once_whatever_the_number_of_profiles(tmp_path, monkeypatch):
    loaded = []

    def counting(name):
        loaded.append(name)
        return load_analysis(name)

    monkeypatch.setattr("nsys_llm.run.worker.load_analysis", counting)
    profiles = [ProfileInput(str(tmp_path / f"rank{n}.sqlite"), f"rank{n}") for n in range(5)]
    result = map_profiles(profiles, recipe="idle_gaps", options={})
    assert (loaded, len(result.profiles)) == (["idle_gaps"], 5)
    merge_results([result, result, result], recipe="idle_gaps")
    assert loaded == ["idle_gaps"] * 2
