"""Profiles of one process in segments are one rank: sums of all, and no time between them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from results import read_frames
from trace_builder import TraceBuilder

from nsys_llm.run.cli import main

S, US, MS = 1_000_000_000, 1_000, 1_000_000
STEPS = 10
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def write(path, *, at_s=0, pid=1, gpu=0, slow=False, first="", boots=True, session=True, **env):
    """Write a capture of steps of 1 ms: a GEMM of 500 us, or 600, and an all-reduce until 900."""
    utc_ns = 10**18 + at_s * S if session else None
    trace = TraceBuilder(utc_epoch_ns=utc_ns, system_clock_ns=(100 + at_s) * S)
    trace.process(pid=pid, gpu_ids=(gpu,)).environment(**env)
    if first:  # so that other names have other ids
        trace.kernel(first, start_ns=1, duration_ns=1, launch=(0, 1))
    for step in range(STEPS):
        at_ns = step * MS + 20 * US
        trace.nvtx(f"step {step}", at_ns - 10 * US, at_ns + 5 * US)
        ends_ns = at_ns + (600 if slow else 500) * US
        trace.kernel(
            "gemm", start_ns=at_ns, end_ns=ends_ns, launch=(at_ns - 9 * US, at_ns - 5 * US)
        )
        launch = at_ns - 4 * US, at_ns - 2 * US
        until_ns = at_ns + (900 + step % 7) * US
        trace.kernel(REDUCE, start_ns=ends_ns, end_ns=until_ns, launch=launch)
    if not boots:
        trace.drop_table("TARGET_INFO_CUDA_DEVICE")
    trace.write_sqlite(path)
    if not boots:
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET systemClockNs = NULL")
            database.commit()
    return path


def run(output, *paths, recipe="llm_overview"):
    words = ["--quiet", "--mode", "none", "--output", str(output), "--input"]
    code = main([recipe, *words, *map(str, paths)])
    return code, read_frames(output)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two ranks in three segments each, which a new name begins; the second rank is slow."""
    folder = tmp_path_factory.mktemp("segments")
    for number in range(3):
        for rank in range(2):
            known = {"at_s": 30 * number, "pid": 1 + rank, "gpu": rank, "slow": rank == 1}
            path = folder / f"rank{rank}.{number + 1}.sqlite"
            write(path, **known, first=number * "begin", RANK=str(rank))
    code, tables = run(folder / "out", folder)
    assert code == 0
    return tables


@pytest.mark.slow
def test_sums_and_steps_are_of_all_segments(tables):
    files, coverage, ranks = tables["files"], tables["coverage"], tables["ranks"]
    assert files["File"].tolist() == ["rank0", "rank1"]
    kernels = coverage[coverage["op"] == "kernel"]
    assert kernels["total_n"].tolist() == [3 * 2 * STEPS + 2] * 2
    assert kernels["api_missing_n"].tolist() == [0, 0]
    assert ranks["compute_ns"].tolist() == [3 * STEPS * ns + 2 for ns in (500 * US, 600 * US)]
    assert ranks["steps_n"].tolist() == [3 * STEPS] * 2


@pytest.mark.slow
def test_time_between_segments_is_not_there(tables):
    assert (tables["ranks"]["span_ns"] < 3 * STEPS * MS).all()
    said = tables["capture"]
    assert said["name"].tolist() == [f"rank{rank}.{n}" for rank in range(2) for n in (1, 2, 3)]
    of_first = said[said["file"] == "rank0"]
    assert (of_first["start_ns"].tolist()[1:] >= of_first["end_ns"][:-1]).all()


@pytest.mark.slow
def test_ranks_are_compared_over_all_segments(tables):
    titles = tables["opportunities"]["title"].tolist()
    assert any("Rank 1's GPU is slow: compute 20.0 % longer" in title for title in titles)
    [verdict] = tables["rank_verdicts"]["steps_n"].unique()
    assert verdict >= 3 * STEPS - 2


@pytest.mark.parametrize(
    ("names", "others", "files"),
    [
        (("a", "b"), {}, ["a"]),  # who they are is known
        (("job.1", "job.2"), {"boots": False}, ["job"]),
        (("a", "b"), {"boots": False}, ["b", "a"]),  # an earlier run
        (("job.1", "job.2"), {"pid": 7}, ["job.2", "job.1"]),
        (("job.1", "job.2"), {"gpu": 1}, ["job.1", "job.2"]),
        (("job.1", "job.2"), {"RANK": "5"}, ["job.2", "job.1"]),
        (("job.1", "job.2"), {"at_s": 0}, ["job.1", "job.2"]),
        (("job.1", "job.2"), {"session": False}, ["job.1", "job.2"]),
    ],
)
def test_what_segments_are_and_what_none_are(tmp_path, names, others, files):
    first, second = ({"RANK": "0", **some} for some in ({}, {"at_s": 60, **others}))
    if "boots" in others or "session" in others:
        first |= {name: others[name] for name in ("boots", "session") if name in others}
    write(tmp_path / f"{names[0]}.sqlite", **first)
    write(tmp_path / f"{names[1]}.sqlite", **second)
    _, tables = run(tmp_path / "out", tmp_path, recipe="llm_hotspots")
    assert tables["files"]["File"].tolist() == files
