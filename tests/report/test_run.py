"""What a run knows of its profiles, put together once."""

from __future__ import annotations

import pytest

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.run import Run, absent_ranks
from nsys_llm.run.worker import load_analysis
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import ProfileOutcome, RankOutcome

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
    return Run(manifest, analysis, {**OPTIONS, **options}, profiles, {}, tuple(ranks))


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


@pytest.mark.parametrize(
    ("numbers", "source", "note"),
    [
        ((0, 1, 3), "env:RANK", "no profile of rank 2 was given"),
        ((4, 9), "env:RANK", "no profile of ranks 5-8 was given"),
        ((4,), "env:RANK", None),
        ((0, 1, 3), "file_name", None),  # numbers of files may be anything
    ],
)
def test_a_gap_in_the_numbers_of_a_launcher_is_said(numbers, source, note):
    ranks = [rank(number, source=source) for number in numbers]
    notes = [
        text.partition(";")[0] for _, text in run_of(*map(profile, numbers), ranks=ranks).notes
    ]
    assert notes == [note] * (note is not None)
    failed = run_of(*map(profile, numbers), profile(2, reason="damaged"), ranks=ranks)
    assert failed.notes == run_of(ranks=ranks, world_size=10).notes == ()
