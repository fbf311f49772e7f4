"""What ends with a run that is stopped: the latest first, and whatever begins too late."""

from __future__ import annotations

import threading

import pytest

from nsys_llm.core import stopping
from nsys_llm.core.stopping import end_everything, ended_with_the_run


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


def test_what_cannot_be_ended_keeps_nothing_else():
    ended = []

    def fails() -> None:
        raise OSError("no such process")

    with ended_with_the_run(lambda: ended.append("folder")), ended_with_the_run(fails):
        end_everything()
    assert ended == ["folder"]


def test_what_begins_after_the_end_is_ended_and_goes_no_further():
    ended, entered = threading.Event(), threading.Event()
    end_everything()

    def late() -> None:
        with ended_with_the_run(ended.set):
            entered.set()

    threading.Thread(target=late, daemon=True).start()
    assert ended.wait(10)
    assert not entered.wait(0.1)
