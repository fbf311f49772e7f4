"""Processes on one GPU: time of the other one is no idle time; who shares none loses nothing."""

from __future__ import annotations

import pytest
from quick_run import quick
from results import read_frames
from trace_builder import TraceBuilder

from nsys_llm.run.cli import main

US, MS = 1_000, 1_000_000
STEPS, KERNELS = 40, 5


def add_server(trace, pid, gpus, *, late_us=0, devices=(0,)):
    """Add a process that runs 5 kernels of 80 us in each millisecond, at some time in it."""
    trace.process(pid=pid, name="serve", gpu_ids=gpus)
    for step in range(STEPS):
        for kernel in range(KERNELS):
            at_ns = step * MS + (late_us + 80 * kernel) * US + MS
            for device in devices:
                launch = at_ns - 20 * US, at_ns - 10 * US
                known = {"pid": pid, "device_id": device, "launch": launch}
                trace.kernel("gemm", start_ns=at_ns, duration_ns=80 * US, **known)
    return trace


def pair(gpus=((0,), (0,)), **others):
    trace = add_server(TraceBuilder(), 1, gpus[0], **others)
    return add_server(trace, 2, gpus[1], late_us=500)


def classes(tables):
    """Return the time of each class of the first process, in us."""
    wall = tables["wall"]
    rows = wall[wall["rank"] == 0].groupby(["device_id", "wall_class"])["time_ns"].sum()
    return {key: ns // US for key, ns in rows.items() if ns}


def test_time_of_another_process_is_no_idle_time_and_has_no_cause(tmp_path):
    tables = quick("idle_gaps", pair().write_sqlite(tmp_path / "a.sqlite"))
    # Between the ends of two steps: 600 us, of which the other process has 400.
    idle_us, others_us = 200 * (STEPS - 1), 400 * (STEPS - 1)
    expected = {"compute": 400 * STEPS, "other_process": others_us, "idle": idle_us}
    assert classes(tables) == {(0, name): us for name, us in expected.items()}
    causes = tables["rank_causes"].groupby("cause")["idle_ns"].sum()
    assert causes["other_process"] == 2 * others_us * US
    assert tables["capture"]["kind"].tolist() == ["shared_gpu", "shared_gpu"]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(pair(((0,), (1,))), id="GPUs of their own"),
        pytest.param(pair().drop_table("TARGET_INFO_CUDA_DEVICE"), id="nobody tells"),
        pytest.param(pair(((0, 1), (0,)), devices=(0, 1)), id="one of two GPUs is shared"),
    ],
)
def test_who_is_not_known_to_share_its_gpu_is_idle(tmp_path, trace):
    tables = quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite"))
    times = classes(tables)
    assert {name for _, name in times} == {"compute", "idle"}
    assert times[0, "idle"] == 600 * (STEPS - 1)


def test_only_time_in_which_others_had_both_of_its_gpus_is_theirs(tmp_path):
    trace = add_server(TraceBuilder(), 1, (0, 1), devices=(0, 1))
    trace = add_server(add_server(trace, 2, (0,), late_us=400), 3, (1,), late_us=600)
    found = classes(quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite")))
    assert [found[device, "other_process"] for device in (0, 1)] == [200 * (STEPS - 1)] * 2


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"])
def test_slices_of_a_gpu_are_gpus(tmp_path, model):
    trace = TraceBuilder(gpu_name=model)
    trace = add_server(add_server(trace, 1, (0,)), 2, (1,), late_us=500)
    assert quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite"))["capture"].empty


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "shares"), [(((0,), (0,)), True), (((0,), (1,)), False)])
def test_processes_in_several_profiles_share_a_gpu(tmp_path, gpus, shares):
    for pid in (1, 2):
        # The second one's capture began 3 ms later.
        trace = TraceBuilder(system_clock_ns=10**12 + 3 * MS * (pid == 2))
        add_server(trace, pid, gpus[pid - 1], late_us=500 * (pid == 2))
        trace.write_sqlite(tmp_path / f"rank{pid - 1}.sqlite")
    words = ["--quiet", "--mode", "none", "--output", str(tmp_path / "out"), "--input"]
    assert main(["idle_gaps", *words, str(tmp_path)]) == 0
    found = classes(read_frames(tmp_path / "out"))
    assert found.get((0, "other_process"), 0) == (400 * (STEPS - 4) if shares else 0)
