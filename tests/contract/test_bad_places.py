"""Where input and output stand: odd names, the same name twice, existing and forbidden output."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from command_line import row, rows, run, snapshot
from trace_builder import TraceBuilder

HOSTILE_NAMES = [
    "a?mode=rw.sqlite",
    "a#b.sqlite",
    "50%25.sqlite",
    "it's.sqlite",
    'say "x".sqlite',
    "with space .sqlite",
    "line\nbreak.sqlite",
    "tab\tand\x1b[31mred.sqlite",
    "-rf.sqlite",
    "rank:1.sqlite",
    "ränge-数.sqlite",
    "{0}%s$HOME`id`.sqlite",
]


def report(duration_ns: int = 5) -> TraceBuilder:
    return TraceBuilder().kernel("a", start_ns=10, duration_ns=duration_ns, launch=(1, 3))


def test_hostile_file_names_are_read_and_kept(tmp_path):
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    for ns, name in enumerate(HOSTILE_NAMES, 1):
        report(ns).write_sqlite(ranks / name)
    before = snapshot(ranks)
    paths = [ranks / name for name in HOSTILE_NAMES]
    ended = run("--input", *paths, "--output", tmp_path / "out", "--csv")
    assert (ended.code, ended.errors) == (0, [])
    assert all(line.isprintable() for line in ended.said)
    times = [record["total_ns"] for record in rows(tmp_path / "out", "rank_kernels")]
    assert sorted(times) == [*range(1, len(HOSTILE_NAMES) + 1)]
    assert snapshot(ranks) == before


def test_a_database_in_wal_mode_gets_no_files_beside_it(tmp_path):
    path = report().write_sqlite(tmp_path / "rank0.sqlite")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    before = snapshot(tmp_path)
    assert list(before) == ["rank0.sqlite"]
    assert run("--input", path, "--output", tmp_path / "out").code == 0
    assert row(tmp_path / "out", "kernels", name="a")["total_ns"] == 5
    after = {name: state for name, state in snapshot(tmp_path).items() if name[:3] != "out"}
    assert after == before


@pytest.mark.parametrize("name", ["rank0.sqlite", "link.sqlite"])
def test_what_a_writer_has_not_yet_moved_out_of_its_wal_is_not_passed_over(tmp_path, name):
    # Reading it would need files beside the input; leaving it out would give old numbers.
    path = report().write_sqlite(tmp_path / "rank0.sqlite")
    (tmp_path / "link.sqlite").symlink_to(path)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 2')
        writer.commit()
        ended = run("--input", tmp_path / name, "--output", tmp_path / "out")
    assert ended.code == 2
    assert [line for line in ended.said if "rank0.sqlite-wal" in line] == ended.said
    assert not (tmp_path / "out").exists()


def test_a_result_survives_a_later_run_that_fails(tmp_path, rank_set):
    out, junk = tmp_path / "out", tmp_path / "junk.sqlite"
    assert run("--input", rank_set, "--output", out).code == 0
    junk.write_bytes(b"junk")
    before = snapshot(tmp_path)
    assert run("--input", junk, "--output", out, "--force-overwrite").code == 2
    assert snapshot(tmp_path) == before
