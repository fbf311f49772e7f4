"""Workers that are processes of their own, with their own `sys.path` and working folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_cluster import address, ask, cluster, scheduler, worker
from effort import nightly_but
from results import RECIPE, assert_same, only_tables, read_report, run

from nsys_llm.run.cli import main

pytestmark = pytest.mark.cluster

#: Makes a worker look for profiles where it does not share the folder.
ELSEWHERE = """
from dataclasses import replace
from nsys_llm.run import worker

def elsewhere(profile, *rest, mapped=worker._map_profile):
    return mapped(replace(profile, path=f"/not shared{profile.path}"), *rest)

worker._map_profile = elsewhere
"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory) -> Iterator[Path]:
    """The scheduler file of a cluster whose processes know this environment and nothing else."""
    with cluster(tmp_path_factory.mktemp("remote")) as file:
        yield file


def standalone(*words: str | Path, cwd: Path, **changes: str):
    command = [sys.executable, "-m", "nsys_llm.run.cli", RECIPE, "--mode", "dask-futures", *words]
    return run(command, cwd, **changes)


@pytest.mark.parametrize("way", nightly_but(["option", "variable"], ["variable"]))
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
    assert_same(tmp_path / "out", only_tables(tmp_path / "alone", rank_set))
    after, _ = ask(remote, tmp_path)
    assert after > before, "the work was not done by this cluster"


@pytest.mark.nightly
def test_a_failure_on_a_separate_worker_is_told_here(remote, rank_set, tmp_path):
    (rank_set / "rank2.sqlite").write_bytes(b"")
    words = ["--input", rank_set, "--output", "out", "--scheduler-file", remote]
    done = standalone(*words, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.count("rank2.sqlite") == 1
    assert "Traceback" not in done.stdout
    assert list(read_report(tmp_path / "out")["failed"]) == ["rank2"]


@pytest.mark.nightly
def test_workers_without_the_shared_folder_are_told_in_a_line_each_rank(rank_set, tmp_path):
    preload = tmp_path / "elsewhere.py"
    preload.write_text(ELSEWHERE)
    with (
        scheduler(tmp_path / "away") as file,
        worker(tmp_path / "worker", file, "--preload", preload),
    ):
        words = ["--input", rank_set, "--output", "out", "--scheduler-file", file]
        done = standalone(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        f"error: rank{rank}.sqlite: no longer found: removed during the run, or in a folder that "
        "this Dask worker does not see; all workers must see the same folders."
        for rank in range(2)
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly("None", "", "no json")
@pytest.mark.parametrize("content", [None, "", "no json"])
def test_a_scheduler_file_that_leads_nowhere_is_told_in_one_line(
    rank_set, content, tmp_path, capfd
):
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    words = ["--input", rank_set, "--output", tmp_path / "out", "--scheduler-file", file]
    assert main([RECIPE, "--mode", "dask-futures", *map(str, words)]) == 2
    printed, said = capfd.readouterr()
    assert printed == ""
    (line,) = said.splitlines()
    assert line.startswith("error: ")
    assert not (tmp_path / "out").exists()
