"""The builder writes exports that look like real ones and hold what was asked for."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from nsys_llm.core.errors import OutputError, UsageError
from nsys_llm.profile.trace_schema import ExportSchema, schema_versions
from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.testing.trace_bulk import base_name
from nsys_llm.testing.trace_metadata import global_tid

VERSIONS = schema_versions()
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
PROCESS = (1 << 48) | (100 << 24)


def sqlite_rows(path: Path, table: str, *columns: str) -> list[tuple[object, ...]]:
    names = ", ".join(f'"{column}"' for column in columns) or "*"
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f'SELECT {names} FROM "{table}"').fetchall()


def sqlite_tables(path: Path) -> set[str]:
    return {str(name) for (name,) in sqlite_rows(path, "sqlite_master", "name")}


def declared_columns(path: Path, table: str) -> list[tuple[str, str, int, int]]:
    """Return name, type, NOT NULL and primary key of each column."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [(row[1], row[2], row[3], row[5]) for row in rows]


def text_of(path: Path, identity: object) -> str:
    return str(dict(sqlite_rows(path, "StringIds"))[identity])


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


def test_kernel_row_holds_what_was_given(tmp_path):
    path = tmp_path / "x.sqlite"
    TraceBuilder().kernel("void n::k<int>(int)", start_ns=5, duration_ns=8).write_sqlite(path)
    names = ("start", "end", "globalPid", "streamId", "correlationId", "demangledName", "shortName")
    ((start, end, process, stream, call, demangled, short),) = sqlite_rows(path, KERNEL, *names)
    assert (start, end, process, stream, call) == (5, 13, PROCESS, 7, 1)
    assert (text_of(path, demangled), text_of(path, short)) == ("void n::k<int>(int)", "k")


def test_launch_shares_the_correlation_id_and_names_the_thread(tmp_path):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder().process(pid=7)
    builder.kernel("k", start_ns=5, duration_ns=1)
    builder.kernel("k", start_ns=9, duration_ns=1, launch=(6, 8), tid=12).write_sqlite(path)
    columns = ("start", "end", "globalTid", "correlationId")
    assert sqlite_rows(path, RUNTIME, *columns) == [(6, 8, global_tid(7, 12), 2)]
    assert sqlite_rows(path, KERNEL, "correlationId") == [(1,), (2,)]


def test_correlation_ids_count_per_process_and_skip_those_given(tmp_path):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder()
    for pid, identity in ((1, None), (2, None), (1, 5), (1, None)):
        builder.kernel("k", start_ns=0, duration_ns=1, pid=pid, correlation_id=identity)
    builder.write_sqlite(path)
    assert sqlite_rows(path, KERNEL, "correlationId") == [(1,), (1,), (5,), (6,)]


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


def test_bulk_calls_equal_single_ones(tmp_path):
    single, many = TraceBuilder(), TraceBuilder()
    single.kernel("a", start_ns=5, end_ns=7, grid=(2, 1, 1), launch=(1, 2))
    single.kernel("b", start_ns=8, end_ns=9, grid=(3, 1, 1), launch=(3, 4))
    many.kernels(
        ["a", "b"],
        np.array([0, 1]),
        start_ns=np.array([5, 8]),
        end_ns=np.array([7, 9]),
        grid=np.array([[2, 1, 1], [3, 1, 1]]),
        launch_ns=(np.array([1, 3]), np.array([2, 4])),
    )
    single.write_sqlite(tmp_path / "one.sqlite")
    many.write_sqlite(tmp_path / "many.sqlite")
    for table in (KERNEL, RUNTIME):
        rows = sqlite_rows(tmp_path / "many.sqlite", table, "start", "end", "correlationId")
        assert rows == sqlite_rows(tmp_path / "one.sqlite", table, "start", "end", "correlationId")


def test_graph_in_node_mode_is_one_call_and_a_kernel_per_node(tmp_path):
    path = tmp_path / "x.sqlite"
    nodes = [("a", 5, 6), ("b", 7, 9)]
    TraceBuilder().graph_launch(nodes, launch=(1, 3), graph_exec_id=2).write_sqlite(path)
    rows = sqlite_rows(path, KERNEL, "start", "correlationId", "graphNodeId", "graphId")
    assert rows == [(5, 1, (2 << 32) + 1, 2), (7, 1, (2 << 32) + 2, 2)]
    assert sqlite_rows(path, RUNTIME, "start", "end", "correlationId") == [(1, 3, 1)]


def test_graph_in_graph_mode_is_one_row_where_the_schema_has_a_table(tmp_path):
    nodes = [("a", 5, 6), ("b", 7, 9)]
    for version in ("3.7.2", "3.25.0"):
        builder = TraceBuilder(schema=version).graph_launch(nodes, launch=(1, 3), mode="graph")
        builder.write_sqlite(tmp_path / f"{version}.sqlite")
    new = tmp_path / "3.25.0.sqlite"
    assert sqlite_rows(new, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start", "end") == [(5, 9)]
    assert KERNEL not in sqlite_tables(new)
    assert sqlite_tables(tmp_path / "3.7.2.sqlite").isdisjoint(
        {KERNEL, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}
    )


def test_copies_carry_kinds_and_sizes(tmp_path):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder().memcpy("DtoH", start_ns=1, duration_ns=2, size_bytes=8)
    builder.memcpy("HtoD", start_ns=4, duration_ns=1, size_bytes=9, src_memory="pageable")
    builder.write_sqlite(path)
    columns = ("bytes", "copyKind", "srcKind", "dstKind")
    rows = sqlite_rows(path, "CUPTI_ACTIVITY_KIND_MEMCPY", *columns)
    assert rows == [(8, 2, 2, 1), (9, 1, 0, 2)]


def test_nvtx_texts_are_plain_or_registered_and_domains_are_declared(tmp_path):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder().nvtx("plain", 1, 9).nvtx("reg", 2, 3, domain="NCCL", registered=True)
    builder.nvtx("open", 4, kind="start_end").nvtx("mark", 5, kind="mark").write_sqlite(path)
    rows = sqlite_rows(path, "NVTX_EVENTS", "eventType", "end", "text", "domainId", "rangeId")
    assert rows == [
        (59, 9, "plain", 0, None),
        (75, None, "NCCL", 1, None),
        (59, 3, None, 1, None),
        (60, None, "open", 0, 1),
        (34, None, "mark", 0, None),
    ]
    (identity,) = {row[0] for row in sqlite_rows(path, "NVTX_EVENTS", "textId")} - {None}
    assert text_of(path, identity) == "reg"


def test_environment_is_recorded_in_both_places(tmp_path):
    path = tmp_path / "x.sqlite"
    TraceBuilder().environment(RANK="3", KEY="a b").write_sqlite(path)
    capture = sqlite_rows(path, "META_DATA_CAPTURE")
    assert ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"') in capture
    system = dict(sqlite_rows(path, "TARGET_INFO_SYSTEM_ENV", "name", "value"))
    assert system["DeviceEnvironment"] == "RANK=3;KEY=a b"


def test_machine_clocks_and_gpus_are_those_given(tmp_path):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder(hostname="n7", utc_epoch_ns=1_000_000_000, system_clock_ns=40)
    builder.process(pid=3, gpu_ids=(5,)).kernel("k", start_ns=1, end_ns=9).write_sqlite(path)
    start = sqlite_rows(path, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "utcTime")
    assert start == [(1_000_000_000, "1970-01-01T00:00:01")]
    assert sqlite_rows(path, "ANALYSIS_DETAILS")[0][1:] == (9, 40, 49)
    assert sqlite_rows(path, "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid") == [(5, 0, 3)]
    gpus = dict(sqlite_rows(path, "TARGET_INFO_GPU", "id", "smCount"))
    assert gpus[5] == 132
    system = dict(sqlite_rows(path, "TARGET_INFO_SYSTEM_ENV", "name", "value"))
    assert system["Hostname"] == "n7"


def test_unknown_wall_clock_is_null(tmp_path):
    path = tmp_path / "x.sqlite"
    TraceBuilder(utc_epoch_ns=None).write_sqlite(path)
    columns = ("utcEpochNs", "utcTime")
    assert sqlite_rows(path, "TARGET_INFO_SESSION_START_TIME", *columns) == [(None, None)]


def test_raw_rows_may_break_what_an_export_promises(tmp_path):
    builder = TraceBuilder().kernel("k", start_ns=1, end_ns=2)
    builder.raw(KERNEL, start=9, end=5, shortName=None, demangledName="interned", globalPid=None)
    builder.write_sqlite(tmp_path / "x.sqlite")
    builder.write_parquet(tmp_path / "x_pqtdir")
    columns = ("start", "end", "shortName", "globalPid", "streamId")
    rows = sqlite_rows(tmp_path / "x.sqlite", KERNEL, *columns)
    assert rows[1] == (9, 5, None, None, 7)
    frame = pq.read_table(tmp_path / "x_pqtdir" / f"{KERNEL}.parquet", columns=list(columns))
    assert tuple(frame.slice(1).to_pylist()[0].values()) == rows[1]


@pytest.mark.parametrize(
    ("table", "column"), [(KERNEL, "nonsense"), ("NO_TABLE", "start"), (KERNEL, "clusterX")]
)
def test_raw_names_what_the_schema_lacks(table, column):
    with pytest.raises(ValueError, match=column):
        TraceBuilder(schema="3.7.2").raw(table, **{column: 1})


def test_dropped_table_is_left_out_of_both_formats(tmp_path):
    builder = one_of_everything().drop_table("NVTX_EVENTS").drop_table("ENUM_CUDA_MEM_KIND")
    tables = sqlite_tables(builder.write_sqlite(tmp_path / "x.sqlite"))
    files = {path.stem for path in builder.write_parquet(tmp_path / "x_pqtdir").iterdir()}
    assert KERNEL in tables & files
    assert not (tables | files) & {"NVTX_EVENTS", "ENUM_CUDA_MEM_KIND"}
    with pytest.raises(ValueError, match="NO_TABLE"):
        builder.drop_table("NO_TABLE")


def test_lazy_export_leaves_empty_tables_out(tmp_path):
    for lazy in (True, False):
        TraceBuilder(lazy=lazy).write_sqlite(tmp_path / f"{lazy}.sqlite")
    lazy_tables = sqlite_tables(tmp_path / "True.sqlite")
    assert sqlite_tables(tmp_path / "False.sqlite") - lazy_tables >= {KERNEL, RUNTIME, "OSRT_API"}
    assert {"StringIds", "META_DATA_EXPORT", "TARGET_INFO_GPU"} <= lazy_tables


def test_parquet_export_has_a_file_for_each_known_table_and_none_of_the_capture(tmp_path):
    TraceBuilder().write_parquet(tmp_path / "x_pqtdir")
    files = {path.stem for path in (tmp_path / "x_pqtdir").iterdir()}
    schema = ExportSchema.load("3.25.0")
    assert schema.sqlite_only == {"META_DATA_CAPTURE", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"}
    assert files == (schema.tables.keys() | schema.enums.keys()) - schema.sqlite_only


def test_parquet_row_groups_are_small_and_uncompressed(tmp_path):
    count = 5000
    times = np.arange(count)
    builder = TraceBuilder().kernels(["k"], times * 0, start_ns=times, end_ns=times + 1)
    file = pq.ParquetFile(builder.write_parquet(tmp_path / "x_pqtdir") / f"{KERNEL}.parquet")
    groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
    assert [group.num_rows for group in groups] == [2048, 2048, 904]
    assert groups[0].column(0).compression == "UNCOMPRESSED"


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


def test_schema_versions_differ_as_the_exporter_changed():
    old, *_, first, second, third, new = (ExportSchema.load(version) for version in VERSIONS)

    def names(schema, table):
        return {column.name for column in schema.tables.get(table, ())}

    assert names(first, KERNEL) - names(old, KERNEL) >= {"graphId", "clusterX"}
    assert names(second, KERNEL) - names(first, KERNEL) == {"tensorSizeMinusOneElements"}
    assert third.tables == second.tables
    assert names(new, "NVTX_EVENTS") - names(third, "NVTX_EVENTS") == {"eventId"}
    assert names(old, "PROFILER_OVERHEAD") ^ names(first, "PROFILER_OVERHEAD") == {
        "returnValue",
        "overheadType",
    }
    assert "graphNodeId" in names(old, "CUDA_GRAPH_EVENTS")
    assert "graphExecId" in names(first, "CUDA_GRAPH_EVENTS")
    assert first.tables.keys() - old.tables.keys() == {
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        "CUDA_GRAPH_NODE_EVENTS",
        "TARGET_INFO_CUDA_DEVICE",
        "NVTX_PAYLOAD_SCHEMAS",
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "DIAGNOSTIC_EVENT",
    }


def test_old_exports_have_null_for_no_green_context_and_new_ones_zero(tmp_path):
    for version, expected in (("3.7.2", None), ("3.25.0", 0)):
        path = tmp_path / f"{version}.sqlite"
        TraceBuilder(schema=version).kernel("k", start_ns=0, end_ns=1).write_sqlite(path)
        assert sqlite_rows(path, KERNEL, "greenContextId") == [(expected,)]


def test_nvtx_event_ids_are_unique_in_the_newest_schema(tmp_path):
    path = tmp_path / "x.sqlite"
    TraceBuilder(schema="3.30.1").nvtx("a", 1, 2).nvtx("b", 3, 4).write_sqlite(path)
    assert sqlite_rows(path, "NVTX_EVENTS", "eventId") == [(0,), (1,)]


def test_schema_file_declares_every_table_with_columns():
    text = (
        resources.files("nsys_llm.profile").joinpath("data/export_schema.json").read_text("utf-8")
    )
    facts = json.loads(text)
    assert list(VERSIONS) == ["3.7.2", "3.16.1", "3.17.2", "3.24.14", "3.25.0", "3.28.1", "3.30.1"]
    assert all(table["columns"] for table in facts["tables"].values())


def test_same_calls_make_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        one_of_everything().write_sqlite(tmp_path / f"{name}.sqlite")
        one_of_everything().write_parquet(tmp_path / f"{name}_pqtdir")
    assert (tmp_path / "one.sqlite").read_bytes() == (tmp_path / "two.sqlite").read_bytes()
    for file in (tmp_path / "one_pqtdir").iterdir():
        assert file.read_bytes() == (tmp_path / "two_pqtdir" / file.name).read_bytes()


def test_writing_changes_nothing_in_the_builder(tmp_path):
    builder = one_of_everything()
    first = builder.write_sqlite(tmp_path / "one.sqlite").read_bytes()
    assert builder.write_sqlite(tmp_path / "two.sqlite").read_bytes() == first


def test_existing_outputs_are_not_replaced(tmp_path):
    builder = TraceBuilder()
    builder.write_sqlite(tmp_path / "x.sqlite")
    with pytest.raises(OutputError, match="there already"):
        builder.write_sqlite(tmp_path / "x.sqlite")
    with pytest.raises(OutputError, match="there already"):
        builder.write_parquet(tmp_path)


def test_unknown_schema_version_is_refused():
    with pytest.raises(UsageError, match=r"3\.7\.2, 3\.16\.1"):
        TraceBuilder(schema="3.1.0")


@pytest.mark.parametrize("times", [{}, {"duration_ns": 1, "end_ns": 2}])
def test_an_event_needs_a_duration_or_an_end(times):
    with pytest.raises(ValueError, match="duration_ns"):
        TraceBuilder().kernel("k", start_ns=0, **times)


def test_application_overhead_needs_a_schema_that_has_it(tmp_path):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder().overhead("Command Buffer Full", start_ns=0, end_ns=1, overhead_type=8)
    builder.write_sqlite(path)
    assert sqlite_rows(path, "CUPTI_ACTIVITY_KIND_OVERHEAD", "overheadType") == [(8,)]
    with pytest.raises(ValueError, match="CUPTI_ACTIVITY_KIND_OVERHEAD"):
        TraceBuilder(schema="3.7.2").overhead("x", start_ns=0, end_ns=1, overhead_type=8)


def find_nsys() -> str:
    """Return the real `nsys`, or skip the test."""
    nsys = os.environ.get("NSYS_LLM_TEST_NSYS") or shutil.which("nsys")
    if nsys is None or not Path(nsys).exists():
        pytest.skip("no Nsight Systems: set NSYS_LLM_TEST_NSYS or put nsys on PATH")
    return nsys


def nsys_stats(path: Path, report: str) -> list[dict[str, str]]:
    """Return the rows that `nsys stats` prints for a report."""
    command = [find_nsys(), "stats", "-q", "--report", report, "--format", "csv", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    header = next(n for n, line in enumerate(lines) if "Name" in line or "Range" in line)
    return list(csv.DictReader(line for line in lines[header:] if line))


@pytest.mark.nsys
@pytest.mark.parametrize("version", VERSIONS)
def test_nsys_stats_reads_our_export_and_finds_the_sums(tmp_path, version):
    path = tmp_path / "x.sqlite"
    builder = TraceBuilder(schema=version).nvtx("step", 0, 60)
    builder.kernel("k1(int)", start_ns=20, duration_ns=8, launch=(1, 5))
    builder.kernel("k1(int)", start_ns=30, duration_ns=12, launch=(6, 8))
    builder.kernel("k2(int)", start_ns=50, duration_ns=5, launch=(9, 10)).write_sqlite(path)
    kernels = nsys_stats(path, "cuda_gpu_kern_sum")
    # k1: 8 + 12 = 20 in 2 launches of 10 on average; k2: 5; 20 of 25 are 80 %.
    columns = ("Name", "Total Time (ns)", "Instances", "Avg (ns)", "Time (%)")
    assert [tuple(row[column] for column in columns) for row in kernels] == [
        ("k1(int)", "20", "2", "10.0", "80.0"),
        ("k2(int)", "5", "1", "5.0", "20.0"),
    ]
    # 4 + 2 + 1 = 7
    (api,) = nsys_stats(path, "cuda_api_sum")
    assert (api["Name"], api["Total Time (ns)"], api["Num Calls"]) == ("cudaLaunchKernel", "7", "3")
    # From the first start to the last end of what was launched inside: 55 - 20 = 35.
    (span,) = nsys_stats(path, "nvtx_gpu_proj_sum")
    assert (span["Range"], span["Total Proj Time (ns)"], span["Total GPU Ops"]) == (
        "step",
        "35",
        "3",
    )
