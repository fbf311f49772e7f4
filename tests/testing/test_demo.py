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


def both(demo: PlantedDemo) -> list[Path]:
    return [*demo.baseline, *demo.after]


@pytest.mark.slow
@pytest.mark.nightly("baseline")
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


@pytest.mark.nightly
def test_set_is_the_same_every_time(tmp_path):
    first_demo = write_demo(tmp_path / "one", scale=0.2)
    two = write_demo(tmp_path / "two", scale=0.2)
    assert first_demo.planted == two.planted
    for first, second in zip(both(first_demo), both(two), strict=True):
        assert first.read_bytes() == second.read_bytes()
    with pytest.raises(OutputError, match="there already"):
        write_demo(tmp_path / "one", scale=0.2)
