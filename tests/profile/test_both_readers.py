"""What the readers of SQLite files and of folders of parquet files have in common."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@dataclass
class Sqlite:
    path: Path
    open = SqliteProfile

    def write(self, trace: TraceBuilder) -> None:
        trace.write_sqlite(self.path)

    def replace(self, table: str, **columns: Sequence[Any]) -> None:
        """Put a table of these columns in the place of one, or beside the others."""
        with closing(sqlite3.connect(self.path)) as database:
            database.execute(f"DROP TABLE IF EXISTS {table}")
            database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            rows = zip(*columns.values(), strict=True)
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            database.commit()


@dataclass
class Parquet:
    path: Path
    open = ParquetProfile

    def write(self, trace: TraceBuilder) -> None:
        trace.write_parquet(self.path)

    def replace(self, table: str, **columns: Sequence[Any]) -> None:
        self.path.mkdir(exist_ok=True)
        arrays: Mapping[str, pa.Array] = {name: pa.array(items) for name, items in columns.items()}
        pq.write_table(pa.table(arrays), self.path / f"{table}.parquet")


@pytest.fixture(params=[Sqlite, Parquet])
def export(request, tmp_path):
    """An export that is not written yet."""
    name = "r.sqlite" if request.param is Sqlite else "r_pqtdir"
    return request.param(tmp_path / name)


@pytest.fixture
def written(export):
    """One with two kernels, of which the second has no process."""
    trace = TraceBuilder(duration_ns=99).kernel("a", start_ns=1, duration_ns=4, launch=(0, 1))
    trace.raw(KERNEL, start=7, end=9, globalPid=None, demangledName="b", shortName="b")
    for start_ns, goes_on in ((5, True), (9, False)):
        trace.thread_switch(start_ns=start_ns, goes_on=goes_on)
    export.write(trace)
    return export


def explained(export: Any) -> str:
    """Read an export that cannot be read, and return the one line that says why."""
    with pytest.raises(ProfileError) as caught, export.open(export.path) as profile:
        profile.read("kernels", ("start_ns",))
    assert "\n" not in caught.value.message
    assert export.path.name in caught.value.message
    return caught.value.message


def test_columns_are_read_as_integers_in_the_order_that_was_asked_for(written):
    columns = ("end_ns", "start_ns", "global_pid", "correlation_id", "demangled_name_id")
    with written.open(written.path) as profile:
        rows = profile.read("kernels", columns)
        names = profile.texts(rows["demangled_name_id"])
        assert {"start", "end", "demangledName"} <= profile.columns("kernels")
        switches = profile.read("thread_switches", ("start_ns", "goes_on"))
    assert list(rows.columns) == list(columns)
    assert {values.dtype for values in rows.columns.values()} == {np.dtype(np.int64)}
    assert rows["end_ns"].tolist() == [5, 9]
    assert rows["start_ns"].tolist() == [1, 7]
    assert rows["global_pid"].tolist() == [(1 << 48) | (100 << 24), NULL_INT]
    assert [names[key] for key in rows["demangled_name_id"].tolist()] == ["a", "b"]
    # True and false, as parquet has them, are 1 and 0.
    assert switches["goes_on"].tolist() == [1, 0]


def test_a_table_without_rows_has_typed_columns(export):
    export.write(TraceBuilder(lazy=False))
    with export.open(export.path) as profile:
        assert profile.has("kernels")
        rows = profile.read("kernels", ("start_ns", "end_ns"))
        texts = profile.read("nvtx_events", ("text",))
    assert (len(rows), rows["start_ns"].dtype, texts["text"].dtype) == (0, np.int64, object)


def test_a_table_that_is_not_there_has_no_columns(export):
    export.replace("StringIds", id=[1], value=["a"])
    with export.open(export.path) as profile:
        assert not profile.has("kernels")
        assert profile.columns("kernels") == frozenset()


def test_texts_leaves_out_ids_without_a_string(written):
    written.replace("StringIds", id=[1, 2, 3], value=["a", "b", None])
    with written.open(written.path) as profile:
        assert profile.texts(np.array([1, 2, 3, 77, -5, 2**62])) == {1: "a", 2: "b"}
        assert profile.texts(np.empty(0, dtype=np.int64)) == {}


def test_what_is_gone_is_told_and_not_created(export, tmp_path):
    assert "cannot be read" in explained(export)
    assert os.listdir(tmp_path) == []


def test_what_holds_something_else_is_told_how_to_export(export):
    export.replace("people", id=[1])
    kind = "sqlite" if isinstance(export, Sqlite) else "parquetdir"
    assert f"nsys export --type {kind}" in explained(export)


@pytest.mark.parametrize("value", ["ten", "1", 1.5, b"0"])
def test_what_is_no_integer_is_told_with_its_column(written, value):
    written.replace(KERNEL, start=[value])
    message = explained(written)
    assert "start" in message
    assert "integers belong" in message
