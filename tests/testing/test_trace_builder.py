"""The builder writes exports that look like real ones and hold what was asked for."""

from __future__ import annotations

import csv
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from trace_builder import TraceBuilder

from nsys_llm.testing.trace_bulk import base_name
from nsys_llm.testing.trace_schema import ExportSchema, schema_versions

VERSIONS = schema_versions()
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def sqlite_rows(path: Path, table: str, *columns: str) -> list[tuple[object, ...]]:
    names = ", ".join(f'"{column}"' for column in columns) or "*"
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f'SELECT {names} FROM "{table}"').fetchall()


def declared_columns(path: Path, table: str) -> list[tuple[str, str, int, int]]:
    """Return name, type, NOT NULL and primary key of each column."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [(row[1], row[2], row[3], row[5]) for row in rows]


def one_of_everything(schema: str = "3.25.0", *, lazy: bool = True) -> TraceBuilder:
    builder = TraceBuilder(schema=schema, lazy=lazy).process(pid=100, name="server")
    builder.kernel("void k<int>(int)", start_ns=50, duration_ns=8, launch=(10, 15))
    builder.graph_launch([("a", 60, 63), ("b", 64, 70)], launch=(20, 30))
    builder.graph_launch([("a", 71, 73), ("b", 74, 75)], launch=(31, 32), mode="graph")
    builder.memcpy("HtoD", start_ns=80, duration_ns=4, size_bytes=64, launch=(33, 34))
    builder.memset(start_ns=90, end_ns=92, size_bytes=16)
    builder.api("cudaStreamSynchronize_v3020", start_ns=35, end_ns=95)
    builder.nvtx("step 1", 5, 96).nvtx("ncclAllReduce", 6, 9, domain="NCCL", registered=True)
    builder.osrt("poll", start_ns=1, duration_ns=2).graph_node(7, start_ns=3)
    builder.overhead("CUPTI Buffer flush", start_ns=97, duration_ns=3, overhead_type=3)
    return builder.environment(RANK="0").mpi_rank(100, 0).thread(100, "main")


@pytest.mark.parametrize(
    ("demangled", "base"),
    [
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"),
        ("vectorAdd(const float *, int)", "vectorAdd"),
        ("void cutlass::Kernel2<cutlass_80_gemm<(int)4>>(T1::Params)", "Kernel2"),
        ("void at::native::(anonymous namespace)::soft<(int)8, n::E>(T2 *)", "soft"),
        ("void at::native::<unnamed>::f<at::native::<unnamed>::X>(T1)", "f"),
        ("std::enable_if<(T2>(0))&&v::C<T1>::e, void>::type v::norm<B, (int)8>(T1 *)", "norm"),
    ],
)
def test_base_name_is_what_nsight_systems_calls_short(demangled, base):
    assert base_name(demangled) == base


@pytest.mark.parametrize("version", VERSIONS)
def test_both_formats_hold_the_same_rows_under_the_declared_columns(tmp_path, version):
    builder = one_of_everything(version, lazy=False)
    path, folder = tmp_path / "x.sqlite", tmp_path / "x_pqtdir"
    builder.write_sqlite(path)
    builder.write_parquet(folder)
    schema = ExportSchema.load(version)
    for table, columns in schema.tables.items():
        assert declared_columns(path, table) == [
            (column.name, column.sql_type, int(not column.nullable), int(column.primary_key))
            for column in columns
        ]
        if table in schema.sqlite_only:
            continue
        frame = pq.read_table(folder / f"{table}.parquet")
        assert [(f.name, str(f.type), f.nullable) for f in frame.schema] == [
            (column.name, column.arrow_type, column.nullable) for column in columns
        ]
        assert [tuple(row.values()) for row in frame.to_pylist()] == sqlite_rows(path, table)


def nsys_stats(nsys: str, path: Path, report: str) -> list[dict[str, str]]:
    command = [nsys, "stats", "-q", "--report", report, "--format", "csv", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    header = next(n for n, line in enumerate(lines) if "Name" in line or "Range" in line)
    return list(csv.DictReader(line for line in lines[header:] if line))


@pytest.mark.nsys
@pytest.mark.parametrize("version", VERSIONS)
def test_nsys_stats_reads_our_export_and_finds_the_sums(nsys, tmp_path, version):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder(schema=version).nvtx("step", 0, 60)
    builder.kernel("k1(int)", start_ns=20, duration_ns=8, launch=(1, 5))
    builder.kernel("k1(int)", start_ns=30, duration_ns=12, launch=(6, 8))
    builder.kernel("k2(int)", start_ns=50, duration_ns=5, launch=(9, 10)).write_sqlite(path)
    kernels = nsys_stats(nsys, path, "cuda_gpu_kern_sum")
    # k1: 8 + 12 = 20 in 2 launches of 10 on average; k2: 5; 20 of 25 are 80 %.
    columns = ("Name", "Total Time (ns)", "Instances", "Avg (ns)", "Time (%)")
    assert [tuple(row[column] for column in columns) for row in kernels] == [
        ("k1(int)", "20", "2", "10.0", "80.0"),
        ("k2(int)", "5", "1", "5.0", "20.0"),
    ]
    # 4 + 2 + 1 = 7
    (api,) = nsys_stats(nsys, path, "cuda_api_sum")
    assert (api["Name"], api["Total Time (ns)"], api["Num Calls"]) == ("cudaLaunchKernel", "7", "3")
    # From the first start to the last end of what was launched inside: 55 - 20 = 35.
    (span,) = nsys_stats(nsys, path, "nvtx_gpu_proj_sum")
    assert (span["Range"], span["Total Proj Time (ns)"], span["Total GPU Ops"]) == (
        "step",
        "35",
        "3",
    )
