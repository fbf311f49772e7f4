"""The client of a Dask cluster: clusters that cannot be used, and what workers may not do."""

from __future__ import annotations

import distributed  # noqa: F401 - sets what Dask's configuration has by default
import pytest

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.run.dask_cluster import DaskErrors, refuse_other_versions
from nsys_llm.run.executors import open_executor


class NoWorkerError(Exception):
    """As Dask's scheduler raises it."""


def test_what_the_scheduler_drops_for_want_of_workers_is_explained():
    class Client:
        status = "running"

    with pytest.raises(UsageError, match="no Dask worker was left"), DaskErrors(Client()):
        raise NoWorkerError


def test_a_worker_that_dies_when_asked_for_its_version_is_not_another_version():
    class Asked:
        def run(self, _function, _package, on_error):
            assert on_error == "return"
            return {"tcp://node7:1": OSError("connection closed"), "tcp://node7:2": __version__}

    refuse_other_versions(Asked())


def test_a_cluster_that_nobody_names_is_asked_for():
    with pytest.raises(UsageError, match=r"give its --scheduler-file, or set DASK_SCHEDULER_"):
        open_executor("dask-futures", None).__enter__()
