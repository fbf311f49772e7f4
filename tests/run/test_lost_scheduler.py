"""A scheduler that dies: one line, exit 2, nothing published, and no traceback of Dask's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from dask import config
from dask_cluster import DASK, wait_for, worker
from results import RECIPE, background, wait_until
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.run import dask_cluster as ours
from nsys_llm.run.executors import Executor, open_executor

pytestmark = pytest.mark.cluster

#: Makes a worker say that it has begun, and stay there.
STUCK = """
import pathlib, time
from nsys_llm.run import worker

def stuck(*_, **__):
    pathlib.Path({mark!r}).touch()
    time.sleep(600)

worker._map_profile = stuck
"""


def scheduler_command(file: Path) -> list[str | Path]:
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    return [*DASK, "scheduler", *words]


@contextmanager
def on_a_cluster(folder: Path, connect: str) -> Iterator[tuple[Executor, subprocess.Popen[bytes]]]:
    """Open the executor of a cluster with one worker, and give it with the scheduler.

    Args:
        folder: Where both write.
        connect: How long is tried to connect again.
    """
    file = folder / "scheduler.json"
    with background(scheduler_command(file), folder) as scheduler:
        wait_for(file)
        with (
            worker(folder / "worker", file),
            config.set({"distributed.comm.timeouts.connect": connect}),
            open_executor("dask-futures", str(file)) as executor,
        ):
            yield executor, scheduler


@pytest.mark.nightly
def test_a_scheduler_that_is_killed_in_mid_run_ends_it_in_one_line(tmp_path):
    reports = tmp_path / "ranks"
    reports.mkdir()
    for rank in range(4):
        report = TraceBuilder().kernel("k", start_ns=5, duration_ns=1, launch=(0, 1))
        report.write_sqlite(reports / f"rank{rank}.sqlite")
    away, mark, preload = tmp_path / "away", tmp_path / "begun", tmp_path / "stuck.py"
    away.mkdir()
    file = away / "scheduler.json"
    preload.write_text(STUCK.format(mark=str(mark)))
    words = ["--mode", "dask-futures", "--scheduler-file", file, "--output", tmp_path / "out"]
    command = [sys.executable, "-m", "nsys_llm.run.cli", RECIPE, "--input", reports, *words]
    with background(scheduler_command(file), away) as scheduler:
        wait_for(file)
        with (
            worker(tmp_path / "worker", file, "--preload", preload),
            background(command, tmp_path) as client,
        ):
            wait_until(mark, client)
            scheduler.kill()
            assert client.wait(timeout=40) == 2
    (line,) = (tmp_path / "background.log").read_text().splitlines()
    assert line.startswith("error: the Dask scheduler was lost during the run")
    assert "nothing was written" in line
    # Python may compile what the worker loads.
    assert set(os.listdir(tmp_path)) - {"__pycache__"} == {
        "away", "background.log", "begun", "ranks", "stuck.py", "worker"
    }  # fmt: skip


@pytest.mark.nightly
def test_whatever_is_asked_of_a_scheduler_that_is_gone_is_told_in_one_line(tmp_path, capfd):
    # Its defaults enter the configuration when it is imported, and would leave it with the block.
    import_module("distributed")
    with on_a_cluster(tmp_path, "1s") as (executor, scheduler):
        scheduler.kill()
        scheduler.wait()
        for ask in (
            lambda: executor.workers_n,
            lambda: executor.reduce(sum, [[1], [2]], sum, print),
        ):
            with pytest.raises(UsageError, match="the Dask scheduler was lost"):
                ask()
    assert capfd.readouterr() == ("", "")


def test_a_scheduler_that_never_speaks_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "PATIENCE_S", 1.0)
    file = tmp_path / "scheduler.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file.write_text(json.dumps({"address": f"tcp://127.0.0.1:{silent.getsockname()[1]}"}))
        began = time.monotonic()
        with (
            pytest.raises(UsageError, match=r"cannot be used \(no answer in time\)"),
            open_executor("dask-futures", str(file)),
        ):
            raise AssertionError("there is no cluster")
        assert time.monotonic() - began < 10


@pytest.mark.nightly
def test_a_scheduler_that_falls_silent_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "PATIENCE_S", 2.0)
    import_module("distributed")
    with on_a_cluster(tmp_path, "1s") as (executor, scheduler):
        scheduler.send_signal(signal.SIGSTOP)
        try:
            for ask in (
                lambda: executor.workers_n,
                lambda: executor.reduce(sum, [[1], [2]], sum, print),
            ):
                with pytest.raises(UsageError, match="the Dask scheduler was lost"):
                    ask()
        finally:
            scheduler.send_signal(signal.SIGCONT)
