"""Workers that die, and reports that only some machines see: the result is whole, or says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from dask_cluster import scheduler, worker
from results import RECIPE, analyse, assert_same, background, wait_until
from trace_builder import TraceBuilder

pytestmark = pytest.mark.cluster

NO_WORKERS_VARIABLE = "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"

#: Makes a worker say that it has come to rank 5, and stay there until it is killed.
STUCK = """
import pathlib, time
from nsys_llm.run import worker

mapped = worker._map_profile

def stuck(profile, *rest):
    if profile.label == "rank5":
        pathlib.Path({mark!r}).touch()
        time.sleep(600)
    return mapped(profile, *rest)

worker._map_profile = stuck
"""


@pytest.fixture
def ranks(tmp_path) -> Path:
    """Eight ranks, rank i with i + 1 kernels of i + 1 ns."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(8):
        report = TraceBuilder()
        for number in range(rank + 1):
            report.kernel(
                "k",
                start_ns=20 * number + 9,
                duration_ns=rank + 1,
                launch=(20 * number, 20 * number + 2),
            )
        report.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


def command(file: Path, ranks: Path, output: Path) -> list[str | Path]:
    words = ["--mode", "dask-futures", "--scheduler-file", file, "--input", ranks]
    return [sys.executable, "-m", "nsys_llm.run.cli", RECIPE, *words, "--output", output]


@pytest.mark.nightly
def test_what_a_killed_worker_had_done_and_was_doing_is_done_again(ranks, tmp_path):
    mark, preload = tmp_path / "at rank 5", tmp_path / "stuck.py"
    preload.write_text(STUCK.format(mark=str(mark)))
    with (
        scheduler(tmp_path / "scheduler") as file,
        worker(tmp_path / "one", file, "--preload", preload) as doomed,
        background(command(file, ranks, tmp_path / "out"), tmp_path) as client,
    ):
        wait_until(mark, client)
        # Some ranks are done by now, and kept in that worker's memory only.
        with worker(tmp_path / "other", file):
            doomed.kill()
            assert client.wait(timeout=60) == 0, (tmp_path / "background.log").read_text()
    assert_same(tmp_path / "out", analyse(tmp_path / "alone", ranks))


# Without a limit the scheduler waits for ever, and a run 20 s.
@pytest.mark.nightly("None", "scheduler")
@pytest.mark.parametrize("limited", [None, "scheduler", "run"])
def test_a_run_whose_workers_all_die_ends_in_one_line(ranks, tmp_path, limited):
    mark, preload = tmp_path / "at rank 5", tmp_path / "stuck.py"
    preload.write_text(STUCK.format(mark=str(mark)))
    of_scheduler, of_run = (
        {NO_WORKERS_VARIABLE: "3s"} if limited == name else {} for name in ("scheduler", "run")
    )
    with (
        scheduler(tmp_path / "scheduler", **of_scheduler) as file,
        worker(tmp_path / "one", file, "--preload", preload) as doomed,
        background(command(file, ranks, tmp_path / "out"), tmp_path, **of_run) as client,
    ):
        wait_until(mark, client)
        doomed.kill()
        assert client.wait(timeout=30) == 2
    said = (tmp_path / "background.log").read_text().splitlines()
    # On a slow machine, also how many are done.
    (line,) = (line for line in said if not line.endswith("profiles done"))
    assert line.startswith("error: no Dask worker was left, and none joined in time")
    assert "nothing was written" in line
    assert not (tmp_path / "out").exists()
