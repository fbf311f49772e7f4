"""Copies and fills beside NVIDIA's own `nsys stats` and `nsys analyze`, on every real trace."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from effort import nightly_but
from results import rows, run, tables_of

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

A100 = ["vector_add_profile_serial", "vector_add_profile_streamed", "vector_add_profile_v2"]
TWO_PROCESSES = ["h100_mfu/before", "h100_mfu/after"]
ONE_PROCESS = [
    *A100,
    "h100_mfu_ranks/before/rank0",
    "h100_mfu_ranks/before/rank1",
    "h100_mfu_ranks/after/rank0",
    "h100_mfu_ranks/after/rank1",
]
#: Those that CI takes; of each kind one.
IN_CI = [A100[0], ONE_PROCESS[3]]
RULES = ["cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync"]

#: NVIDIA's words for the kinds that occur in these traces.
WORDS = {
    "HtoD": "[CUDA memcpy Host-to-Device]",
    "DtoH": "[CUDA memcpy Device-to-Host]",
    "DtoD": "[CUDA memcpy Device-to-Device]",
    "memset": "[CUDA memset]",
}

# NVIDIA rounds its floats to one decimal.
ROUNDING = 0.05 + 1e-9


@pytest.fixture(scope="module")
def exports(nsys, traces, tmp_path_factory) -> dict[str, Path]:
    """Every real trace as a SQLite export that may be written beside."""
    folder = tmp_path_factory.mktemp("exports")
    copied = {}
    for number, name in enumerate([*ONE_PROCESS, *TWO_PROCESSES]):
        copied[name] = folder / f"{number}.sqlite"
        if name in A100:
            report = folder / f"{number}.nsys-rep"
            shutil.copyfile(traces / "a100_vector_add" / f"{name}.nsys-rep", report)
            command = [nsys, "export", "--type", "sqlite", "--lazy", "false", report]
            assert run(command, folder).returncode == 0
        else:
            shutil.copyfile(traces / f"{name}.sqlite", copied[name])
    return copied


@pytest.fixture(scope="module")
def ours(exports, tmp_path_factory) -> Callable[[str], dict[str, pd.DataFrame]]:
    """Return what gives our tables of a trace; those of each are made once."""
    folder = tmp_path_factory.mktemp("ours")
    return cache(lambda trace: tables_of(folder / exports[trace].stem, exports[trace]))


@pytest.mark.parametrize(
    "trace", nightly_but([*ONE_PROCESS, *TWO_PROCESSES], [*IN_CI, TWO_PROCESSES[0]])
)
def test_times_and_sizes_equal_nsys_stats(nsys, exports, ours, trace, tmp_path):
    reports = ["--report", "cuda_gpu_mem_time_sum", "--report", "cuda_gpu_mem_size_sum"]
    form = ["--quiet", "--format", "csv:mem=B", "--output", tmp_path / "stats"]
    done = run([nsys, "stats", *form, *reports, exports[trace]], tmp_path)
    assert done.returncode == 0, done.stdout
    times, sizes = (
        pd.read_csv(tmp_path / f"stats_cuda_gpu_mem_{what}_sum.csv").set_index("Operation")
        for what in ("time", "size")
    )
    tables = ours(trace)
    memops = tables["all_memops"].set_index("kind").rename(index=WORDS)
    assert memops.index.is_unique
    assert sorted(memops.index) == sorted(times.index) == sorted(sizes.index)
    times, sizes = times.loc[memops.index], sizes.loc[memops.index]
    for name, theirs in (("total_ns", "Total Time"), ("min_ns", "Min"), ("max_ns", "Max")):
        assert memops[name].tolist() == times[f"{theirs} (ns)"].tolist()
    assert memops["ops_n"].tolist() == times["Count"].tolist() == sizes["Count"].tolist()
    assert np.abs(memops["p50_ns"] - times["Med (ns)"]).max() <= ROUNDING
    for name, theirs in (("size", "Total"), ("min", "Min"), ("max", "Max"), ("median", "Med")):
        assert memops[f"{name}_bytes"].tolist() == sizes[f"{theirs} (B)"].tolist()
    # Each rank's rows add up to the same.
    sums = tables["memops"].groupby("kind")[["total_ns", "size_bytes", "ops_n"]].sum()
    assert sums["total_ns"].rename(index=WORDS).to_dict() == times["Total Time (ns)"].to_dict()
    assert sums["size_bytes"].rename(index=WORDS).to_dict() == sizes["Total (B)"].to_dict()


def found_by_nsys(nsys: str, rule: str, export: Path, folder: Path) -> pd.DataFrame:
    """Return what a rule of `nsys analyze` lists; no rows where it finds nothing."""
    command = [nsys, "analyze", "--quiet", "--format", "csv", "--output", "-"]
    done = run([*command, "--rule", f"{rule}:rows=-1", export], folder)
    assert done.returncode == 0, done.stdout
    table = done.stdout[done.stdout.find("Duration (ns)") :] if "Duration" in done.stdout else ""
    return pd.read_csv(StringIO(table)) if table else pd.DataFrame({"Duration (ns)": []})


@pytest.mark.parametrize("trace", nightly_but(ONE_PROCESS, IN_CI))
@pytest.mark.parametrize("rule", RULES)
def test_blocking_copies_are_those_of_nsys_analyze(nsys, exports, ours, trace, rule, tmp_path):
    theirs = found_by_nsys(nsys, rule, exports[trace], tmp_path)
    blocking = ours(trace)["blocking_memops"]
    flagged = blocking[blocking["rule"] == rule]
    # No driver calls are in these traces; ours count them too.
    assert flagged["api"].str.startswith("cuda").all()
    assert flagged["ops_n"].sum() == len(theirs)
    assert flagged["total_ns"].sum() == theirs["Duration (ns)"].sum()
    assert flagged["max_ns"].max() == theirs["Duration (ns)"].max() or theirs.empty
    if not theirs.empty:
        longest = theirs.sort_values(["Duration (ns)", "Start (ns)"], ascending=[False, True])
        row = flagged.loc[flagged["max_ns"].idxmax()]
        assert row["window_start_ns"] == longest["Start (ns)"].iloc[0]


@pytest.mark.parametrize("trace", nightly_but(TWO_PROCESSES, TWO_PROCESSES[:1]))
def test_of_two_processes_nsys_analyze_takes_calls_of_the_other_one(
    nsys, exports, ours, trace, tmp_path
):
    rule = "cuda_memcpy_async"
    theirs = found_by_nsys(nsys, rule, exports[trace], tmp_path)
    blocking = ours(trace)["blocking_memops"]
    # It joins on the correlation id alone, which two processes share.
    query = """
        SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY m
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = m.correlationId
        JOIN StringIds s ON s.id = r.nameId
        WHERE (m.srcKind = 0 OR m.dstKind = 0) AND s.value LIKE 'cudaMemcpy%Async%'
    """
    with closing(sqlite3.connect(f"file:{exports[trace]}?mode=ro", uri=True)) as database:
        ((mixed_n,),) = database.execute(query)
        ((right_n,),) = database.execute(query + " AND (r.globalTid & ~0xFFFFFF) = m.globalPid")
    assert len(theirs) == mixed_n
    assert rows(blocking, "rule")[0] == (rule,)
    assert blocking["ops_n"].sum() == right_n <= mixed_n
