"""Rows that are damaged or odd: counted in coverage, never lost in silence, never a wrong sum."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command_line import Run, row, rows, run, snapshot
from results import only_tables

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.testing.trace_builder import TraceBuilder

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
SENTINEL = -(2**63)

#: Counts of a coverage row that are 0 where nothing is odd.
ODD_COUNTS = (
    "broken_n",
    "zero_length_n",
    "no_process_n",
    "replaced_n",
    "unknown_name_n",
    "large_id_n",
    "graph_node_n",
    "duplicate_key_n",
)


#: Why rows are left out.
BROKEN = "(end before start, no time or device, or a time beyond 104 days)"
HALF = [f"warning: r: 50 % of the rows of GPU work are broken {BROKEN}."]


def builder() -> TraceBuilder:
    """Return a report with one sound kernel of 5 ns, launched by an API call; 99 ns long."""
    return TraceBuilder(duration_ns=99).kernel("a", start_ns=10, duration_ns=5, launch=(1, 3))


def changed(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)
    return path


def analysed(report: TraceBuilder, folder: Path, script: str = "") -> Run:
    """Run over one report, written to folder/r.sqlite; results in folder/out."""
    changed(report.write_sqlite(folder / "r.sqlite"), script)
    before = snapshot(folder)
    ended = run("--input", folder / "r.sqlite", "--output", folder / "out")
    after = {name: state for name, state in snapshot(folder).items() if not name.startswith("out")}
    assert after == before
    return ended


def cells(folder: Path) -> list[Any]:
    tables = [table.file for table in load_manifest("llm_hotspots").writes]
    return [cell for table in tables for record in rows(folder, table) for cell in record.values()]


def assert_counted(
    report: TraceBuilder, folder: Path, said: Sequence[str] = (), **expected: int
) -> dict[str, Any]:
    """Assert the counts of the kernels' coverage row; those not named must be 0."""
    ended = analysed(report, folder)
    assert (ended.code, ended.said) == (0, [*said])
    counted = row(folder / "out", "coverage", op="kernel")
    odd = {name: counted[name] for name in ODD_COUNTS if counted[name]}
    assert odd == {name: count for name, count in expected.items() if name in ODD_COUNTS}
    for name in expected.keys() - set(ODD_COUNTS):
        assert counted[name] == expected[name], name
    assert counted["api_missing_n"] + counted["attributed_n"] == counted["total_n"]
    assert counted["api_missing_ns"] + counted["attributed_ns"] == counted["total_ns"]
    assert SENTINEL not in cells(folder / "out")
    assert str(SENTINEL) not in map(str, cells(folder / "out"))
    return counted


def test_a_kernel_that_ends_before_it_starts_is_left_out_and_counted(tmp_path):
    report = builder().raw(KERNEL, start=9, end=5, demangledName="bad", shortName="bad")
    assert_counted(report, tmp_path, HALF, broken_n=1, total_n=1, total_ns=5)
    assert [record["name"] for record in rows(tmp_path / "out", "kernels")] == ["a"]


@pytest.mark.parametrize("lost", ["start", "end"])
def test_a_kernel_without_a_time_is_left_out_and_counted(tmp_path, lost):
    times = {"start": 20, "end": 24} | {lost: None}
    report = builder().raw(KERNEL, demangledName="bad", shortName="bad", **times)
    assert_counted(report, tmp_path, HALF, broken_n=1, total_n=1, total_ns=5)


def test_times_whose_difference_does_not_fit_are_broken(tmp_path):
    report = builder().raw(
        KERNEL, start=-(2**63) + 1, end=2**63 - 1, demangledName="bad", shortName="bad"
    )
    assert_counted(report, tmp_path, HALF, broken_n=1, total_n=1, total_ns=5)


@pytest.mark.parametrize(("broken_n", "said"), [(5, False), (6, True)])
def test_more_than_a_twentieth_of_broken_rows_is_said(tmp_path, broken_n, said):
    report = TraceBuilder()
    for begun in range(100):
        report.kernel("k", start_ns=100 * begun, end_ns=100 * begun + 50 * (begun >= broken_n) - 5)
    lines = [f"warning: r: {broken_n} % of the rows of GPU work are broken {BROKEN}."]
    assert analysed(report, tmp_path).said == (lines if said else [])


def test_kernels_of_zero_length_count_as_operations(tmp_path):
    report = builder().kernel("z", start_ns=12, duration_ns=0).kernel("z", start_ns=15, end_ns=15)
    assert_counted(report, tmp_path, zero_length_n=2, total_n=3, total_ns=5, selected_n=3)
    zero = row(tmp_path / "out", "kernels", name="z")
    assert (zero["launches_n"], zero["total_ns"], zero["max_ns"]) == (2, 0, 0)


def test_a_kernel_without_a_device_is_counted_and_no_device_is_made_up(tmp_path):
    report = builder().raw(
        KERNEL, start=20, end=24, deviceId=None, demangledName="bad", shortName="bad"
    )
    assert_counted(report, tmp_path, HALF, broken_n=1)
    assert [record["device_id"] for record in rows(tmp_path / "out", "devices")] == [0]


def test_kernels_without_a_process_are_a_rank_of_their_own_beside_several(tmp_path):
    report = builder().kernel("a", start_ns=2, duration_ns=1, pid=200)
    report.raw(KERNEL, start=20, end=24, globalPid=None, demangledName="b", shortName="b")
    assert analysed(report, tmp_path).code == 0
    out = tmp_path / "out"
    assert {record["pid"] for record in rows(out, "files")} == {100, 200, None}
    counted = [record for record in rows(out, "coverage") if record["op"] == "kernel"]
    assert sorted(record["no_process_n"] for record in counted) == [0, 0, 1]
    assert sorted(record["total_ns"] for record in counted) == [1, 4, 5]
    assert SENTINEL not in cells(out)
    assert str(SENTINEL) not in map(str, cells(out))


def written(report: TraceBuilder, folder: Path, kind: str) -> Path:
    if kind == "sqlite":
        return report.write_sqlite(folder / "r.sqlite")
    return report.write_parquet(folder / "r_pqtdir")


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
@pytest.mark.parametrize("identity", [2**53 + 1, 2**63 - 3])
def test_large_correlation_ids_join_exactly(tmp_path, kind, identity):
    # identity - 1 and identity are the same double: a join in floating point would find both.
    report = TraceBuilder(duration_ns=99)
    for number in (identity - 1, identity):
        report.api("cudaLaunchKernel_v7000", start_ns=1, end_ns=2, correlation_id=number)
    report.kernel("a", start_ns=10, duration_ns=5, correlation_id=identity)
    report.kernel("b", start_ns=20, duration_ns=7, correlation_id=identity + 1)
    path = written(report, tmp_path, kind)
    only_tables(tmp_path / "out", path)
    counted = row(tmp_path / "out", "coverage", op="kernel")
    assert (counted["attributed_ns"], counted["api_missing_ns"]) == (5, 7)
    assert (counted["large_id_n"], counted["duplicate_key_n"]) == (2, 0)


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_operations_with_a_negative_correlation_id_stay_in_every_sum(tmp_path, kind):
    report = TraceBuilder(duration_ns=99)
    report.api("cudaLaunchKernel_v7000", start_ns=1, end_ns=2, correlation_id=-1)
    report.kernel("a", start_ns=10, duration_ns=5, correlation_id=-1)
    path = written(report, tmp_path, kind)
    only_tables(tmp_path / "out", path)
    counted = row(tmp_path / "out", "coverage", op="kernel")
    assert (counted["total_ns"], counted["api_missing_ns"], counted["large_id_n"]) == (5, 5, 1)
    assert row(tmp_path / "out", "kernels", name="a")["total_ns"] == 5


def test_a_join_key_that_two_api_calls_claim_is_counted_once(tmp_path):
    report = builder()
    for start_ns in (4, 6):
        report.api("cudaLaunchKernel_v7000", start_ns=start_ns, duration_ns=1, correlation_id=77)
    report.kernel("b", start_ns=20, duration_ns=3, correlation_id=77)
    assert_counted(report, tmp_path, duplicate_key_n=1, total_n=2, attributed_n=2)


def test_a_needed_column_that_is_missing_is_named(tmp_path):
    script = f"ALTER TABLE {KERNEL} RENAME COLUMN demangledName TO other"
    ended = analysed(builder(), tmp_path, script)
    assert (ended.code, len(ended.said)) == (2, 1)
    assert f"r.sqlite: table {KERNEL} lacks the column demangledName" in ended.said[0]


@pytest.fixture(scope="module")
def many_kernels(tmp_path_factory) -> Path:
    """Write 66,000 kernels; the reader takes 65,536 rows at a time."""
    report, kernels_n = TraceBuilder(duration_ns=99), 66_000
    starts = range(kernels_n)
    report.kernels(
        ["a"], [0] * kernels_n, start_ns=starts, end_ns=[start_ns + 1 for start_ns in starts]
    )
    return report.write_sqlite(tmp_path_factory.mktemp("many") / "r.sqlite")


@pytest.mark.parametrize("value", ["'ten'", "10.5", "x'00'", "9223372036854775808"])
@pytest.mark.parametrize("rowid", [1, 66_000], ids=["first batch", "second batch"])
def test_what_is_no_integer_where_integers_belong_is_refused(tmp_path, many_kernels, value, rowid):
    path = tmp_path / "r.sqlite"
    shutil.copyfile(many_kernels, path)
    changed(path, f"UPDATE {KERNEL} SET end = {value} WHERE rowid = {rowid}")
    ended = run("--input", path, "--output", tmp_path / "out")
    assert (ended.code, len(ended.said)) == (2, 1)
    assert "r.sqlite: " in ended.said[0]
    assert "integers belong" in ended.said[0]


def test_table_and_column_names_with_quotes_are_harmless(tmp_path):
    script = """
        CREATE TABLE "x"" (id); DROP TABLE StringIds; --" (a);
        CREATE TABLE "it's [a] `table`" ("a""b" INTEGER);
        CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END;
    """
    assert analysed(builder(), tmp_path, script).code == 0
    assert row(tmp_path / "out", "kernels", name="a")["total_ns"] == 5


def test_a_name_that_is_not_utf8_does_not_cost_the_rank(tmp_path):
    script = "UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE value = 'a'"
    assert analysed(builder(), tmp_path, script).code == 0
    (kernel,) = rows(tmp_path / "out", "kernels")
    assert kernel["total_ns"] == 5
    assert kernel["name"].startswith("a")
    assert kernel["name"].endswith("b")


def test_hostile_names_reach_parquet_as_they_are_and_csv_as_text(tmp_path):
    report = TraceBuilder().kernel("=HYPERLINK(1)", start_ns=1, duration_ns=2)
    report.kernel("<script>", start_ns=5, duration_ns=1).write_sqlite(tmp_path / "r.sqlite")
    out = tmp_path / "out"
    assert run("--input", tmp_path / "r.sqlite", "--output", out, "--csv").code == 0
    names = pq.read_table(out / "kernels.parquet").column("name").to_pylist()
    assert names == ["=HYPERLINK(1)", "<script>"]
    cells_of_csv = (out / "kernels.csv").read_text("utf-8").splitlines()[1:]
    assert [line.split(",")[0] for line in cells_of_csv] == ["'=HYPERLINK(1)", "<script>"]
