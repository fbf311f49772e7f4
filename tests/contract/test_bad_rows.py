"""Rows that are damaged or odd: counted in coverage, never lost in silence, never a wrong sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command_line import Run, row, rows, run, snapshot
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
SENTINEL = -(2**63)

#: Counts of a coverage row that are 0 where nothing is odd.
ODD_COUNTS = (
    "broken_n",
    "zero_length_n",
    "no_process_n",
    "replaced_n",
    "unknown_name_n",
    "graph_node_n",
    "duplicate_key_n",
)


def builder() -> TraceBuilder:
    """Return a report with one sound kernel of 5 ns, launched by an API call; 99 ns long."""
    return TraceBuilder(duration_ns=99).kernel("a", start_ns=10, duration_ns=5, launch=(1, 3))


def analysed(report: TraceBuilder, folder: Path) -> Run:
    """Run over one report, written to folder/r.sqlite; results in folder/out."""
    report.write_sqlite(folder / "r.sqlite")
    before = snapshot(folder)
    ended = run("--input", folder / "r.sqlite", "--output", folder / "out")
    after = {name: state for name, state in snapshot(folder).items() if not name.startswith("out")}
    assert after == before
    return ended


def cells(folder: Path) -> list[Any]:
    tables = [table.file for table in load_manifest("llm_hotspots").writes]
    return [cell for table in tables for record in rows(folder, table) for cell in record.values()]


def test_odd_rows_are_counted_each_and_in_no_sum(tmp_path):
    """One that ends before it starts, without begin, end, device, or with times that do not fit."""
    report = builder().kernel("z", start_ns=12, duration_ns=0)
    for broken in (
        {"start": 9, "end": 5},
        {"start": None, "end": 24},
        {"start": 20, "end": None},
        {"start": 20, "end": 24, "deviceId": None},
        {"start": -(2**63) + 1, "end": 2**63 - 1},
    ):
        report.raw(KERNEL, **broken, demangledName="bad", shortName="bad")
    report.api("cudaLaunchKernel_v7000", start_ns=1, end_ns=2, correlation_id=-1)
    report.kernel("n", start_ns=16, duration_ns=2, correlation_id=-1)
    for start_ns in (4, 6):
        report.api("cudaLaunchKernel_v7000", start_ns=start_ns, duration_ns=1, correlation_id=77)
    report.kernel("b", start_ns=20, duration_ns=3, correlation_id=77)
    ended = analysed(report, tmp_path)
    assert (ended.code, ended.said) == (0, [])
    stated = row(tmp_path / "out", "capture", kind="broken_times")
    assert (stated["count_n"], stated["of_n"], stated["limits"]) == (5, 9, True)
    counted = row(tmp_path / "out", "coverage", op="kernel")
    odd = {name: counted[name] for name in ODD_COUNTS if counted[name]}
    assert odd == {"broken_n": 5, "zero_length_n": 1, "duplicate_key_n": 1}
    assert (counted["total_n"], counted["total_ns"]) == (4, 5 + 0 + 2 + 3)
    assert (counted["attributed_n"], counted["api_missing_n"]) == (2, 2)
    times = {record["name"]: record["total_ns"] for record in rows(tmp_path / "out", "kernels")}
    assert times == {"a": 5, "z": 0, "n": 2, "b": 3}
    assert [record["device_id"] for record in rows(tmp_path / "out", "devices")] == [0]
    assert str(SENTINEL) not in map(str, cells(tmp_path / "out"))


def test_kernels_without_a_process_are_a_rank_of_their_own_beside_several(tmp_path):
    report = builder().kernel("a", start_ns=2, duration_ns=1, pid=200)
    report.raw(KERNEL, start=20, end=24, globalPid=None, demangledName="b", shortName="b")
    assert analysed(report, tmp_path).code == 0
    out = tmp_path / "out"
    assert {record["pid"] for record in rows(out, "files")} == {100, 200, None}
    counted = [record for record in rows(out, "coverage") if record["op"] == "kernel"]
    assert sorted(record["no_process_n"] for record in counted) == [0, 0, 1]
    assert sorted(record["total_ns"] for record in counted) == [1, 4, 5]
    assert str(SENTINEL) not in map(str, cells(out))
