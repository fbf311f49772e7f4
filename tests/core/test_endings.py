"""What ends with a run that is stopped: the latest first, and whatever begins too late."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest

from nsys_llm.core import stopping
from nsys_llm.core.stopping import (
    end_everything,
    ended_by_signals,
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


def test_a_second_signal_does_not_keep_a_forked_worker_from_ending(tmp_path):
    def slowly() -> None:
        (tmp_path / "ending").touch()
        time.sleep(0.3)
        (tmp_path / "ended").touch()

    with ended_by_signals(print):
        if not (child := os.fork()):
            with ended_with_the_run((tmp_path / "first").touch), ended_with_the_run(slowly):
                (tmp_path / "begun").touch()
                time.sleep(60)
            os._exit(1)
        for name, number in (("begun", signal.SIGTERM), ("ending", signal.SIGTERM)):
            while not (tmp_path / name).exists():
                time.sleep(0.01)
            os.kill(child, number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    assert (tmp_path / "ended").exists()
    assert (tmp_path / "first").exists()


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


def test_a_signal_for_a_forked_worker_ends_that_alone_and_only_what_it_began(tmp_path):
    """It is sent before the worker has run anything of its own."""
    children = []
    with ended_by_signals(print), ended_with_the_run((tmp_path / "of_parent").touch):
        for _ in range(20):
            if not (child := os.fork()):
                try:
                    with ended_with_the_run((tmp_path / f"of_{os.getpid()}").touch):
                        (tmp_path / f"begun_{os.getpid()}").touch()
                        time.sleep(60)
                finally:
                    os._exit(1)
            os.kill(child, signal.SIGTERM)
            children.append(child)
        codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
        time.sleep(0.2)  # the thread that would end this process
    assert codes == {143}
    assert not (tmp_path / "of_parent").exists()
    begun = [file.name.removeprefix("begun_") for file in tmp_path.glob("begun_*")]
    assert all((tmp_path / f"of_{child}").exists() for child in begun)
