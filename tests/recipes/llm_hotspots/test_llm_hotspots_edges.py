"""Edges of windows, devices, graphs and names where a number would be wrong without a word."""

from __future__ import annotations

import pytest
from results import only_tables, read_frames, read_report, rows, tables_of
from trace_builder import TraceBuilder


def written(tmp_path, trace, name="t.sqlite"):
    return trace.write_sqlite(tmp_path / name)


def test_the_odd_ns_in_a_window_goes_to_the_kernel_that_really_started_first(tmp_path):
    # z [0, 20) and a [5, 15) share all 5 ns of the window [10, 15): 2 each, and 1 to z.
    trace = TraceBuilder().kernel("z", start_ns=0, end_ns=20)
    trace.kernel("a", start_ns=5, end_ns=15, stream_id=8)
    tables = tables_of(tmp_path / "o", written(tmp_path, trace), options=["--filter-time", "10/15"])
    assert rows(tables["kernels"], "name exclusive_ns") == [("z", 3), ("a", 2)]


def test_a_device_that_idles_in_the_window_stays_a_part_of_the_whole(tmp_path):
    # Device 0 is busy all 10 ns of the window, device 1 none of them.
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=10)
    trace.kernel("b", start_ns=50, end_ns=60, device_id=1)
    tables = tables_of(tmp_path / "o", written(tmp_path, trace), options=["--filter-time", "0/10"])
    assert rows(tables["devices"], "device_id window_ns kernel_busy_ns") == [
        (0, 10, 10),
        (1, 10, 0),
    ]
    assert rows(tables["kernels"], "name exclusive_ns") == [("a", 10)]
    assert tables["files"]["device_ids"].tolist() == ["0,1"]


@pytest.mark.slow
def test_the_engine_is_that_of_the_run_whatever_window_is_looked_at(tmp_path):
    trace = TraceBuilder().kernel(
        "void vllm::reshape_and_cache_flash_kernel<int>(int)", start_ns=0, end_ns=9
    )
    trace.kernel("void at::native::reduce_kernel<512>(int)", start_ns=20, end_ns=30)
    report = written(tmp_path, trace)
    whole = tables_of(tmp_path / "o", report)["categories"]["engine"].unique().tolist()
    options = ["--filter-time", "20/30"]
    part = tables_of(tmp_path / "p", report, options=options)["categories"]["engine"].unique()
    assert part.tolist() == whole == ["vllm"]


@pytest.mark.slow
def test_a_report_with_copies_only_says_what_it_cannot_tell(tmp_path):
    trace = TraceBuilder().memcpy("HtoD", start_ns=1, duration_ns=4, size_bytes=8)
    tables = tables_of(tmp_path / "o", written(tmp_path, trace), whole=True)
    assert tables["devices"]["busy_ns"].tolist() == [4]
    (note,) = read_report(tmp_path / "o")["notes"]
    assert "no rows in CUPTI_ACTIVITY_KIND_KERNEL; all statistics of kernels are missing" in note


@pytest.mark.slow
def test_a_name_that_is_no_text_reads_the_same_from_both_kinds(tmp_path):
    # The name was cut off inside a character of three bytes.
    trace = TraceBuilder(lazy=False).kernel("good", start_ns=1, duration_ns=4)
    sqlite = written(tmp_path, trace)
    parquet = trace.write_parquet(tmp_path / "t_pqtdir")
    _cut_name(sqlite, parquet)
    only_tables(tmp_path / "a", sqlite)
    only_tables(tmp_path / "b", parquet)
    left, right = (read_frames(tmp_path / folder)["kernels"]["name"].tolist() for folder in "ab")
    assert left == right == ["goo\\xe2\\x82"]


def _cut_name(sqlite, parquet):
    import sqlite3

    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = b"goo\xe2\x82"
    with sqlite3.connect(sqlite) as database:
        database.execute(
            "UPDATE StringIds SET value = CAST(? AS TEXT) WHERE value = 'good'", (raw,)
        )
    database.close()
    file = parquet / "StringIds.parquet"
    table = pq.read_table(file)
    values = [raw if text == "good" else text.encode() for text in table["value"].to_pylist()]
    cut = pa.array(values, pa.binary()).view(pa.string())
    pq.write_table(table.set_column(1, table.schema.field(1), cut), file)
