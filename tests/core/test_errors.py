"""What crosses a process border comes back as it was sent."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from nsys_llm.core import errors
from nsys_llm.core.errors import ExitCode, NsysLlmError
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.range_choice import RangeChoice
from nsys_llm.profile.inputs import expand_inputs
from nsys_llm.run.guard import RunOutcome
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.trace.identity import RankEntry, number_ranks

RAISED = [error for name, error in vars(errors).items() if name.endswith("Error")]
DESIGNED = {
    "UsageError": 2,
    "OpenFilesError": 2,
    "ProfileError": 2,
    "OutputError": 2,
    "ManifestError": 4,
    "IntervalError": 4,
    "NsysLlmError": 4,
}
OPTIONS = {"base": False, "mangled": False, "nsys": None}


def round_trip(value):
    return pickle.loads(pickle.dumps(value))


def same(left, right):
    """Compare field by field: dataclasses that hold arrays have no usable equality."""
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, item.name), getattr(right, item.name)) for item in fields(left)
        )
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.fixture
def result(rank_set):
    """The outcome of two good reports and a broken one."""
    (rank_set / "rank2.sqlite").write_bytes(b"junk")
    inputs, _ = expand_inputs([str(rank_set)])
    return map_profiles(inputs, recipe="llm_hotspots", options=OPTIONS)


@pytest.mark.parametrize("kind", RAISED)
def test_every_error_pickles_with_message_and_exit_code(kind):
    error = kind("rank3.sqlite: not a report; give another.")
    error.__cause__ = OSError(13, "Permission denied")
    back = round_trip(error)
    assert type(back) is kind
    assert (back.message, str(back)) == (error.message, str(error))
    assert back.exit_code is error.exit_code


def test_every_error_has_the_exit_code_of_its_kind():
    assert {kind.__name__: int(kind.exit_code) for kind in RAISED} == DESIGNED


def test_every_error_is_one_of_ours():
    assert all(issubclass(kind, NsysLlmError) for kind in RAISED)
    # An error that is defined elsewhere would escape the two tests above.
    ours = {kind for kind in RAISED if kind.__base__ is NsysLlmError}
    assert set(NsysLlmError.__subclasses__()) == ours


@pytest.mark.parametrize("code", list(ExitCode))
def test_exit_codes_pickle_and_are_integers(code):
    assert round_trip(code) is code
    assert isinstance(code, int)


def test_what_a_worker_returns_pickles(result):
    back = round_trip(result)
    assert [report.reason is None for report in back.profiles] == [True, True, False]
    assert same(back, result)
    assert {type(rank).__name__ for report in back.profiles for rank in report.ranks} == {
        "RankOutcome"
    }


def test_results_merge_alike_before_and_after_a_journey(result):
    alone = merge_results([result], recipe="llm_hotspots")
    travelled = merge_results([round_trip(result)], recipe="llm_hotspots")
    assert same(alone, travelled)
    assert same(alone, result)


def test_ranks_and_their_entries_pickle(result):
    entries = [
        RankEntry(rank.key, report.label, report.facts, True)
        for report in result.profiles
        for rank in report.ranks
    ]
    assert round_trip(entries) == entries
    ranks = number_ranks(entries)
    assert round_trip(ranks) == ranks
    assert [rank.number for rank in round_trip(ranks)] == [0, 1]


@pytest.mark.parametrize(
    "value",
    [
        RunOutcome(ExitCode.INCOMPLETE, Path("out")),
        RunOutcome(ExitCode.BAD_INPUT, None),
        RangeChoice("step", "NCCL", 2),
        load_manifest("llm_hotspots"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_outcomes_choices_and_manifests_pickle(value):
    assert round_trip(value) == value


def test_the_inputs_that_are_sent_to_a_worker_pickle(rank_set):
    inputs, _ = expand_inputs([str(rank_set)])
    assert round_trip(inputs) == inputs


def test_comparing_field_by_field_sees_a_difference(result):
    # The helper above must not call everything the same.
    other = round_trip(result)
    other.partial.durations.count[0] += 1
    assert not same(other, result)
