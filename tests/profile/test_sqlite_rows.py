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
from trace_builder import TraceBuilder

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.sqlite import sqlite_profile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import table_source

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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("large", [1, 10**9], ids=["pages", "driver"])
def test_every_row_keeps_its_own_text_whatever_others_made_of_the_file(
    tmp_path, monkeypatch, seed, large
):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", large)
    random = Random(seed)
    path = tmp_path / "r.sqlite"
    expected = planted(path, random, random.choice((1, 9, 60, 400)))
    done = decorate(path, NVTX, random)
    assert read(path) == expected, done


@pytest.mark.parametrize("how", ["an index over the texts", "reserved bytes"])
def test_pages_are_read_whatever_stands_beside_the_rows(tmp_path, monkeypatch, how):
    monkeypatch.setattr(sqlite_profile, "_LARGE_ROWS", 1)
    path = tmp_path / "r.sqlite"
    expected = planted(path, Random(how), 400)
    if how == "reserved bytes":
        remake(path, page_bytes=1024, reserved_bytes=100)
        assert path.read_bytes()[20] == 100
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"CREATE INDEX names ON {NVTX} (text)")
            database.commit()
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

    def sorted_texts(profile, source, columns):
        table = right(profile, source, columns)
        return table.take(np.argsort(table["text"])) if columns == ["text"] else table

    monkeypatch.setattr(SqliteProfile, "_bulk", sorted_texts)
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
