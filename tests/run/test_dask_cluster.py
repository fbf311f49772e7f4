"""The client of a Dask cluster: interrupts and terminations of one that starts, works or ends."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from importlib import import_module

import pytest
from dask import config

from nsys_llm.run.dask_cluster import _interrupts_wait
from nsys_llm.run.executors import open_executor


def _interrupts_are_blocked():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_interrupt_waits_for_a_cluster_that_is_half_made():
    waiting = _interrupts_wait()
    waiting.__enter__()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        waiting.__exit__(None, None, None)


def test_an_interrupt_of_a_start_that_fails_is_not_lost():
    def interrupted() -> None:
        with _interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            raise OSError("no port is free")

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_an_interrupt_ends_the_wait_for_a_scheduler_elsewhere(tmp_path):
    # It takes the connection and never answers.
    import_module("distributed")  # takes a while
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        config.set({"distributed.comm.timeouts.connect": "20s"}),
    ):
        file = tmp_path / "scheduler.json"
        file.write_text(json.dumps({"address": f"tcp://127.0.0.1:{silent.getsockname()[1]}"}))
        interrupt = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
        began_s = time.monotonic()
        interrupt.start()
        with pytest.raises(KeyboardInterrupt), open_executor("dask-futures", str(file)):
            pass
    assert time.monotonic() - began_s < 10


class ClosesSlowly:
    """A client that is terminated or interrupted while it is closed."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_for_workers(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        raise KeyboardInterrupt


def test_a_cluster_that_is_being_closed_is_killed_by_an_interrupt(monkeypatch):
    killed = []
    monkeypatch.setattr("distributed.Client", ClosesSlowly)
    kill = "nsys_llm.run.dask_cluster._kill_local_workers"
    monkeypatch.setattr(kill, lambda client, _: killed.append(type(client)))
    with pytest.raises(KeyboardInterrupt), open_executor("dask-futures", None):
        pass
    assert set(killed) == {ClosesSlowly}


@pytest.mark.slow
@pytest.mark.cluster
def test_an_interrupt_from_a_terminal_reaches_this_process_only():
    with open_executor("dask-futures", None) as executor:
        assert set(executor._client.run(_interrupts_are_blocked).values()) == {True}
        assert not _interrupts_are_blocked()


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_of_a_local_cluster_print_nothing_of_their_own(capfd):
    # As they do of the heartbeat during which the scheduler ended.
    def complain(numbers):
        logging.getLogger("distributed.worker").error("the scheduler is gone")
        return sum(numbers)

    with open_executor("dask-futures", None) as executor:
        assert executor.reduce(complain, [[1], [2]], sum, lambda _: None) == 3
    assert capfd.readouterr() == ("", "")
