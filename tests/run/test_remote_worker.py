"""Workers that are processes of their own: the same tables, or one line on what went wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask import config
from dask_cluster import BEFORE, scheduler, worker
from effort import nightly_but
from results import (
    RECIPE,
    assert_same,
    background,
    only_tables,
    read_report,
    wait_until,
)

from nsys_llm import __version__
from nsys_llm.run.cli import main

pytestmark = pytest.mark.cluster

#: What a worker does before its first task, and what the line says of it.
OTHERS = {
    "version": ("import nsys_llm; nsys_llm.__version__ = '0.0.9'", "nsys-llm-recipes 0.0.9"),
    "not installed": (
        "import sys\n"
        "for name in ['nsys_llm', *filter(lambda n: n.startswith('nsys_llm.'), sys.modules)]:\n"
        "    sys.modules[name] = None",
        "nsys-llm-recipes (not installed)",
    ),
}
STUCK = "pathlib.Path({mark!r}).touch(); time.sleep(600)"


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Iterator[Path]:
    """The file of a scheduler whose processes know this environment and nothing else."""
    with scheduler(tmp_path_factory.mktemp("cluster") / "away") as (file, _):
        yield file


def asked(*words: str | Path) -> int:
    return main([RECIPE, "--mode", "dask-futures", "--output", "out", *map(str, words)])


def background_run(file: Path, ranks: Path, folder: Path, **changes: str):
    words = ["--mode", "dask-futures", "--scheduler-file", file, "--input", ranks]
    command = [sys.executable, "-m", "nsys_llm.run.cli", RECIPE, *words, "--output", "out"]
    return background(command, folder, **changes)


@pytest.mark.parametrize("way", nightly_but(["option", "variable"], ["option"]))
def test_a_separate_worker_gives_the_same_tables(file, rank_set, way, tmp_path, monkeypatch):
    mark = tmp_path / "seen"
    seen = f"pathlib.Path({str(mark)!r}).write_text(f'{{find_spec(\"nsys_recipe\")}} {{sys.path}}')"
    # A relative path: it means this folder, not the worker's.
    monkeypatch.chdir(tmp_path)
    words = ["--scheduler-file", file] if way == "option" else []
    # What Dask makes of DASK_SCHEDULER_ADDRESS when it is imported.
    address = None if way == "option" else json.loads(file.read_text())["address"]
    with (
        worker(tmp_path / "worker", file, BEFORE.replace("DO", seen)),
        config.set({"scheduler-address": address}),
    ):
        assert asked("--input", rank_set.name, *words) == 0
    # Without NVIDIA's framework on its path, and not in this folder.
    assert mark.read_text().startswith("None ")
    assert repr(str(tmp_path)) not in mark.read_text()
    assert_same(tmp_path / "out", only_tables(tmp_path / "alone", rank_set))


@pytest.mark.nightly("not installed")
@pytest.mark.parametrize("case", OTHERS)
def test_a_worker_of_another_version_is_refused_in_one_line(
    file, rank_set, case, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, said = OTHERS[case]
    with worker(tmp_path / "worker", file, code):
        assert asked("--scheduler-file", file, "--input", rank_set) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert __version__ in line.split("this command is")[1]
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_failure_on_a_separate_worker_is_told_here(file, rank_set, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (rank_set / "rank2.sqlite").write_bytes(b"")
    with worker(tmp_path / "worker", file):
        assert asked("--scheduler-file", file, "--input", rank_set) == 3
    said = capsys.readouterr().err
    assert said.count("rank2.sqlite") == 1
    assert "Traceback" not in said
    assert list(read_report(tmp_path / "out")["failed"]) == ["rank2"]


@pytest.mark.nightly
def test_workers_without_the_shared_folder_are_told_in_a_line_each_rank(
    file, rank_set, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    elsewhere = "profile = replace(profile, path=f'/not shared{profile.path}')"
    with worker(tmp_path / "worker", file, BEFORE.replace("DO", elsewhere)):
        assert asked("--scheduler-file", file, "--input", rank_set) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if not line.endswith("profiles done")] == [
        f"error: rank{rank}.sqlite: no longer found: removed during the run, or in a folder that "
        "this Dask worker does not see; all workers must see the same folders."
        for rank in range(2)
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_what_a_killed_worker_had_done_and_was_doing_is_done_again(file, rank_set, tmp_path):
    mark = tmp_path / "at rank 1"
    do = f"if profile.label == 'rank1': {STUCK.format(mark=str(mark))}"
    with (
        worker(tmp_path / "one", file, BEFORE.replace("DO", do)) as doomed,
        background_run(file, rank_set, tmp_path) as client,
    ):
        wait_until(mark, client)
        with worker(tmp_path / "other", file):
            doomed.kill()
            assert client.wait(timeout=60) == 0, (tmp_path / "background.log").read_text()
    assert_same(tmp_path / "out", only_tables(tmp_path / "alone", rank_set))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("whose", "said"),
    [
        ("worker", "error: no Dask worker was left, and none joined in time"),
        ("scheduler", "error: the Dask scheduler was lost during the run"),
    ],
)
def test_a_run_whose_cluster_dies_ends_in_one_line(rank_set, tmp_path, whose, said):
    mark = tmp_path / "begun"
    stuck = BEFORE.replace("DO", STUCK.format(mark=str(mark)))
    soon = {"DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "3s"}
    with (
        scheduler(tmp_path / "away") as (file, of_scheduler),
        worker(tmp_path / "worker", file, stuck) as of_worker,
        background_run(file, rank_set, tmp_path, **soon) as client,
    ):
        wait_until(mark, client)
        (of_worker if whose == "worker" else of_scheduler).kill()
        assert client.wait(timeout=40) == 2
    (line,) = (tmp_path / "background.log").read_text().splitlines()
    assert line.startswith(said)
    assert "nothing was written" in line
    assert set(os.listdir(tmp_path)) == {"away", "background.log", "begun", "ranks", "worker"}
