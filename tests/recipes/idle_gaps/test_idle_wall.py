"""The idle class of the table wall is the idle time of the recipe's own tables, cause by cause."""

from __future__ import annotations

import numpy as np
import pytest
from effort import seeds
from quick_run import quick
from results import rows
from trace_builder import TraceBuilder

IDLE = "rank device_id wall_class span_ns time_ns"
CALLS = ("cudaStreamSynchronize_v3020", "cudaMalloc_v3020", "cuModuleLoadData", "cudaEventRecord")
OPTIONS = (
    (),
    ("--whole-capture",),
    ("--filter-time", "40/260"),
    ("--filter-time", "0/9000"),
    ("--device", "1"),
    ("--filter-nvtx", "step"),
)


def drawn(seed):
    """Return a rank with two devices, launches in and outside of a range, and flushes."""
    random = np.random.default_rng(seed)
    trace = TraceBuilder(duration_ns=400)
    trace.nvtx("step", start_ns=20, end_ns=200)
    at = 5
    for _ in range(25):
        at += int(random.integers(1, 12))
        done = at + int(random.integers(1, 6))
        start = done + int(random.integers(0, 30))
        name = str(random.choice(["nvjet_a", "flash_fwd_kernel", "ncclDevKernel_AllReduce_Sum"]))
        trace.kernel(
            name,
            start_ns=start,
            duration_ns=int(random.integers(0, 20)),
            launch=(at, done),
            device_id=int(random.integers(0, 2)),
        )
        at = done
        if random.random() < 0.4:
            end = at + int(random.integers(1, 9))
            trace.api(str(random.choice(CALLS)), start_ns=at, end_ns=end)
            at = end
    for _ in range(3):
        start = int(random.integers(0, 300))
        trace.overhead("CUPTI Buffer flush", start_ns=start, duration_ns=15, overhead_type=3)
    return trace


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("seed", seeds(12, 1))
def test_idle_time_is_the_same_in_both_on_every_device(seed, options, tmp_path):
    path = drawn(seed).write_sqlite(tmp_path / "rank0.sqlite")
    tables = quick("idle_gaps", path, *options)
    causes = {}
    for device, cause, ns in rows(tables["rank_causes"], "device_id cause idle_ns"):
        causes[device, cause] = causes.get((device, cause), 0) + ns
    wall = rows(tables["wall"], "device_id wall_class detail time_ns")
    by_detail = {
        (device, detail): ns for device, name, detail, ns in wall if name == "idle" and detail
    }
    assert by_detail == {key: ns for key, ns in causes.items() if ns}
    spans = dict(rows(tables["wall"], "device_id span_ns"))
    for device, window_ns, overhead_ns, idle_ns in rows(
        tables["devices"], "device_id window_ns overhead_ns idle_ns"
    ):
        assert spans[device] == window_ns
        assert sum(ns for gpu, _, _, ns in wall if gpu == device) == window_ns
        sums = {
            name: sum(ns for gpu, wall_class, _, ns in wall if (gpu, wall_class) == (device, name))
            for name in ("profiler", "idle")
        }
        assert sums == {"profiler": overhead_ns, "idle": idle_ns}


@pytest.mark.slow
def test_all_recipes_of_an_overview_have_the_idle_time_of_the_whole_capture(tmp_path):
    path = drawn(1).write_sqlite(tmp_path / "rank0.sqlite")
    wall, alone = (
        quick(recipe, path, "--whole-capture")["wall"] for recipe in ("llm_overview", "idle_gaps")
    )
    assert rows(wall, IDLE) == rows(alone, IDLE)
