"""How runs end: the line, the exit code, and what a second signal may not do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode
from nsys_llm.run.guard import RunOutcome, run_guarded


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyboardInterrupt(), "error: interrupted; the results are in out."),
        (MemoryError(), "error: needs more memory than is available; the results are in out; "),
        (TimeoutError("no answer"), "(TimeoutError: no answer); the results are in out; please"),
    ],
)
def test_what_goes_wrong_after_the_results_stand_says_where_they_are(capsys, error, line):
    console = Console()

    def run() -> RunOutcome:
        console.results = Path("out")
        raise error

    run_guarded(console, run)
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_interrupt_the_removal_of_what_was_made(second):
    removed = []

    def run() -> RunOutcome:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), second)
            removed.append("all")
        return RunOutcome(ExitCode.DONE, None)

    terminates = signal.getsignal(signal.SIGTERM)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as stopped:
            run_guarded(Console(), run)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (stopped.value.code, removed) == (143, ["all"])
    assert signal.getsignal(signal.SIGTERM) is terminates


def test_a_want_of_memory_is_bad_input_wherever_it_shows(capsys):
    def run() -> RunOutcome:
        raise MemoryError

    assert run_guarded(Console(), run).exit_code == 2
    assert "needs more memory than is available; nothing was written" in capsys.readouterr().err
