"""The reader takes what the manifest declares, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.declared import TableRead
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import Trace

KERNELS = TableRead("kernels", ("start_ns", "demangled_name_id"), "all", required=True)
NVTX = TableRead("nvtx_events", ("start_ns", "text", "text_id"), "ranges", only_with=("filter",))
MEMCPYS = TableRead("memcpys", ("start_ns",), "copies", columns_with={"sizes": ("size_bytes",)})

Reading = Callable[[TraceBuilder, list[TableRead], dict[str, object]], Trace]


@pytest.fixture(params=["sqlite", "parquet"])
def reading(request, tmp_path) -> Reading:
    """Read a built profile, from either kind of export."""

    def read(profile: TraceBuilder, reads: list[TableRead], options: dict[str, object]) -> Trace:
        if request.param == "sqlite":
            with SqliteProfile(profile.write_sqlite(tmp_path / "r.sqlite")) as opened:
                return read_trace(opened, reads, options)
        with ParquetProfile(profile.write_parquet(tmp_path / "r_pqtdir")) as opened:
            return read_trace(opened, reads, options)

    return read


def one_kernel() -> TraceBuilder:
    return TraceBuilder(duration_ns=99).kernel(
        "long<int>", start_ns=3, duration_ns=4, launch=(1, 2)
    )


def test_exactly_the_declared_columns_and_the_strings_that_they_refer_to_are_read(reading):
    trace = reading(one_kernel(), [KERNELS], {})
    assert list(trace.tables) == ["kernels"]
    assert list(trace["kernels"].columns) == ["start_ns", "demangled_name_id"]
    assert trace["kernels"]["start_ns"].tolist() == [3]
    (name_id,) = trace["kernels"]["demangled_name_id"].tolist()
    assert trace.strings == {name_id: "long<int>"}


@pytest.mark.parametrize("asked", [True, None])
def test_tables_and_columns_for_an_option_are_read_with_it(reading, asked):
    profile = one_kernel().memcpy("HtoD", start_ns=5, duration_ns=1, size_bytes=64)
    reads, options = [KERNELS, NVTX, MEMCPYS], {"filter": asked, "sizes": asked}
    trace = reading(profile.nvtx("plain", 1, 5), reads, options)
    assert ("nvtx_events" in trace) is bool(asked)
    assert ("size_bytes" in trace["memcpys"]) is bool(asked)
    assert not asked or trace["memcpys"]["size_bytes"].tolist() == [64]
    assert set(needed_tables(reads, options)) == trace.tables.keys()


def test_names_of_api_calls_and_ranges_are_read_too(reading):
    profile = one_kernel().nvtx("plain", 1, 5).nvtx("ncclSend", 2, 4, registered=True)
    calls = TableRead("api_calls", ("name_id",), "calls")
    trace = reading(profile, [calls, NVTX], {"filter": True})
    assert set(trace.strings.values()) == {"cudaLaunchKernel_v7000", "ncclSend"}
    assert "plain" in trace["nvtx_events"]["text"].tolist()


def test_an_absent_table_is_named_and_has_typed_columns(reading):
    profile = one_kernel().drop_table("CUPTI_ACTIVITY_KIND_MEMCPY").drop_table("NVTX_EVENTS")
    trace = reading(profile, [KERNELS, MEMCPYS, NVTX], {"filter": True})
    assert trace.absent == {"memcpys", "nvtx_events"}
    assert trace["memcpys"]["start_ns"].dtype == np.int64
    assert trace["nvtx_events"]["text"].dtype == object
    assert len(trace["memcpys"]) == len(trace["nvtx_events"]) == 0


def test_a_table_that_is_there_without_rows_is_not_absent(tmp_path):
    path = TraceBuilder(lazy=False).write_sqlite(tmp_path / "r.sqlite")
    with SqliteProfile(path) as profile:
        trace = read_trace(profile, [KERNELS, MEMCPYS], {})
    assert trace.absent == frozenset()
    assert len(trace["kernels"]) == 0


def test_a_name_that_is_null_or_unknown_has_no_string(reading):
    profile = TraceBuilder(duration_ns=9)
    for name in (None, 4711):
        profile.raw("CUPTI_ACTIVITY_KIND_KERNEL", start=1, end=2, demangledName=name)
    trace = reading(profile, [KERNELS], {})
    assert sorted(trace["kernels"]["demangled_name_id"].tolist()) == [NULL_INT, 4711]
    assert trace.strings == {}


def without_columns(folder: Path, *left_out: str) -> Path:
    """Write a parquet export whose kernels lack columns."""
    one_kernel().write_parquet(folder)
    file = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    pq.write_table(pq.read_table(file).drop_columns(list(left_out)), file)
    return folder


def test_a_column_that_some_versions_lack_is_null_throughout(tmp_path):
    reads = [TableRead("kernels", ("start_ns", "graph_node_id", "global_pid"), "all")]
    folder = without_columns(tmp_path / "r_pqtdir", "graphNodeId", "globalPid")
    with ParquetProfile(folder) as profile:
        kernels = read_trace(profile, reads, {})["kernels"]
    assert list(kernels.columns) == ["start_ns", "graph_node_id", "global_pid"]
    assert kernels["graph_node_id"].tolist() == kernels["global_pid"].tolist() == [NULL_INT]
    assert kernels["start_ns"].tolist() == [3]


def test_needed_columns_that_are_missing_are_all_named(tmp_path):
    folder = without_columns(tmp_path / "r_pqtdir", "start", "demangledName")
    with ParquetProfile(folder) as profile, pytest.raises(ProfileError) as caught:
        read_trace(profile, [KERNELS], {})
    expected = "r_pqtdir: table CUPTI_ACTIVITY_KIND_KERNEL lacks the column start, demangledName;"
    assert caught.value.message.startswith(expected)


def test_every_declared_read_of_a_recipe_can_be_read_from_every_version(tmp_path):
    reads = load_manifest("llm_hotspots").reads
    options = {
        name: True for read in reads for name in (*read.only_with, *(read.columns_with or {}))
    }
    for version in ("3.7.2", "3.30.1"):
        profile = TraceBuilder(schema=version, lazy=False, duration_ns=99)
        profile.kernel("k", start_ns=1, duration_ns=1)
        profile.allocate(8, address=1, at_ns=1).gpu_metrics({"x [%]": [1]}, times_ns=[1])
        with SqliteProfile(profile.write_sqlite(tmp_path / f"{version}.sqlite")) as opened:
            trace = read_trace(opened, reads, options)
        assert set(trace.tables) == {read.table for read in reads}
        newer = {"graph_traces", "cuda_devices", "cuda_overheads", "diagnostics"}
        assert trace.absent == (newer if version == "3.7.2" else set())


def test_a_table_that_explains_another_is_read_only_where_that_one_has_rows(tmp_path):
    gpus = TableRead("gpus", ("gpu_id",), lost="GPUs", only_if=("memcpys", "memsets"))
    memsets = TableRead("memsets", ("start_ns",), lost="fills")
    reads = [KERNELS, memsets, gpus]
    profile = TraceBuilder(lazy=False).kernel("k", start_ns=1, duration_ns=1)
    with SqliteProfile(profile.write_sqlite(tmp_path / "without.sqlite")) as opened:
        trace = read_trace(opened, reads, {})
    assert "gpus" not in trace
    assert "gpus" not in trace.absent
    profile.memset(start_ns=3, duration_ns=1, size_bytes=8)
    with SqliteProfile(profile.write_sqlite(tmp_path / "with.sqlite")) as opened:
        assert read_trace(opened, reads, {})["gpus"]["gpu_id"].tolist() == [0]
