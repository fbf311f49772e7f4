"""Copies and fills beside NVIDIA's own `nsys stats` and `nsys analyze`, on every real trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from effort import nightly_but
from real_traces import A100, exported_traces
from results import run, tables_of

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

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

#: NVIDIA's words for the kinds that occur in these traces.
WORDS = {
    "HtoD": "[CUDA memcpy Host-to-Device]",
    "DtoH": "[CUDA memcpy Device-to-Host]",
    "DtoD": "[CUDA memcpy Device-to-Device]",
    "memset": "[CUDA memset]",
}

SUMS = ("total_ns", "size_bytes")

# NVIDIA rounds its floats to one decimal.
ROUNDING = 0.05 + 1e-9


@pytest.fixture(scope="module")
def exports(nsys, traces, tmp_path_factory) -> dict[str, Path]:
    """Every real trace as a SQLite export that may be written beside."""
    names = {name: f"{name}.sqlite" for name in [*ONE_PROCESS, *TWO_PROCESSES]}
    names |= {name: f"a100_vector_add/{name}.nsys-rep" for name in A100}
    return exported_traces(nsys, traces, names, tmp_path_factory.mktemp("exports"))


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
    every = ours(trace)["memops"]
    # Of each process; medians do not add up.
    how = {"ops_n": "sum", "min_ns": "min", "max_ns": "max"} | dict.fromkeys(SUMS, "sum")
    how |= {"median_bytes": "median", "p50_ns": "median"}
    memops = every.groupby("kind").agg(how).rename(index=WORDS)
    assert sorted(memops.index) == sorted(times.index) == sorted(sizes.index)
    times, sizes = times.loc[memops.index], sizes.loc[memops.index]
    for name, theirs in (("total_ns", "Total Time"), ("min_ns", "Min"), ("max_ns", "Max")):
        assert memops[name].tolist() == times[f"{theirs} (ns)"].tolist()
    assert memops["ops_n"].tolist() == times["Count"].tolist() == sizes["Count"].tolist()
    assert memops["size_bytes"].tolist() == sizes["Total (B)"].tolist()
    if every["kind"].is_unique:
        assert np.abs(memops["p50_ns"] - times["Med (ns)"]).max() <= ROUNDING
        assert memops["median_bytes"].tolist() == sizes["Med (B)"].tolist()
