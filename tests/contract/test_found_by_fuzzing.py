"""Inputs that fuzzing found, each as small as it can be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import run
from trace_builder import TraceBuilder

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def report() -> TraceBuilder:
    """Return four steps of one kernel of 5 ns."""
    builder = TraceBuilder(duration_ns=999)
    for step in range(4):
        at_ns = 100 * step
        builder.nvtx("step", at_ns, at_ns + 90)
        builder.kernel("a", start_ns=at_ns + 10, duration_ns=5, launch=(at_ns + 1, at_ns + 3))
    return builder


def refused(path: Path, *telling: str) -> None:
    ended = run("--input", path, "--output", path.with_name("out"))
    assert (ended.code, len(ended.said)) == (2, 1), ended.said
    for words in telling:
        assert words in ended.said[0]
    assert not path.with_name("out").exists()


def test_a_parquet_table_with_a_column_twice_is_refused(tmp_path):
    folder = report().write_parquet(tmp_path / "r_pqtdir")
    table = pq.read_table(folder / f"{KERNEL}.parquet")
    again = table.append_column(table.field("end"), table["end"])
    pq.write_table(again, folder / f"{KERNEL}.parquet")
    refused(folder, f"r_pqtdir/{KERNEL}.parquet: cannot be read", "Column end")


def test_a_parquet_table_in_the_place_of_another_is_refused(tmp_path):
    folder = report().write_parquet(tmp_path / "r_pqtdir")
    other = (folder / "TARGET_INFO_SYSTEM_ENV.parquet").read_bytes()
    (folder / "StringIds.parquet").write_bytes(other)
    refused(folder, "r_pqtdir/StringIds.parquet: cannot be read", "Column id")


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_a_name_in_a_damaged_schema_is_no_text(tmp_path, kind):
    if kind == "sqlite":
        path = report().write_sqlite(tmp_path / "r.sqlite")
        raw = path.read_bytes()
        assert b'TABLE "PROCESSES"' in raw
        path.write_bytes(raw.replace(b'TABLE "PROCESSES"', b'TABLX "PROC\xff\xffSES"'))
    else:
        path = report().write_parquet(tmp_path / "r_pqtdir")
        table = path / f"{KERNEL}.parquet"
        table.write_bytes(table.read_bytes().replace(b"shortName", b"short\xe5ame"))
    refused(path, "r", "damaged" if kind == "sqlite" else "cannot be read")


def test_a_record_nested_too_deep_is_no_record_of_ours(tmp_path):
    path = report().write_sqlite(tmp_path / "r.sqlite")
    out = tmp_path / "out"
    out.mkdir()
    (out / "out.nsys-analysis").write_text("[" * 100_000)
    ended = run("--input", path, "--output", out, "--force-overwrite")
    assert (ended.code, len(ended.said)) == (2, 1)
    assert "not replaced, out.nsys-analysis cannot be read" in ended.said[0]


def test_a_column_that_is_computed_counts_as_missing(tmp_path):
    # It could be any expression, and take any time and memory.
    path = report().write_sqlite(tmp_path / "r.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f'ALTER TABLE {KERNEL} RENAME COLUMN "end" TO was;'
            f'ALTER TABLE {KERNEL} ADD COLUMN "end" INTEGER AS (length(zeroblob(1 << 30)))'
        )
    refused(path, f"table {KERNEL} lacks the column end")
