"""What crosses a process border comes back as it was sent."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from nsys_llm.core import errors
from nsys_llm.core.errors import NsysLlmError
from nsys_llm.profile.inputs import expand_inputs
from nsys_llm.run.worker import map_profiles

RAISED = [error for name, error in vars(errors).items() if name.endswith("Error")]
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


def test_every_error_is_one_of_ours():
    assert all(issubclass(kind, NsysLlmError) for kind in RAISED)
    # An error that is defined elsewhere would escape the two tests above.
    ours = {kind for kind in RAISED if kind.__base__ is NsysLlmError}
    assert set(NsysLlmError.__subclasses__()) == ours


def test_what_a_worker_returns_pickles(result):
    back = round_trip(result)
    assert [report.reason is None for report in back.profiles] == [True, True, False]
    assert same(back, result)
    assert {type(rank).__name__ for report in back.profiles for rank in report.ranks} == {
        "RankOutcome"
    }
