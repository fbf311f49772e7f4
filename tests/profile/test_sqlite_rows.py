"""Whatever indexes, columns and pages an export has: every row keeps its own values."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pytest
from campaigns.decorations import decorate, remake

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.sqlite import rows, sqlite_profile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import table_source
from nsys_llm.testing.trace_builder import TraceBuilder

NVTX = "NVTX_EVENTS"
COLUMNS = ("text", "start_ns", "end_ns", "global_tid", "text_id")


def planted(path: Path, random: Random, rows_n: int) -> dict[int, str | None]:
    """Write ranges, each with a start of its own, and return the text of each by its start."""
    starts = random.sample(range(10**6), rows_n)
    texts = [random.choice(("z", "a", "m", "", f"r{start}")) for start in starts]
    ends = [None if random.random() < 0.1 else start + 5 for start in starts]
    TraceBuilder(duration_ns=10**7).nvtx_ranges(texts, start_ns=starts, end_ns=ends).write_sqlite(
        path
    )
    return dict(zip(starts, texts, strict=True))


def read(path: Path) -> dict[int, str | None]:
    with SqliteProfile(path) as profile:
        there = profile.columns("nvtx_events")
        columns = [
            column for column in COLUMNS if table_source("nvtx_events").columns[column] in there
        ]
        rows = profile.read("nvtx_events", columns)
    assert len({len(column) for column in rows.columns.values()}) == 1
    ends, starts = rows["end_ns"], rows["start_ns"]
    assert set(np.where(ends == NULL_INT, 5, ends - starts).tolist()) <= {5}
    assert len(set(starts.tolist())) == len(starts)
    return dict(zip(starts.tolist(), (text or "" for text in rows["text"]), strict=True))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("large", [1, 10**9], ids=["pages", "driver"])
def test_every_row_keeps_its_own_text_whatever_others_made_of_the_file(
    tmp_path, monkeypatch, seed, large
):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", large)
    monkeypatch.setattr(sqlite_profile, "_SPLIT_ROWS", 20)
    random = Random(seed)
    path = tmp_path / "r.sqlite"
    expected = planted(path, random, random.choice((1, 9, 60, 400)))
    done = decorate(path, NVTX, random)
    assert read(path) == expected, done


@pytest.mark.parametrize("seed", range(5))
def test_an_index_over_the_texts_moves_no_name(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    expected = planted(path, Random(seed), 500)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE INDEX names ON {NVTX} (text)")
        database.commit()
    with mock.patch.object(
        sqlite_profile, "read_integers", wraps=sqlite_profile.read_integers
    ) as it:
        assert read(path) == expected
    assert it.called


def test_reserved_bytes_are_no_reason_to_leave_the_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    expected = planted(path, Random(0), 300)
    remake(path, page_bytes=1024, reserved_bytes=100)
    assert path.read_bytes()[20] == 100
    with mock.patch.object(
        sqlite_profile, "read_integers", wraps=sqlite_profile.read_integers
    ) as it:
        assert read(path) == expected
    assert it.called


def moved(columns: list[np.ndarray], how: str) -> list[np.ndarray]:
    """Return what a wrong reader of pages would: rows in another order, or too few or many."""
    if how == "turned":
        return [np.roll(column, 1) for column in columns]
    if how == "sorted":
        return [np.sort(column) for column in columns]
    if how == "short":
        return [column[:-1] for column in columns]
    return [np.append(column, column[-1:]) for column in columns]


@pytest.mark.parametrize("how", ["turned", "sorted", "short", "long"])
@pytest.mark.parametrize("holes", [False, True])
def test_pages_that_differ_from_what_sqlite_says_are_not_used(tmp_path, monkeypatch, how, holes):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    expected = planted(path, Random(how), 200)
    if holes:
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"DELETE FROM {NVTX} WHERE rowid % 3 = 0")
            kept = {start for (start,) in database.execute(f"SELECT start FROM {NVTX}")}
            database.commit()
        expected = {start: text for start, text in expected.items() if start in kept}
    right = sqlite_profile.read_integers
    monkeypatch.setattr(sqlite_profile, "read_integers", lambda *given: moved(right(*given), how))
    assert read(path) == expected
    with SqliteProfile(path) as profile:
        starts = profile.read("nvtx_events", ("start_ns",))["start_ns"].tolist()
    assert starts == list(expected)


def test_texts_in_another_order_than_the_pages_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    expected = planted(path, Random(1), 300)
    right = SqliteProfile._bulk

    def sorted_texts(profile, source, shape, columns, span):
        table = right(profile, source, shape, columns, span)
        return table.take(np.argsort(table["text"])) if columns == ["text"] else table

    monkeypatch.setattr(SqliteProfile, "_bulk", sorted_texts)
    assert read(path) == expected


def test_a_table_whose_columns_take_all_names_of_a_row_id_is_read_whole(tmp_path):
    path = tmp_path / "r.sqlite"
    expected = planted(path, Random(2), 50)
    with closing(sqlite3.connect(path)) as database:
        for name in ("ROWID", "oid", "_rowid_"):
            database.execute(f"ALTER TABLE {NVTX} ADD COLUMN {name} INTEGER")
        database.execute(f"CREATE INDEX names ON {NVTX} (text, start, end, globalTid, textId)")
        database.commit()
    assert read(path) == expected


@pytest.mark.parametrize("index", ["name, value", "value, name", "value DESC"])
def test_an_index_over_names_and_values_changes_no_order(tmp_path, index):
    path = TraceBuilder().write_sqlite(tmp_path / "r.sqlite")
    values = ["c", "a", "b"]
    with closing(sqlite3.connect(path)) as database:
        rows = [("CAPTURE_EVENT_TYPE", value) for value in values]
        database.executemany("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", rows)
        database.execute(f"CREATE INDEX pairs ON META_DATA_CAPTURE ({index})")
        database.commit()
    with SqliteProfile(path) as profile:
        entries = profile.key_values("capture", ("CAPTURE_EVENT_TYPE",))
    assert [value for _, value in entries][-3:] == values


@pytest.mark.parametrize("seed", range(6))
def test_a_table_without_row_ids_comes_in_one_order_whatever_is_read(tmp_path, seed):
    random = Random(seed)
    path = tmp_path / "r.sqlite"
    expected = planted(path, random, 200)
    key = random.choice(("start", "globalTid, start", "start DESC"))
    with closing(sqlite3.connect(path)) as database:
        names = [row[1] for row in database.execute(f"PRAGMA table_info({NVTX})")]
        listed = ", ".join(f'"{name}"' for name in names)
        database.executescript(
            f"CREATE TABLE copy ({listed}, PRIMARY KEY ({key})) WITHOUT ROWID;"
            f"INSERT INTO copy SELECT {listed} FROM {NVTX}; DROP TABLE {NVTX};"
            f"ALTER TABLE copy RENAME TO {NVTX};"
            f'CREATE INDEX texts ON {NVTX} (text DESC); CREATE INDEX ends ON {NVTX} ("end")'
        )
    assert read(path) == expected
    with SqliteProfile(path) as profile:
        starts, ends, texts = (
            profile.read("nvtx_events", ("start_ns", *more))
            for more in ((), ("end_ns",), ("text",))
        )
    assert starts["start_ns"].tolist() == ends["start_ns"].tolist() == sorted(expected)
    assert texts["start_ns"].tolist() == sorted(expected)


def test_what_tables_look_like_is_asked_once_for_all_ranks(tmp_path, monkeypatch):
    paths = [tmp_path / f"r{rank}.sqlite" for rank in range(3)]
    for rank, path in enumerate(paths):
        planted(path, Random(rank), 9)
    with closing(sqlite3.connect(paths[2])) as database, database:
        database.execute(f"ALTER TABLE {NVTX} ADD COLUMN more INTEGER")
    asked = []
    shape_of = rows._asked_shape
    monkeypatch.setattr(rows, "_SHAPES", {})
    monkeypatch.setattr(
        rows,
        "_asked_shape",
        lambda database, table: (asked.append(table), shape_of(database, table))[1],
    )
    columns = []
    for path in paths:
        with SqliteProfile(path) as profile:
            columns.append(profile.columns("nvtx_events"))
    assert asked == [NVTX, NVTX]
    assert columns[0] == columns[1] == columns[2] - {"more"} != columns[2]
