"""The demo set obeys the physics of GPUs and holds what it says it holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys_llm.core.errors import OutputError
from nsys_llm.testing.demo import DemoSet, write_demo

PRODUCTS = "nvjet"
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
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoSet:
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


def both(demo: DemoSet) -> list[Path]:
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


def test_one_kernel_dominates_and_one_is_unknown(demo):
    totals = kernels(demo.baseline[0]).groupby("name")["duration"].sum()
    assert totals.idxmax() == demo.planted.dominant_kernel
    assert totals.max() / totals.sum() > 0.45
    assert demo.planted.unknown_kernel in totals.index


def test_mixed_kernel_has_two_shapes_without_tails_of_their_own(demo):
    mixed = kernels(demo.baseline[0]).query("name == @demo.planted.mixed_kernel")
    by_shape = mixed.groupby("gridX")["duration"]
    assert len(by_shape) == 2
    assert (by_shape.max() / by_shape.median()).max() < 1.2
    assert mixed["duration"].max() / mixed["duration"].median() > 3


def test_jittery_kernel_has_a_tail_within_one_shape(demo):
    jittery = kernels(demo.baseline[0]).query("name == @demo.planted.jittery_kernel & gridX == 1")
    p50, p99, longest = np.percentile(jittery["duration"], [50, 99, 100])
    assert longest / p50 > 2
    assert p99 / p50 > 1.5
    assert len(jittery) >= 100


def test_runs_have_as_many_launches_and_one_kernel_takes_515_percent_of_the_time(demo):
    before, after = kernels(demo.baseline[1]), kernels(demo.after[1])
    assert len(before) == len(after) == demo.planted.launches
    old = before.query("name == @demo.planted.longer_kernel")["duration"]
    new = after.query("name == @demo.planted.longer_kernel")["duration"]
    assert len(old) == len(new) == 16 * demo.planted.steps
    assert new.sum() / old.sum() == pytest.approx(demo.planted.longer_ratio, rel=0.02)


def test_products_and_attention_change_between_the_runs(demo):
    planted = demo.planted
    before, after = kernels(demo.baseline[0]), kernels(demo.after[0])
    gone = set(before["name"]) - set(after["name"])
    come = set(after["name"]) - set(before["name"])
    assert gone == planted.removed_gemms | planted.removed_attention
    assert come == planted.added_gemms | planted.added_attention
    assert len(planted.removed_gemms) == len(planted.added_gemms) == 7
    assert all(name.startswith(PRODUCTS) for name in planted.removed_gemms | planted.added_gemms)
    old = before[before["name"].isin(planted.removed_gemms)]["duration"].sum()
    new = after[after["name"].isin(planted.added_gemms)]["duration"].sum()
    assert new > 1.2 * old


def test_memory_operations_are_those_planted(demo):
    for number, path in enumerate((demo.baseline[3], demo.after[3])):
        work = query(path, GPU_WORK)
        copies = work.query("copyKind == 8")
        assert len(copies) == demo.planted.device_copies[number]
        assert set(copies["bytes"]) == {demo.planted.device_copy_bytes[number]}
        assert (work["name"] == "memset").sum() == demo.planted.memsets[number]
    # The blog's 81 and 163 MB.
    totals = np.multiply(demo.planted.device_copies, demo.planted.device_copy_bytes)
    assert totals // 1_000_000 == pytest.approx([81, 163])


def steps(path: Path) -> pd.DataFrame:
    ranges = query(path, RANGES)
    return ranges[ranges["text"].str.startswith("engine_step, seq = ")].reset_index(drop=True)


def test_steps_are_numbered_and_hold_their_phases(demo):
    path = demo.baseline[0]
    step_rows = steps(path)
    assert step_rows["text"].tolist() == [
        f"engine_step, seq = {n}" for n in range(demo.planted.steps)
    ]
    ranges = query(path, RANGES)
    inside = [
        set(ranges[(ranges["start"] > step.start) & (ranges["end"] < step.end)]["text"])
        for step in step_rows.itertuples()
    ]
    assert {"schedule", "prefill", "sample", "ncclAllReduce", "ncclAllGather"} <= inside[0]
    assert all({"schedule", "decode", "sample", "ncclAllGather"} <= texts for texts in inside[1:])
    assert set(ranges.query("domainId == 1")["text"]) == {"ncclAllReduce", "ncclAllGather"}


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
