"""The client of a Dask cluster: what it does about clusters that cannot be used, or are lost."""

from __future__ import annotations

import json
import socket
import time
from threading import Event

import distributed  # noqa: F401 - sets what Dask's configuration has by default
import pytest

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.run import dask_cluster as ours
from nsys_llm.run.dask_cluster import DaskErrors, answered, refuse_other_versions
from nsys_llm.run.executors import open_executor

LOST, LEFT = "the Dask scheduler was lost", "no Dask worker was left"


class NoWorkerError(Exception):
    """As Dask's scheduler raises it."""


class CommClosedError(OSError):
    """As Dask's client raises it."""


class Cluster:
    """A client of one worker, of some version, or which raises that."""

    def __init__(self, version=__version__, status="running"):
        self.version, self.status = version, status

    def run(self, _function, _package, on_error):
        assert on_error == "return"
        if isinstance(self.version, TimeoutError):
            raise self.version
        return {"tcp://node7:1": self.version, "tcp://node7:2": __version__}


@pytest.mark.parametrize(
    ("cluster", "raised", "kind", "said"),
    [
        (Cluster(), NoWorkerError(), UsageError, LEFT),
        (Cluster(), CommClosedError(), UsageError, LOST),
        (Cluster(status="connecting"), RuntimeError("late"), UsageError, LOST),
        # It came after the first look, and its functions take other arguments.
        (
            Cluster("0.0.1"),
            TypeError("unexpected keyword"),
            UsageError,
            r"tcp://node7:1 has nsys-llm-recipes 0\.0\.1, but this",
        ),
        (Cluster(), TypeError("of our own"), TypeError, "of our own"),
        (Cluster("0.0.1"), UsageError("no such range"), UsageError, "no such range"),
        # The cluster does not answer any more: what went wrong before is what there is to tell.
        (Cluster(TimeoutError("late")), TypeError("of our own"), TypeError, "of our own"),
    ],
)
def test_what_goes_wrong_on_a_cluster_is_explained(cluster, raised, kind, said):
    if cluster.status != "running":
        with pytest.raises(UsageError, match=LOST), DaskErrors(cluster):
            raise AssertionError("nothing is sent to it")
        cluster.status = "running"

    def fail():
        with DaskErrors(cluster):
            cluster.status = "connecting" if said == LOST else cluster.status
            raise raised

    with pytest.raises(kind, match=said):
        fail()


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (ModuleNotFoundError("No module named 'nsys_llm'"), r"nsys-llm-recipes \(not installed\)"),
        (SystemError("unknown opcode"), r"cannot say which .* \(SystemError\); install"),
        # One that dies when it is asked is none of another version.
        (OSError("connection closed"), None),
    ],
)
def test_a_worker_that_cannot_be_asked_is_not_said_to_be_of_another_version(version, said):
    if said is None:
        refuse_other_versions(Cluster(version))
        return
    with pytest.raises(UsageError, match=rf"the worker at tcp://node7:1 .*{said}"):
        refuse_other_versions(Cluster(version))


@pytest.mark.parametrize("said", [LOST, LEFT])
def test_who_falls_silent_or_has_no_workers_is_given_up(monkeypatch, said):
    for name, time_s in (("_LOOK_S", 0.01), ("PATIENCE_S", 0.05)):
        monkeypatch.setattr(ours, name, time_s)
    never = Event()

    class Silent:
        def nthreads(self):
            return never.wait() if said == LOST else {}

    with pytest.raises(UsageError, match=said):
        answered(Silent(), never.wait)
    never.set()
    assert answered(Silent(), lambda: 7) == 7


def test_a_scheduler_that_never_speaks_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "PATIENCE_S", 0.5)
    file = tmp_path / "scheduler.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file.write_text(json.dumps({"address": f"tcp://127.0.0.1:{silent.getsockname()[1]}"}))
        began_s = time.monotonic()
        with pytest.raises(UsageError, match=r"cannot be used \(no answer in time\)"):
            open_executor("dask-futures", str(file)).__enter__()
        assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("content", [None, "", "no json"])
def test_a_scheduler_file_that_leads_nowhere_is_told(tmp_path, content):
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match="does not name a running scheduler"):
        open_executor("dask-futures", str(file)).__enter__()


def test_a_cluster_that_nobody_names_is_asked_for():
    with pytest.raises(UsageError, match=r"give its --scheduler-file, or set DASK_SCHEDULER_"):
        open_executor("dask-futures", None).__enter__()
