"""Input that cannot be read: one line for each cause, the right exit code, nothing left behind."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from command_line import row, rows, run, snapshot, unprivileged
from trace_builder import TraceBuilder


def report(duration_ns: int = 5) -> TraceBuilder:
    return TraceBuilder().kernel("a", start_ns=10, duration_ns=duration_ns, launch=(1, 3))


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE people (id INTEGER); INSERT INTO people VALUES (1)")


def assert_refused(folder: Path, entry: object, *telling: str) -> None:
    """Assert exit 2, exactly one line with these words, and no change in the folder."""
    before = snapshot(folder)
    ended = run("--input", entry, "--output", folder / "out")
    assert (ended.code, ended.printed) == (2, [])
    assert len(ended.said) == len(ended.errors) == 1, ended.said
    for words in telling:
        assert words in ended.said[0]
    assert snapshot(folder) == before


UNREADABLE: list[tuple[str, Callable[[Path], object], str]] = [
    ("e.sqlite", lambda path: path.touch(), "the file is empty"),
    ("e.nsys-rep", lambda path: path.touch(), "the file is empty"),
    ("j.sqlite", lambda path: path.write_bytes(b"junk\x00" * 99), "not an SQLite database"),
    ("f.sqlite", foreign, "not an export of Nsight Systems"),
    ("p_pqtdir", lambda path: path.mkdir(), "not a parquet export"),
    ("x.txt", lambda path: path.touch(), "not a profile"),
]


@pytest.mark.parametrize(("name", "make", "words"), UNREADABLE)
def test_what_is_no_report_is_refused_in_one_line(tmp_path, name, make, words):
    make(tmp_path / name)
    assert_refused(tmp_path, tmp_path / name, name, words)


def test_none_of_the_reports_of_a_folder_is_refused(tmp_path, rank_set):
    assert_refused(tmp_path, f"{rank_set}:0", ":0")


def test_a_file_without_read_permission_is_refused(tmp_path):
    path = report().write_sqlite(tmp_path / "rank0.sqlite")
    path.chmod(0)
    with unprivileged():
        ended = run("--input", path, "--output", tmp_path / "out")
    assert ended.code == 2
    (line,) = ended.said
    assert "rank0.sqlite: cannot be read (Permission denied)" in line
    assert os.listdir(tmp_path) == ["rank0.sqlite"]


@pytest.mark.parametrize("mode", [0o000, 0o444])
@pytest.mark.parametrize("entry", [".", "rank0.sqlite"])
def test_a_folder_that_may_not_be_entered_is_refused(tmp_path, mode, entry):
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    report().write_sqlite(ranks / "rank0.sqlite")
    ranks.chmod(mode)
    with unprivileged():
        ended = run("--input", ranks / entry, "--output", tmp_path / "out")
    ranks.chmod(0o755)
    assert ended.code == 2
    assert len(ended.said) == len(ended.errors) == 1, ended.said
    assert os.listdir(tmp_path) == ["ranks"]


def three_good_and_one_broken(folder: Path) -> Path:
    """Make ranks 0, 1 and 3 with a kernel of 1, 2 and 4 ns, and rank 2 broken."""
    folder.mkdir()
    for rank in (0, 1, 3):
        report(rank + 1).write_sqlite(folder / f"rank{rank}.sqlite")
    (folder / "rank2.sqlite").write_bytes(b"junk")
    return folder


@pytest.mark.parametrize("mode", ["none", "concurrent"])
def test_one_broken_rank_costs_its_own_results_only(tmp_path, mode):
    ranks, out = three_good_and_one_broken(tmp_path / "ranks"), tmp_path / "out"
    before = snapshot(ranks)
    ended = run("--input", ranks, "--output", out, "--mode", mode)
    assert ended.code == 3
    assert len(ended.errors) == 2
    assert [line for line in ended.said if "rank2" in line] == [ended.errors[0]]
    assert "incomplete: 1 of 4 profiles failed" in ended.errors[1]
    status = {record["Rank"]: record["status"] for record in rows(out, "files")}
    assert status == {0: "ok", 1: "ok", 2: "failed", 3: "ok"}
    assert "not an SQLite database" in row(out, "files", Rank=2)["reason"]
    assert row(out, "kernels", name="a")["total_ns"] == 1 + 2 + 4
    assert sorted(record["rank"] for record in rows(out, "rank_kernels")) == [0, 1, 3]
    record = json.loads((out / "report.json").read_text("utf-8"))
    assert record["exit_code"] == 3
    assert list(record["failed"]) == ["rank2"]
    assert snapshot(ranks) == before


def test_missing_ranks_may_be_allowed(tmp_path):
    ranks, out = three_good_and_one_broken(tmp_path / "ranks"), tmp_path / "out"
    ended = run("--input", ranks, "--output", out, "--allow-missing-ranks")
    assert ended.code == 0
    assert len([line for line in ended.errors if "rank2" in line]) == 1
    assert row(out, "files", Rank=2)["status"] == "failed"


def test_nothing_is_written_when_every_report_is_broken(tmp_path):
    for number in range(3):
        (tmp_path / f"rank{number}.sqlite").write_bytes(b"junk")
    before = snapshot(tmp_path)
    ended = run("--input", tmp_path, "--output", tmp_path / "out", "--allow-missing-ranks")
    assert (ended.code, len(ended.said)) == (2, 3)
    assert [number for number in range(3) if f"rank{number}" in ended.errors[number]] == [0, 1, 2]
    assert snapshot(tmp_path) == before
