"""Sides: what was typed for which run, and how profiles and ranks of two runs are told apart."""

import pytest
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.profile.inputs import expand_sides
from nsys_llm.trace.outcomes import MapResult, ProfileOutcome
from nsys_llm.trace.rank_sets import (
    entries_by_side,
    number_sides,
    read_rank_maps,
    unused_maps,
    wanted_ranks,
)


def given(inputs, baseline=None, baselines=None):
    return {"input": inputs, "baseline": baseline, "baselines": baselines}


@pytest.mark.parametrize(
    ("options", "by_side"),
    [
        ({"input": ["a", "b", "c"]}, {"": ["a", "b", "c"]}),
        (given(["c"], ["a", "b"]), {"baseline": ["a", "b"], "input": ["c"]}),
        (given(["old", "new"]), {"baseline": ["old"], "input": ["new"]}),
        (
            given(["new"], ["old"], ["again", "and again"]),
            {
                "baseline": ["old"],
                "input": ["new"],
                "baseline-1": ["again"],
                "baseline-2": ["and again"],
            },
        ),
    ],
)
def test_what_was_typed_belongs_to_sides(options, by_side):
    assert [*entries_by_side(options).items()] == [*by_side.items()]


@pytest.mark.parametrize("inputs", [["a"], ["a", "b", "c"]])
def test_any_other_number_of_entries_needs_a_baseline(inputs):
    with pytest.raises(UsageError, match=rf"give --baseline and --input.* {len(inputs)}\."):
        entries_by_side(given(inputs))


@pytest.fixture
def runs(tmp_path):
    """Two runs of two ranks, in folders before and after."""
    for run in ("before", "after"):
        (tmp_path / run).mkdir()
        for rank in range(2):
            trace = TraceBuilder().kernel("k", start_ns=1, duration_ns=2)
            trace.write_sqlite(tmp_path / run / f"rank{rank}.sqlite")
    return tmp_path


def sides(runs, baseline="before", after="after"):
    return {"baseline": [str(runs / baseline)], "input": [str(runs / after)]}


def test_profiles_of_two_sides_are_told_apart_by_their_folders(runs):
    inputs, notes = expand_sides(sides(runs))
    assert notes == []
    assert [(profile.side, profile.label) for profile in inputs] == [
        ("baseline", "before/rank0"),
        ("baseline", "before/rank1"),
        ("input", "after/rank0"),
        ("input", "after/rank1"),
    ]


def test_the_same_profile_may_stand_on_both_sides(runs):
    inputs, notes = expand_sides(sides(runs, after="before"))
    assert notes == []
    assert [profile.label for profile in inputs] == [
        "baseline:rank0",
        "baseline:rank1",
        "input:rank0",
        "input:rank1",
    ]


def test_within_a_side_a_profile_is_read_once_and_the_side_is_told(runs):
    twice = [str(runs / "after" / "rank0.sqlite")] * 2
    inputs, notes = expand_sides({**sides(runs), "input": twice})
    assert len(inputs) == 3
    assert notes == ["input: rank0.sqlite: given twice, read once."]


def test_a_fault_of_a_side_names_it(runs):
    with pytest.raises(UsageError, match=r"^baseline: .*nowhere: does not exist"):
        expand_sides(sides(runs, baseline="nowhere"))


def outcomes(inputs):
    return MapResult(
        tuple(
            ProfileOutcome(profile.path, profile.label, None, side=profile.side)
            for profile in inputs
        ),
        {},
    )


def test_a_rank_map_numbers_every_side(runs):
    inputs, _ = expand_sides(sides(runs))
    rows = [f"{profile.label},{7 - index % 2}" for index, profile in enumerate(inputs)]
    text = "\n".join(["file,rank", *rows])
    maps = read_rank_maps(("map.csv", text), inputs)
    ranks = number_sides(outcomes(inputs), maps)
    assert [(rank.file, rank.number) for rank in ranks][:2] == [
        ("6:before/rank1", 6),
        ("7:before/rank0", 7),
    ]
    assert unused_maps(ranks, maps) == []


def test_ranks_are_numbered_and_chosen_within_each_side(runs):
    inputs, _ = expand_sides(sides(runs))
    ranks = number_sides(outcomes(inputs), {})
    assert [(rank.key.side, rank.number) for rank in ranks] == [
        ("baseline", 0),
        ("baseline", 1),
        ("input", 0),
        ("input", 1),
    ]
    chosen = wanted_ranks(ranks, (1,))
    assert [rank.key.side for rank in chosen if rank.number == 1] == ["baseline", "input"]
    with pytest.raises(UsageError, match=r"^input: --ranks: none .*there are 0"):
        wanted_ranks([rank for rank in ranks if rank.key.side != "input" or not rank.number], (1,))
