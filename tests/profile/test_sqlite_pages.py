"""Columns out of SQLite's pages: equal to what SQLite itself says, or left to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from decoders import DECODERS
from effort import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.sqlite import pages as sqlite_pages
from nsys_llm.profile.sqlite import sqlite_profile
from nsys_llm.profile.sqlite.pages import UnexpectedCell, read_integers
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile

#: Both sides of every width that SQLite stores an integer in.
EDGES = [
    0,
    1,
    *(
        sign * (2**bits) + step
        for bits in (7, 15, 23, 31, 47)
        for sign in (-1, 1)
        for step in (-1, 0)
    ),
]
INTEGERS = st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-(2**63) + 1, 2**63 - 1))
TEXTS = st.one_of(st.none(), st.text(max_size=3), st.integers(0, 200).map("x".__mul__))
ROWS = st.lists(st.tuples(INTEGERS, TEXTS, INTEGERS, INTEGERS), max_size=60)
OF_FUNCTION = [HealthCheck.function_scoped_fixture]


pytestmark = pytest.mark.skipif("native" not in DECODERS, reason="the library was not built here")


def made(path: Path, rows: Sequence[Sequence[Any]], then: str = "", page_bytes: int = 512) -> Path:
    """Write a table t of columns a, b (a text), c, d."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page_bytes}")
        database.execute("CREATE TABLE t (a INTEGER, b TEXT, c INTEGER, d INTEGER)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        database.commit()
        database.executescript(then)
    return path


def asked(path: Path, column: str) -> list[Any]:
    """Return a column as SQLite says."""
    with closing(sqlite3.connect(path)) as database:
        query = f"SELECT coalesce({column}, {NULL_INT}) FROM t ORDER BY rowid"
        return [value for (value,) in database.execute(query)]


def decoded(path: Path, columns: Sequence[int] = (3, 0, 2), fields_n: int = 4) -> list[list[int]]:
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master").fetchone()
    return [column.tolist() for column in read_integers(path, root, fields_n, columns, 1 << 63)]


def agree(path: Path) -> None:
    assert decoded(path) == [asked(path, column) for column in "dac"]


@pytest.mark.slow
@examples(60, suppress_health_check=OF_FUNCTION)
@given(rows=ROWS, page_bytes=st.sampled_from([512, 4096, 65536]), gone=st.integers(2, 9))
def test_rows_are_what_sqlite_says_after_deletions_and_changes(tmp_path, rows, page_bytes, gone):
    changes = f"DELETE FROM t WHERE rowid % {gone} = 0; UPDATE t SET c = c / 3 WHERE rowid % 5 = 0"
    agree(made(tmp_path / "r.sqlite", rows, changes, page_bytes))


@examples(30, suppress_health_check=OF_FUNCTION)
@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=40))
def test_row_ids_of_every_width_are_stepped_over(tmp_path, ids):
    rows = [(number, None, 7, 8) for number in range(len(ids))]
    numbered = ";".join(
        f"UPDATE t SET rowid = {new} WHERE a = {old}" for old, new in enumerate(ids)
    )
    path = made(tmp_path / "r.sqlite", rows, f"UPDATE t SET rowid = -rowid - 5000000; {numbered}")
    agree(path)


def test_a_tree_of_several_levels_is_read_in_the_order_of_its_rows(tmp_path):
    # 20,000 rows of some 10 bytes on pages of 512: 80 pointers a page, three levels.
    rows = [(number % 300, None, -number, None) for number in range(20_000)]
    path = made(tmp_path / "r.sqlite", rows, "DELETE FROM t WHERE rowid BETWEEN 700 AND 9000")
    agree(path)


def test_neighbours_and_strays_are_read_in_batches_of_any_size(tmp_path, monkeypatch):
    path = made(
        tmp_path / "r.sqlite", [(number, "x" * (number % 90), number, 2) for number in range(900)]
    )
    whole = decoded(path)
    monkeypatch.setattr(sqlite_pages, "_BATCH_BYTES", 1024)
    assert decoded(path) == whole


def test_a_column_of_one_value_takes_no_memory(tmp_path):
    path = made(tmp_path / "r.sqlite", [(7, None, None, number) for number in range(500)])
    constant, null, counted = read_integers(path, 2, 4, (0, 2, 3), 500)
    assert (constant.strides, null.strides, counted.strides) == ((0,), (0,), (2,))
    assert (constant[9], null[9], counted[9]) == (7, NULL_INT, 9)


def test_more_rows_than_row_ids_are_left_to_sqlite(tmp_path):
    path = made(tmp_path / "r.sqlite", [(number, None, 2, 3) for number in range(5)])
    with pytest.raises(UnexpectedCell):
        read_integers(path, 2, 4, (0, 2), 4)


@pytest.mark.parametrize(
    ("row", "then"),
    [
        pytest.param((1, "x" * 5000, 2, 3), "", id="a row of several pages"),
        pytest.param((1, None, 2.5, 3), "", id="a number with a point"),
        pytest.param((1, None, "no number", 3), "", id="a text"),
        pytest.param((1, None, b"raw", 3), "", id="bytes"),
        pytest.param((1, None, 2, 3), "ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 9", id="added"),
        pytest.param((1, None, 2, 3), "PRAGMA journal_mode = WAL", id="wal"),
    ],
)
def test_what_is_not_simple_is_left_to_sqlite(tmp_path, row, then):
    path = made(tmp_path / "r.sqlite", [(1, None, 2, 3), row], then)
    with pytest.raises(UnexpectedCell):
        decoded(path, fields_n=5 if "ADD" in then else 4)


def test_a_file_that_changes_meanwhile_is_left_to_sqlite(tmp_path, monkeypatch):
    path = made(tmp_path / "r.sqlite", [(1, None, 2, 3)])
    load = sqlite_pages._load

    def changing(*given: Any) -> Any:
        with path.open("ab") as file:
            file.write(b"\0" * 512)
        return load(*given)

    monkeypatch.setattr(sqlite_pages, "_load", changing)
    with pytest.raises(UnexpectedCell):
        decoded(path)


@examples(150, suppress_health_check=OF_FUNCTION)
@given(at=st.integers(512, 512 * 12 - 1), byte=st.integers(0, 255), more=st.binary(max_size=6))
def test_damage_is_noticed_or_gives_other_numbers_but_nothing_else(tmp_path, at, byte, more):
    path = tmp_path / "r.sqlite"
    if not path.exists():
        made(path, [(number, "x" * (number % 40), -number, number * 999) for number in range(150)])
        (tmp_path / "whole").write_bytes(path.read_bytes())
    raw = bytearray((tmp_path / "whole").read_bytes())
    raw[at : at + 1 + len(more)] = bytes([byte]) + more
    path.write_bytes(raw[: len(raw) // 512 * 512])
    try:
        columns = [column.size for column in read_integers(path, 2, 4, (3, 0, 2), 150)]
    except UnexpectedCell:
        return
    assert len(set(columns)) == 1


@pytest.mark.parametrize("cut_bytes", [1, 512, 5_000])
def test_a_cut_file_is_left_to_sqlite(tmp_path, cut_bytes):
    path = made(tmp_path / "r.sqlite", [(number, None, number, number) for number in range(2_000)])
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    with pytest.raises(UnexpectedCell):
        read_integers(path, 2, 4, (0,), 2_000)


def test_a_key_that_is_the_row_id_is_read_through_the_driver(tmp_path, monkeypatch):
    # Such a column is stored as NULL.
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        columns = "correlationId INTEGER PRIMARY KEY, start INTEGER"
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        rows = [(5, 1), (6, 2), (9, None)]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)", rows)
        database.commit()
    with SqliteProfile(path) as profile:
        read = profile.read("kernels", ("start_ns", "correlation_id"))
    assert read["correlation_id"].tolist() == [5, 6, 9]
    assert read["start_ns"].tolist() == [1, 2, NULL_INT]


def test_a_column_declared_as_real_is_read_through_the_driver(tmp_path, monkeypatch):
    # Its whole numbers are stored as integers, and SQLite returns them with a point.
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start REAL)")
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?)", [(5,), (6,)])
        database.commit()
    with SqliteProfile(path) as profile, pytest.raises(ProfileError, match="integers belong"):
        profile.read("kernels", ("start_ns",))
