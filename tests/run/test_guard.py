"""How runs end: the line, the exit code, and what a second signal may not do."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from nsys_llm.core.console import Console
from nsys_llm.core.stopping import ended_with_the_run
from nsys_llm.run.guard import RunOutcome, run_guarded
from nsys_llm.run.publish import OutputFolder


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "error: needs more memory than is available; the results are in out; "),
        (
            ImportError("libx.so: failed to map segment from shared object"),
            "needs more memory than",
        ),
        (RuntimeError("can't start new thread"), "error: needs more memory than is available; "),
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


def test_signals_are_handled_as_before_after_a_run():
    before = signal.getsignal(signal.SIGTERM)
    threads_n = threading.active_count()

    def run() -> RunOutcome:
        assert signal.getsignal(signal.SIGTERM) is not before
        raise MemoryError

    for _ in range(3):
        run_guarded(Console(), run)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
    until_s = time.monotonic() + 10
    while threading.active_count() > threads_n and time.monotonic() < until_s:
        time.sleep(0.01)
    assert threading.active_count() <= threads_n


def ended(run, capfd) -> tuple[int, str]:
    """Return the exit code and the words of a child that a run ends."""
    if not (child := os.fork()):
        try:
            run_guarded(console := Console(), lambda: run(console))
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, capfd.readouterr().err


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGINT, signal.SIGINT),
    ],
)
def test_a_second_signal_does_not_interrupt_the_removal_of_what_was_made(
    tmp_path, capfd, first, second
):
    def remove() -> None:
        time.sleep(0.2)
        (tmp_path / "removed").touch()

    def run(console: Console) -> NoReturn:
        with ended_with_the_run(remove):
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), second)
            os._exit(1)

    interrupted = "error: interrupted; nothing was written.\n" * (first == signal.SIGINT)
    assert ended(run, capfd) == (128 + first, interrupted)
    assert (tmp_path / "removed").exists()


def test_a_signal_that_the_process_ignores_stays_ignored(capfd):
    def run(console: Console) -> NoReturn:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        os._exit(7)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ended(run, capfd) == (7, "")
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_interrupts_a_run_whose_results_stand_hears_where(tmp_path, capfd):
    def run(console: Console) -> None:
        with OutputFolder(str(tmp_path / "out"), "idle_gaps", replace=False) as folder:
            folder.on_published = partial(setattr, console, "results")
            folder.publish({})
            os.kill(os.getpid(), signal.SIGINT)

    line = f"error: interrupted; the results are in {tmp_path / 'out'}.\n"
    assert ended(run, capfd) == (130, line)
    assert (tmp_path / "out").is_dir()


def test_a_want_of_memory_is_bad_input_wherever_it_shows(capsys):
    def run() -> RunOutcome:
        raise MemoryError

    assert run_guarded(Console(), run).exit_code == 2
    assert "needs more memory than is available; nothing was written" in capsys.readouterr().err
