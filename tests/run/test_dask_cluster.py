"""The client of a Dask cluster: clusters that cannot be used, and what workers may not do."""

from __future__ import annotations

import json
import logging
import socket

import distributed  # noqa: F401 - sets what Dask's configuration has by default
import pytest
from dask import config
from trace_builder import TraceBuilder

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.run.cli import main
from nsys_llm.run.dask_errors import DaskErrors, dask_muted, refuse_other_versions
from nsys_llm.run.executors import open_executor


class NoWorkerError(Exception):
    """As Dask's scheduler raises it."""


def test_what_the_scheduler_drops_for_want_of_workers_is_explained():
    class Client:
        status = "running"

    with pytest.raises(UsageError, match="no Dask worker was left"), DaskErrors(Client()):
        raise NoWorkerError


def test_a_port_that_listens_and_stays_silent_is_one_line(tmp_path, capsys):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        file = tmp_path / "scheduler.json"
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        file.write_text(json.dumps({"address": address}))
        report = TraceBuilder().kernel("k", start_ns=5, duration_ns=3)
        words = ["--input", str(report.write_sqlite(tmp_path / "rank0.sqlite"))]
        words += ["--mode", "dask-futures", "--scheduler-file", str(file)]
        with config.set({"distributed.comm.timeouts.connect": "300ms"}):
            assert main(["llm_hotspots", *words, "--output", str(tmp_path / "out")]) == 2
    line = f"error: the Dask cluster cannot be used (no answer from {address} within 0.3 s).\n"
    assert capsys.readouterr().err == line
    assert not (tmp_path / "out").exists()


def test_a_worker_that_dies_when_asked_for_its_version_is_not_another_version():
    class Asked:
        def run(self, _function, _package, on_error):
            assert on_error == "return"
            return {"tcp://node7:1": OSError("connection closed"), "tcp://node7:2": __version__}

    refuse_other_versions(Asked())


def test_connections_that_end_with_the_run_are_not_told():
    logger = logging.getLogger("distributed.batched")
    before = logging.getLogger("distributed").level
    with dask_muted():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logging.getLogger("distributed").level in (before, logging.INFO)
    assert logger.isEnabledFor(logging.ERROR)


def test_a_cluster_that_nobody_names_is_asked_for():
    with pytest.raises(UsageError, match=r"name its --scheduler-file, or set DASK_SCHEDULER_"):
        open_executor("dask-futures", None).__enter__()
