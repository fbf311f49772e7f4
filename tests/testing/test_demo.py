"""The demo set obeys the physics of GPUs and holds what it says it holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from demo_truth import PlantedDemo, write_demo

from nsys_llm.core.errors import OutputError

GPU_WORK = """
    SELECT k.start, k."end", k.streamId, k.correlationId, k.graphNodeId, s.value AS name,
           k.gridX, k.gridY, k.gridZ, NULL AS copyKind, NULL AS bytes
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
    UNION ALL
    SELECT start, "end", streamId, correlationId, graphNodeId, 'copy', 0, 0, 0, copyKind, bytes
    FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL
    SELECT start, "end", streamId, correlationId, graphNodeId, 'memset', 0, 0, 0, NULL, bytes
    FROM CUPTI_ACTIVITY_KIND_MEMSET
    ORDER BY 1
"""
CALLS = """
    SELECT r.start, r."end", r.correlationId, r.globalTid, s.value AS name
    FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId ORDER BY r.start
"""
RANGES = """
    SELECT n.start, n."end", n.globalTid, n.domainId, coalesce(n.text, s.value) AS text
    FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType = 59
    ORDER BY n.start
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> PlantedDemo:
    return write_demo(tmp_path_factory.mktemp("demo"))


def query(path: Path, statement: str) -> pd.DataFrame:
    with closing(sqlite3.connect(path)) as database:
        return pd.read_sql(statement, database)


def kernels(path: Path) -> pd.DataFrame:
    work = query(path, GPU_WORK)
    work["duration"] = work["end"] - work["start"]
    return work[~work["name"].isin(["copy", "memset"])]


def wall_clock_offset(path: Path) -> int:
    statement = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
    return int(query(path, statement).iloc[0, 0])


def gaps(path: Path) -> pd.DataFrame:
    """Return the times without GPU work: start and end, ns."""
    work = query(path, GPU_WORK)
    free = np.maximum.accumulate(work["end"].to_numpy())[:-1]
    begin = work["start"].to_numpy()[1:]
    return pd.DataFrame({"start": free, "end": begin})[begin > free]


def both(demo: PlantedDemo) -> list[Path]:
    return [*demo.baseline, *demo.after]


@pytest.mark.parametrize("run", ["baseline", "after"])
def test_collectives_end_together_and_the_slow_rank_comes_last(demo, run):
    starts, ends = [], []
    for path in getattr(demo, run):
        names = "^(?:nccl|cross_device_reduce)"
        collectives = kernels(path).loc[lambda frame, names=names: frame["name"].str.match(names)]
        starts.append(collectives["start"].to_numpy() + wall_clock_offset(path))
        ends.append(collectives["end"].to_numpy() + wall_clock_offset(path))
    assert np.ptp(np.array(ends), axis=0).max() < 10_000
    last = np.argmax(np.array(starts), axis=0)
    assert (last == demo.planted.slow_rank).mean() > 0.9
    # By far most of the time in these kernels is waiting: the last rank's own part is small.
    durations = np.array(ends) - np.array(starts)
    waits = np.array(starts).max(axis=0) - np.array(starts)
    assert waits.sum() / durations.sum() > 0.6


def steps(path: Path) -> pd.DataFrame:
    ranges = query(path, RANGES)
    return ranges[ranges["text"].str.startswith("engine_step, seq = ")].reset_index(drop=True)


def longest_overlap(path: Path, calls: pd.DataFrame) -> pd.Series:
    """Return for each call the longest part of one gap that it covers, ns."""
    idle = gaps(path)
    return calls.apply(
        lambda call: (
            np.minimum(idle["end"], call["end"]) - np.maximum(idle["start"], call["start"])
        ).max(),
        axis=1,
    )


@pytest.mark.nightly
def test_gpu_is_idle_for_each_planted_reason(demo):
    path, planted = demo.baseline[0], demo.planted
    calls, step_rows = query(path, CALLS), steps(path)
    calls = calls[~calls["name"].str.startswith("cudaEventQuery")]
    calls["step"] = np.searchsorted(step_rows["start"], calls["start"], side="right") - 1
    calls["idle"] = longest_overlap(path, calls)

    def idle_steps(prefix: str, at_least: int) -> tuple[int, ...]:
        held = calls[calls["name"].str.startswith(prefix) & (calls["idle"] > at_least)]
        return tuple(sorted(set(held["step"])))

    assert idle_steps("cudaMemcpy_", 300_000) == planted.sync_memcpy_steps
    assert idle_steps("cudaStreamSynchronize", 700_000) == planted.late_sync_steps
    assert idle_steps("cudaMalloc_", 700_000) == (planted.allocation_step,)
    # Sampling launches one small kernel after the other, each later than the GPU could take it.
    assert (calls["name"].str.startswith("cudaLaunchKernel") & (calls["idle"] > 1_000)).sum() > 200
    # Between steps the host is busy without CUDA: longer than any call explains.
    idle = gaps(path)
    assert ((idle["end"] - idle["start"]) > 250_000).sum() >= planted.steps - 1


@pytest.mark.nightly
def test_set_is_the_same_every_time(tmp_path):
    first_demo = write_demo(tmp_path / "one", scale=0.2)
    two = write_demo(tmp_path / "two", scale=0.2)
    assert first_demo.planted == two.planted
    for first, second in zip(both(first_demo), both(two), strict=True):
        assert first.read_bytes() == second.read_bytes()
    with pytest.raises(OutputError, match="there already"):
        write_demo(tmp_path / "one", scale=0.2)
