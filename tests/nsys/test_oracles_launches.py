"""Launches beside `nsys stats`, and beside plain SQL where that lacks a table."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from effort import nightly_but
from results import plain, rows, run, tables_of

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

A100 = ["vector_add_profile_serial", "vector_add_profile_streamed", "vector_add_profile_v2"]
H100 = ["h100_mfu/before", "h100_mfu/after", "h100_mfu_ranks/after/rank1"]
ALL = ["--top", "100000", "--kernel", "re:."]
LAUNCHES = """
SELECT deviceId, start, end - start, streamId, registersPerThread, gridX, gridY, gridZ, blockX,
    blockY, blockZ, dynamicSharedMemory, s.value
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName
"""


def queried(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


@pytest.mark.parametrize("trace", nightly_but(A100, A100[:1]))
def test_launches_equal_nsys_stats_cuda_gpu_trace(nsys, traces, trace, tmp_path):
    report = tmp_path / f"{trace}.nsys-rep"
    shutil.copyfile(traces / "a100_vector_add" / report.name, report)
    path = tmp_path / f"{trace}.sqlite"
    export = [nsys, "export", "--type", "sqlite", "--lazy", "false", "--output", path, report]
    assert run(export, tmp_path).returncode == 0
    words = ["--quiet", "--format", "csv", "--output", tmp_path / "s", "--report", "cuda_gpu_trace"]
    assert run([nsys, "stats", *words, path], tmp_path).returncode == 0
    theirs = pd.read_csv(tmp_path / "s_cuda_gpu_trace.csv")
    ours = tables_of(tmp_path / "o", path, options=ALL)
    kernels = theirs[theirs["GrdX"].notna()]
    columns = ["Start (ns)", "Duration (ns)", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ"]
    columns += ["Reg/Trd", "Name"]
    names = "start_ns duration_ns grid_x grid_y grid_z block_x block_y block_z"
    listed = rows(ours["watched_kernels"], f"{names} registers_per_thread name")
    assert sorted(listed) == sorted(kernels[columns].itertuples(index=False, name=None))
    assert len(listed) == len(ours["watched_kernels"]) > 0


@pytest.mark.parametrize("trace", nightly_but(H100, H100[:1]))
def test_launches_hold_every_row_of_the_report(traces, trace, tmp_path):
    path = traces / f"{trace}.sqlite"
    ours = tables_of(tmp_path / "o", path, options=ALL)
    names = "device_id start_ns duration_ns stream_id registers_per_thread grid_x grid_y grid_z"
    names += " block_x block_y block_z dynamic_shared_bytes name"
    assert sorted(rows(ours["watched_kernels"], names)) == sorted(queried(path, LAUNCHES))


@pytest.mark.parametrize("trace", nightly_but(H100, H100[:1]))
def test_operations_add_up(traces, trace, tmp_path):
    ours = tables_of(tmp_path / "o", traces / f"{trace}.sqlite", options=ALL)
    assert ours["operations"]["total_ns"].sum() == ours["kernels"]["total_ns"].sum()
    assert plain(ours["memory"])["rank"] == plain(ours["gpu_metrics"])["rank"] == []
