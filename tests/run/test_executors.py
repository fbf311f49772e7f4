"""Every executor is used in the same way, and merges the same."""

from __future__ import annotations

import inspect
import json
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise

import pytest
from dask import config
from results import run

from nsys_llm.run.executors import (
    DaskFutures,
    Executor,
    Inline,
    Threads,
    _interrupts_wait,
    chunked,
    open_executor,
)


class Client:
    """As much of `distributed.Client` as is needed to merge where no cluster is."""

    status = "running"

    def nthreads(self):
        return {"tcp://a:1": 2, "tcp://b:1": 3}


class Backwards(Executor):
    """Merges what ended last first, as a cluster may."""

    mode = "backwards"

    @property
    def workers_n(self):
        return 3

    def reduce(self, function, chunks, merge, done):
        with ThreadPoolExecutor(3) as threads:
            parts = list(threads.map(function, reversed(chunks)))
        for chunk in chunks:
            done(len(chunk))
        return merge([merge(parts[:1]), merge(parts[1:])])


@pytest.mark.parametrize("executor", [Inline, Threads, DaskFutures])
def test_all_have_one_signature(executor):
    for name in ("start", "reduce", "elsewhere"):
        assert inspect.signature(getattr(executor, name)) == inspect.signature(
            getattr(Executor, name)
        )
    assert issubclass(executor, Executor)


def test_one_that_cannot_reduce_cannot_be_made():
    class Half(Executor):
        mode = "half"

        @property
        def workers_n(self):
            return 1

    with pytest.raises(TypeError, match="reduce"):
        Half()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("executor", [Inline(), Threads(), Backwards()])
def test_each_maps_every_chunk_once_and_counts_it(executor, seed):
    rng = random.Random(seed)
    items = [rng.randrange(1_000) for _ in range(rng.randint(1, 40))]
    chunks = chunked(items, rng.randint(1, 6))
    seen, counted, lock = [], [], threading.Lock()

    def function(chunk):
        with lock:
            seen.extend(chunk)
        return sum(chunk)

    executor.start()
    assert executor.reduce(function, chunks, sum, counted.append) == sum(items)
    assert sorted(seen) == sorted(items)
    assert sorted(counted) == sorted(map(len, chunks))
    assert executor.elsewhere(["/nowhere"]) == ""
    assert executor.workers_n >= 1


def test_threads_need_nothing_of_a_cluster(tmp_path):
    # To import it takes longer than to read two small reports.
    code = "import sys; from nsys_llm.run.executors import Threads\n"
    code += "assert Threads().reduce(sum, [[1], [2], [3]], sum, print) == 6\n"
    code += "assert 'dask' in sys.modules and 'distributed' not in sys.modules"
    done = run([sys.executable, "-c", code], tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n1\n1\n"), done.stdout


def test_a_cluster_has_as_many_workers_as_threads():
    assert DaskFutures(Client(), print).workers_n == 5


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
        with pytest.raises(KeyboardInterrupt), open_executor("dask-futures", str(file), print):
            pass
    assert time.monotonic() - began_s < 10


class ClosesSlowly:
    """A client that is terminated while it is closed."""

    cluster = None
    status = "running"

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_for_workers(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        raise SystemExit(143)


def test_a_cluster_that_is_being_closed_is_killed_by_a_termination(monkeypatch):
    killed = []
    monkeypatch.setattr("distributed.Client", ClosesSlowly)
    monkeypatch.setattr("nsys_llm.run.executors._kill_local_workers", killed.append)
    with pytest.raises(SystemExit), open_executor("dask-futures", None, print):
        pass
    assert [type(client) for client in killed] == [ClosesSlowly]


@pytest.mark.cluster
def test_an_interrupt_from_a_terminal_reaches_this_process_only():
    with open_executor("dask-futures", None, print) as executor:
        assert set(executor._client.run(_interrupts_are_blocked).values()) == {True}
        assert not _interrupts_are_blocked()


@pytest.mark.cluster
def test_workers_of_a_local_cluster_print_nothing_of_their_own(capfd):
    # As they do of the heartbeat during which the scheduler ended.
    def complain(numbers):
        logging.getLogger("distributed.worker").error("the scheduler is gone")
        return sum(numbers)

    with open_executor("dask-futures", None, print) as executor:
        assert executor.reduce(complain, [[1], [2]], sum, lambda _: None) == 3
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("workers_n", [1, 2, 7])
@pytest.mark.parametrize("items_n", [0, 1, 5, 28, 29, 300])
def test_chunks_are_as_even_as_can_be_and_hold_everything_in_order(items_n, workers_n):
    chunks = chunked(range(items_n), workers_n)
    assert [item for chunk in chunks for item in chunk] == list(range(items_n))
    assert len(chunks) == min(items_n, 4 * workers_n)
    sizes = [len(chunk) for chunk in chunks]
    assert all(abs(size - other) <= 1 for size, other in pairwise(sizes))
    assert 0 not in sizes
