"""Flushes of the profiler in llm_hotspots: shown apart from what they held; planted."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from flushed_ranks import write_ranks
from quick_run import quick
from trace_builder import TraceBuilder

US = 1_000
MAIN, WORKER = 100, 190


def begin_of(call, at):
    return at + 2 * US if call.startswith("cudaLaunch") else at - US


def run(path, seed, *, flushed=True, call="cudaLaunchKernel_v7000", held_n=6):
    """Write kernels of 100 us, some of whose launches take 3 ms; return for how long they do.

    Args:
        path: Where.
        seed: Of all lengths.
        flushed: Whether it is a flush of the profiler that holds those launches.
        call: What is held, in the thread that launches.
        held_n: How many.
    """
    rng = np.random.default_rng(seed)
    trace = TraceBuilder().process(pid=MAIN, name="python")
    held = np.zeros(60, dtype=int)
    held[rng.choice(np.arange(5, 60), held_n, replace=False)] = rng.integers(2_000, 4_000, held_n)
    at = 1_000 * US
    for length in (held * US).tolist():
        if call.startswith("cudaLaunch"):
            returns = at + 5 * US + length
            launch = (at, returns)
        else:
            # Begins when the GPU is idle: it waits for nothing but the profiler.
            trace.api(call, start_ns=at - 6 * US, end_ns=at + length)
            launch = (at + length + US, at + length + 5 * US)
            returns = launch[1]
        if length and flushed:
            begin = begin_of(call, at)
            trace.overhead(
                "CUPTI Buffer flush",
                start_ns=begin,
                end_ns=begin + length,
                overhead_type=3,
                tid=WORKER,
            )
        if length:
            # The thread sits in the system until the lock is free.
            wait = begin_of(call, at)
            trace.osrt("pthread_mutex_lock", start_ns=wait, end_ns=wait + length)
        trace.kernel("k", start_ns=returns + US, duration_ns=100 * US, launch=launch)
        at = returns + 111 * US
    trace.write_sqlite(path)
    return int(held.sum()) * US


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("flushed", [True, False])
def test_a_launch_that_a_flush_holds_is_no_slow_launch(tmp_path, seed, flushed):
    held_ns = run(tmp_path / "rank0.sqlite", seed, flushed=flushed)
    tables = quick("llm_hotspots", tmp_path / "rank0.sqlite")
    row = tables["launches"].iloc[0]
    # What is measured stays, as NVIDIA sums it.
    assert row["blocked_launch_ns"] == held_ns + 6 * 5 * US
    assert row["blocked_profiler_idle_ns"] == (held_ns if flushed else 0)
    assert (row["longest_launch_ns"] == 5 * US) == flushed
    wait = tables["os_waits"].iloc[0]
    assert wait["launching_exposed_ns"] == held_ns
    assert wait["launching_profiler_ns"] == (held_ns if flushed else 0)
    classes = tables["api_classes"].set_index("class")
    assert classes.loc["launch", "profiler_ns"] == (held_ns if flushed else 0)
    assert classes.loc["launch", "total_ns"] == held_ns + 60 * 5 * US


def test_what_a_flush_holds_before_the_first_work_is_told_apart(tmp_path):
    late_ns, early_ns = np.zeros((2, 30), dtype=int), 5_000 * US
    late_ns[1] = 300 * US
    folder = write_ranks(tmp_path / "ranks", late_ns, first=False, early_ns=(0, early_ns))
    with sqlite3.connect(folder / "rank1.sqlite") as profile:
        # The ranks begin together: from there on, it is the host of rank 1 that is late.
        profile.execute("DELETE FROM PROFILER_OVERHEAD WHERE start >= ?", (1_000 * US + early_ns,))
    tables = quick("llm_hotspots", folder)
    assert tables["processes"]["held_first_ns"].tolist() == [0, early_ns]
    assert tables["overlap"]["first_exposed_ns"].tolist() == [400 * US, 100 * US]
