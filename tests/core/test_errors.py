"""What crosses a process border comes back as it was sent."""

import pickle

import pytest

from nsys_llm.core import errors
from nsys_llm.core.errors import NsysLlmError

RAISED = [error for name, error in vars(errors).items() if name.endswith("Error")]


@pytest.mark.parametrize("kind", RAISED)
def test_every_error_pickles_with_message_and_exit_code(kind):
    error = kind("rank3.sqlite: not a report; give another.")
    error.__cause__ = OSError(13, "Permission denied")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (back.message, str(back)) == (error.message, str(error))
    assert back.exit_code is error.exit_code


def test_every_error_is_one_of_ours():
    assert all(issubclass(kind, NsysLlmError) for kind in RAISED)
    # An error that is defined elsewhere would escape the two tests above.
    ours = {kind for kind in RAISED if kind.__base__ is NsysLlmError}
    assert set(NsysLlmError.__subclasses__()) == ours
