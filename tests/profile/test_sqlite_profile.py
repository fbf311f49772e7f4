"""The SQLite reader: exact values, and what it says of files that it cannot read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from effort import examples
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.sqlite import sqlite_profile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


@pytest.fixture
def export(tmp_path) -> Path:
    profile = TraceBuilder(duration_ns=99).kernel("a", start_ns=1, duration_ns=4, launch=(0, 1))
    profile.raw(KERNEL, start=7, end=9, globalPid=None, demangledName="b", shortName="b")
    return profile.write_sqlite(tmp_path / "r.sqlite")


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def explained(path: Path) -> str:
    """Open a file that cannot be read, and return the one line that says why."""
    with pytest.raises(ProfileError) as caught, SqliteProfile(path) as profile:
        profile.read("kernels", ("start_ns",))
    assert "\n" not in caught.value.message
    assert path.name in caught.value.message
    return caught.value.message


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.one_of(INT64, st.none()), max_size=9))
@example(values=[-(2**63) + 1, 2**53 + 1, None, -1])
def test_every_integer_comes_back_bit_by_bit(tmp_path, values):
    path = tmp_path / "r.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute(f"CREATE TABLE {KERNEL} (correlationId INTEGER)")
        rows = [(value,) for value in values]
        database.executemany(f"INSERT INTO {KERNEL} VALUES (?)", rows)
        database.commit()
    with SqliteProfile(path) as profile:
        read_ids = profile.read("kernels", ("correlation_id",))["correlation_id"].tolist()
    assert read_ids == [NULL_INT if value is None else value for value in values]


@pytest.mark.slow
def test_rows_beyond_one_batch_are_all_read_in_order(tmp_path):
    rows_n = 65_536 + 2
    profile = TraceBuilder(duration_ns=9)
    profile.kernels(["a"], [0] * rows_n, start_ns=range(rows_n), end_ns=range(1, rows_n + 1))
    with SqliteProfile(profile.write_sqlite(tmp_path / "r.sqlite")) as opened:
        assert np.array_equal(opened.read("kernels", ("start_ns",))["start_ns"], np.arange(rows_n))


def test_more_strings_than_one_query_takes_are_all_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_profile, "_IDS_PER_QUERY", 2)
    path = TraceBuilder().write_sqlite(tmp_path / "r.sqlite")
    change(path, "DELETE FROM StringIds; INSERT INTO StringIds VALUES (1,'a'),(2,'b'),(3,'c')")
    with SqliteProfile(path) as profile:
        assert profile.texts(np.array([1, 2, 3])) == {1: "a", 2: "b", 3: "c"}


def test_only_the_wanted_keys_of_a_name_and_value_table_are_returned(tmp_path):
    path = TraceBuilder(hostname="n1").environment(KEY="x").write_sqlite(tmp_path / "r.sqlite")
    change(path, "INSERT INTO META_DATA_EXPORT VALUES ('NOTHING', NULL)")
    with SqliteProfile(path) as profile:
        assert profile.key_values("system", ("Hostname", "Nope")) == [("Hostname", "n1")]
        assert profile.key_values("export", ("NOTHING",)) == []


def test_reading_changes_nothing_and_leaves_nothing_beside_the_file(export):
    before = (export.read_bytes(), export.stat().st_mtime_ns)
    with SqliteProfile(export) as profile:
        profile.read("kernels", ("start_ns",))
        assert os.listdir(export.parent) == ["r.sqlite"]
        with pytest.raises(sqlite3.Error):
            profile._database.execute("DELETE FROM StringIds")
    assert (export.read_bytes(), export.stat().st_mtime_ns) == before
    assert os.listdir(export.parent) == ["r.sqlite"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: b"", "empty"),
        (lambda whole: whole[:4097], "truncated, 4,097 of {:,} bytes"),
        (lambda whole: whole[:4096] + b"\xff" * (len(whole) - 4096), "damaged"),
        (lambda whole: whole.replace(b'E "PROCESSES"', b'X "PROC\xff\xffSES"'), "damaged"),
    ],
)
def test_a_damaged_file_says_so(export, damage, said):
    whole = export.read_bytes()
    export.write_bytes(damage(whole))
    assert export.read_bytes() != whole
    assert said.format(len(whole)) in explained(export)


def test_a_file_with_bytes_after_its_last_page_is_read(export):
    export.write_bytes(export.read_bytes() + b"\0" * 10)
    with SqliteProfile(export) as profile:
        assert len(profile.read("kernels", ("start_ns",))) == 2


def test_a_page_count_that_is_out_of_date_does_not_make_a_file_truncated(export):
    # Writers before SQLite 3.7.0 left both the count (28:32) and its stamp (92:96) behind.
    content = bytearray(export.read_bytes())
    content[28:32] = (9999).to_bytes(4, "big")
    content[92:96] = (int.from_bytes(content[24:28], "big") + 1).to_bytes(4, "big")
    export.write_bytes(content)
    with SqliteProfile(export) as profile:
        assert len(profile.read("kernels", ("start_ns",))) == 2


def test_a_column_that_is_computed_counts_as_missing(export):
    # It could be any expression, and take any time and memory.
    change(export, f'ALTER TABLE {KERNEL} RENAME COLUMN "start" TO was')
    change(export, f'ALTER TABLE {KERNEL} ADD COLUMN "start" INTEGER AS (was)')
    with SqliteProfile(export) as profile:
        assert "start" not in profile.columns("kernels")


def test_a_locked_file_says_so(export, monkeypatch):
    monkeypatch.setattr(sqlite_profile, "_BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(export, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert "locked by another program" in explained(export)


def test_a_file_that_is_locked_after_it_was_opened_says_so(export, monkeypatch):
    monkeypatch.setattr(sqlite_profile, "_BUSY_SECONDS", 0.05)
    with (
        SqliteProfile(export) as profile,
        closing(sqlite3.connect(export, isolation_level=None)) as writer,
    ):
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ProfileError, match="locked by another program"):
            profile.read("kernels", ("start_ns",))


@pytest.mark.parametrize("kept", ["StringIds", "META_DATA_EXPORT"])
def test_one_of_two_tables_marks_an_export(export, kept):
    for table in {"StringIds", "META_DATA_EXPORT"} - {kept}:
        change(export, f"DROP TABLE {table}")
    with SqliteProfile(export) as profile:
        assert profile.has("kernels")


def test_extensions_cannot_be_loaded(export):
    with (
        SqliteProfile(export) as profile,
        pytest.raises(sqlite3.OperationalError, match="not authorized"),
    ):
        profile._database.execute("SELECT load_extension('x')")


def in_circles(path: Path) -> Path:
    """Write 20,000 kernels, and let all pointers of the topmost page lead to one page below it."""
    shape = (
        f"CREATE TABLE {KERNEL} (start INTEGER); CREATE TABLE StringIds (id INTEGER, value TEXT)"
    )
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"PRAGMA page_size = 512; {shape}")
        rows = ((number,) for number in range(20_000))
        database.executemany(f"INSERT INTO {KERNEL} VALUES (?)", rows)
        database.commit()
        (root,) = database.execute("SELECT rootpage FROM sqlite_master").fetchone()
    raw = bytearray(path.read_bytes())
    first = (root - 1) * 512
    assert raw[first] == 5  # an interior page
    cells_n = int.from_bytes(raw[first + 3 : first + 5], "big")
    for cell in range(cells_n):
        at = first + int.from_bytes(raw[first + 12 + 2 * cell : first + 14 + 2 * cell], "big")
        raw[at : at + 4] = raw[first + 8 : first + 12]
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("how", ["another in its place", "written to"])
def test_a_file_that_changes_between_two_tables_is_refused(tmp_path, how):
    other = TraceBuilder().kernel("b", start_ns=1, duration_ns=9).write_sqlite(tmp_path / "other")
    path = TraceBuilder().kernel("a", start_ns=1, duration_ns=5).write_sqlite(tmp_path / "r.sqlite")
    with SqliteProfile(path) as profile:
        assert profile.read("kernels", ("end_ns",))["end_ns"].tolist() == [6]
        if how == "written to":
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE StringIds SET value = 'c'")
        else:
            os.replace(other, path)
        with pytest.raises(ProfileError, match=r"r\.sqlite: changed while it was read; wait"):
            profile.texts(np.array([1]))
        with pytest.raises(ProfileError, match="changed while it was read"):
            profile.read("kernels", ("start_ns",))


def test_more_rows_than_a_file_can_hold_are_refused(tmp_path, monkeypatch):
    path = in_circles(tmp_path / "r.sqlite")
    assert len(path.read_bytes()) // 5 < 20_000 * 3
    monkeypatch.setattr(sqlite_profile, "_LEAST_ROW_BYTES", 40)
    assert "damaged (malformed: more rows than the file can hold)" in explained(path)


def test_a_query_that_never_ends_is_ended(export, monkeypatch):
    monkeypatch.setattr(sqlite_profile, "_LEAST_STEPS", 1)
    monkeypatch.setattr(sqlite_profile, "_INSTRUCTIONS_PER_STEP", 1)
    with pytest.raises(ProfileError, match="damaged"):
        SqliteProfile(export)
