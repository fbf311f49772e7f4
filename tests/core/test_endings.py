"""What ends with a run that is stopped: the latest first, and whatever begins too late."""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from nsys_llm.core import stopping
from nsys_llm.core.stopping import (
    end_everything,
    ended_with_the_run,
    program_of_the_run,
)


@pytest.fixture(autouse=True)
def _not_stopped(monkeypatch):
    monkeypatch.setattr(stopping, "_STOPPED", threading.Event())


def test_what_began_last_ends_first_and_what_is_done_is_left():
    ended = []
    with ended_with_the_run(lambda: ended.append("folder")):
        with ended_with_the_run(lambda: ended.append("done")):
            pass
        with ended_with_the_run(lambda: ended.append("program")):
            end_everything()
    assert ended == ["program", "folder"]


def test_what_cannot_be_ended_keeps_nothing_else_and_says_nothing(capfd):
    ended = []

    def fails() -> None:
        raise ValueError("process object is closed")

    with ended_with_the_run(lambda: ended.append("folder")), ended_with_the_run(fails):
        end_everything()
    assert ended == ["folder"]
    assert capfd.readouterr().err == ""


def test_what_begins_after_the_end_is_ended_and_goes_no_further():
    ended, entered = threading.Event(), threading.Event()
    end_everything()

    def late() -> None:
        with ended_with_the_run(ended.set):
            entered.set()

    threading.Thread(target=late, daemon=True).start()
    assert ended.wait(10)
    assert not entered.wait(0.1)


def endless() -> subprocess.Popen[str]:
    return subprocess.Popen(["sleep", "600"], text=True)


def test_a_program_ends_with_its_block():
    with program_of_the_run(endless) as program:
        assert program.poll() is None
    assert program.returncode == -signal.SIGKILL


def test_a_program_ends_with_the_run():
    with program_of_the_run(endless) as program:
        end_everything()
        assert program.wait(10) == -signal.SIGKILL


def test_no_program_starts_after_the_end():
    started = threading.Event()
    end_everything()

    def late() -> None:
        with program_of_the_run(lambda: started.set() or endless()):
            pass

    threading.Thread(target=late, daemon=True).start()
    assert not started.wait(0.3)
