"""Workers that are processes of their own, with their own `sys.path` and working folder."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from results import RECIPE, analyse, assert_same, background, read_report, run, under_nsys

#: Asks a cluster: (tasks done so far, whether a worker sees NVIDIA's framework, its sys.path).
ASK = """
import sys
from distributed import Client

def framework():
    import importlib.util
    return importlib.util.find_spec("nsys_recipe") is not None

def places():
    import sys
    return sys.path

with Client(scheduler_file=sys.argv[1]) as client:
    client.wait_for_workers(1, timeout=30)
    done = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
    seen = list(client.run(framework).values())
    paths = list(client.run(places).values())
print(done, len(seen), any(seen), sys.argv[2] in paths[0])
"""


@contextmanager
def cluster(folder: Path, **changes: str) -> Iterator[Path]:
    """Start a scheduler and a worker elsewhere; yield the scheduler file, and end both."""
    away = folder / "away"
    away.mkdir()
    file = away / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    worker = [*dask, "worker", "--scheduler-file", file, "--nthreads", "2", "--no-dashboard"]
    worker += ["--no-nanny", "--local-directory", away]
    with background([*scheduler, "--scheduler-file", file], away, **changes):
        wait_for(file)
        with background(worker, away, **changes):
            yield file


def wait_for(file: Path) -> None:
    limit = time.monotonic() + 60
    while not (file.is_file() and file.read_text().endswith("}")):
        assert time.monotonic() < limit, (file.parent / "background.log").read_text()
        time.sleep(0.05)


def ask(file: Path, folder: Path) -> tuple[int, list[str]]:
    """Return how many steps tasks took so far, and the rest of what `ASK` prints."""
    done = run([sys.executable, "-c", ASK, file, folder], folder)
    assert done.returncode == 0, done.stdout
    steps, *rest = done.stdout.split()
    return int(steps), rest


@pytest.fixture(scope="module")
def remote(tmp_path_factory) -> Iterator[Path]:
    """The scheduler file of a cluster whose processes know this environment and nothing else."""
    with cluster(tmp_path_factory.mktemp("remote")) as file:
        yield file


def standalone(*words: str | Path, cwd: Path, **changes: str):
    command = [sys.executable, "-m", "nsys_llm.cli", RECIPE, "--mode", "dask-futures", *words]
    return run(command, cwd, **changes)


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_separate_worker_gives_the_same_tables(remote, rank_set, way, tmp_path):
    before, (workers_n, sees_framework, sees_our_folder) = ask(remote, tmp_path)
    # One worker, without NVIDIA's framework on its path, and not in this test's folder.
    assert (workers_n, sees_framework, sees_our_folder) == ("1", "False", "False")
    # A relative path: it means this folder, not the worker's.
    words: list[str | Path] = ["--input", rank_set.name, "--output", "out"]
    changes = {}
    if way == "option":
        words += ["--scheduler-file", remote]
    else:
        changes = {"DASK_SCHEDULER_ADDRESS": address(remote)}
    done = standalone(*words, cwd=tmp_path, **changes)
    assert done.returncode == 0, done.stdout
    assert_same(tmp_path / "out", analyse(tmp_path / "alone", rank_set))
    after, _ = ask(remote, tmp_path)
    assert after > before, "the work was not done by this cluster"


def test_a_failure_on_a_separate_worker_is_told_here(remote, rank_set, tmp_path):
    (rank_set / "rank2.sqlite").write_bytes(b"")
    words = ["--input", rank_set, "--output", "out", "--scheduler-file", remote]
    done = standalone(*words, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.count("rank2.sqlite") == 1
    assert "Traceback" not in done.stdout
    assert list(read_report(tmp_path / "out")["failed"]) == ["rank2"]


def test_ranks_and_filters_reach_a_separate_worker(remote, rank_set, tmp_path):
    options = ["--ranks", "1", "--filter-time", "12/28", "--base"]
    words = ["--input", rank_set, "--output", "out", "--scheduler-file", remote]
    done = standalone(*words, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert_same(tmp_path / "out", analyse(tmp_path / "alone", rank_set, options=options))


@pytest.mark.parametrize("content", [None, "", "no json"])
def test_a_scheduler_file_that_leads_nowhere_is_told_in_one_line(rank_set, content, tmp_path):
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    words = ["--input", rank_set, "--output", "out", "--scheduler-file", file]
    done = standalone(*words, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert line.startswith("error: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.nsys
def test_a_separate_worker_serves_the_recipe_under_nsys(nsys, rank_set, tmp_path):
    packages = Path(nsys).parents[1] / "target-linux-x64" / "python" / "packages"
    with cluster(tmp_path, PYTHONPATH=str(packages)) as file:
        before, (_, sees_framework, _) = ask(file, tmp_path)
        # The framework's own set-up of a worker needs it there.
        assert sees_framework == "True"
        words = ["--input", rank_set.name, "--mode", "dask-futures", "--output", "out"]
        done = under_nsys(nsys, tmp_path, *words, DASK_SCHEDULER_ADDRESS=address(file))
        assert done.returncode == 0, done.stdout
        after, _ = ask(file, tmp_path)
    assert after > before, "the work was not done by this cluster"
    assert_same(tmp_path / "out", analyse(tmp_path / "alone", rank_set))


def address(file: Path) -> str:
    return json.loads(file.read_text())["address"]
