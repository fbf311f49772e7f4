"""The watch over the workers of a cluster, without a cluster: what it says, cancels and raises."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from dask import config

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.run import dask_workers
from nsys_llm.run.dask_errors import dask_muted, refuse_other_versions
from nsys_llm.run.dask_workers import NO_WORKERS_VARIABLE, WorkerWatch, seconds_without_workers

SETTING = "distributed.scheduler.no-workers-timeout"


class Client:
    """A cluster whose workers are gone, or come when asked for the fourth time."""

    status = "running"

    def __init__(self, comes_back: bool) -> None:
        self.asked_n = 0
        self.comes_back = comes_back

    def nthreads(self):
        self.asked_n += 1
        return {"tcp://node7:1": 2} if self.comes_back and self.asked_n > 3 else {}


class Task:
    """A future."""

    def __init__(self) -> None:
        self.given_up = threading.Event()

    def release(self):
        self.given_up.set()


class NoWorkerError(Exception):
    """As Dask's scheduler raises it."""


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(dask_workers, "_SECONDS_BETWEEN_LOOKS", 0.02)
    monkeypatch.setattr(dask_workers, "_SECONDS_UNTIL_NOTE", 0.03)


def test_tasks_are_given_up_after_a_note_and_the_reason_is_given():
    client, task, notes = Client(comes_back=False), Task(), []

    def waited_for() -> None:
        with WorkerWatch(client, notes.append) as watch:
            watch.add([task])
            assert task.given_up.wait(timeout=30)
            raise RuntimeError("cancelled")

    expected = r"no Dask worker was left, and none came within 0\.2 s"
    with config.set({SETTING: "200ms"}), pytest.raises(UsageError, match=expected):
        waited_for()
    assert notes == ["no Dask worker is left; waiting 0.2 s for others"]


def test_workers_that_come_back_let_the_run_go_on():
    client, task = Client(comes_back=True), Task()
    with config.set({SETTING: "20s"}), WorkerWatch(client, print) as watch:
        watch.add([task])
        until_s = time.monotonic() + 30
        while client.asked_n < 6:
            assert time.monotonic() < until_s
            time.sleep(0.01)
    assert not task.given_up.is_set()


def test_what_the_scheduler_drops_for_want_of_workers_has_the_same_reason():
    with (
        pytest.raises(UsageError, match="no Dask worker was left"),
        WorkerWatch(Client(comes_back=False), print),
    ):
        raise NoWorkerError


def test_another_error_stays_what_it_is():
    with pytest.raises(OSError, match="full"), WorkerWatch(Client(comes_back=False), print):
        raise OSError("full")


def test_a_worker_that_dies_when_asked_for_its_version_is_not_another_version():
    class Asked:
        def run(self, _function, _package, on_error):
            assert on_error == "return"
            return {"tcp://node7:1": OSError("connection closed"), "tcp://node7:2": __version__}

    refuse_other_versions(Asked())


@pytest.mark.parametrize(
    ("given", "expected_s"), [(None, 60), ("5 minutes", 300), ("1500ms", 1.5), (7, 7)]
)
def test_dasks_setting_governs_the_wait(given, expected_s):
    with config.set({SETTING: given}):
        assert seconds_without_workers() == expected_s


def test_a_setting_that_is_no_time_is_refused():
    with config.set({SETTING: "soon"}), pytest.raises(UsageError, match=NO_WORKERS_VARIABLE):
        seconds_without_workers()


def test_connections_that_end_with_the_run_are_not_told():
    logger = logging.getLogger("distributed.batched")
    before = logging.getLogger("distributed").level
    with dask_muted():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logging.getLogger("distributed").level in (before, logging.INFO)
    assert logger.isEnabledFor(logging.ERROR)
