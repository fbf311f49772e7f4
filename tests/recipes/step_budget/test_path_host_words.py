"""Whose host it is, and what it does, stand in the titles of waits."""

from __future__ import annotations

import pytest
from judgement.truth import planted
from machine import simulate, write_profiles
from machine.scenarios import two_devices
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm import analyze
from nsys_llm.report.records import records


def titles(program, folder):
    write_profiles(simulate(program), folder)
    findings = quick("step_budget", folder)["findings"]
    return findings.loc[findings["rule"] == "path_waits", "title"].tolist()


@pytest.mark.slow
def test_a_wait_names_the_rank_whose_host_is_late_alone(tmp_path):
    program, _, wanted = planted("late_host", 2)
    (title,) = titles(program, tmp_path)
    assert title.startswith(f"Rank {wanted[0].rank}'s host after `cuda")
    assert title.endswith("in `data`")


@pytest.mark.slow
def test_a_wait_of_all_ranks_names_none(tmp_path):
    program, _, _ = planted("sync_in_step", 0)
    assert titles(program, tmp_path)[0].startswith("Host after `cuda")


def test_a_range_with_a_trifle_is_not_what_the_host_does(tmp_path):
    (title,) = titles(two_devices(), tmp_path)
    assert title.endswith("in `cudaLaunchKernel`")


def test_what_another_ranks_thread_did_there_is_not_said_of_this_one(tmp_path):
    # Rank 0 idles most; the steps of the job end on rank 1, whose path is in `data`.
    for rank, (name, wait, end) in enumerate((("prepare", 500, 800), ("data", 300, 1_000))):
        trace = TraceBuilder().environment(RANK=str(rank)).thread_switch(start_ns=0, goes_on=True)
        for at in range(0, 9_000, 1_000):
            trace.nvtx("step", 1_000 * at, 1_000 * (at + 999))
            trace.nvtx(name, 1_000 * at, 1_000 * (at + wait))
            if rank == 0:
                trace.nvtx("data", 1_000 * (at + wait), 1_000 * (at + wait + 4))
            launch = 1_000 * (at + wait + 5), 1_000 * (at + wait + 9)
            ends = 1_000 * (at + end)
            trace.kernel("k", start_ns=launch[1] + 1, end_ns=ends, launch=launch)
            trace.api("cudaDeviceSynchronize_v3020", start_ns=launch[1] + 5, end_ns=ends + 1)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    tables = quick("step_budget", tmp_path)
    states = tables["host_states"]
    assert set(states.loc[states["range"] == "data", "rank"]) == {1}
    (title,) = tables["findings"].loc[tables["findings"]["rule"] == "path_host", "title"]
    assert title.endswith("in `data`")


@pytest.mark.slow
def test_samples_alone_do_not_say_what_a_thread_did_on_the_path(tmp_path):
    for name in ("samples", "switches"):
        trace = TraceBuilder()
        for at in range(9):
            launch = 1_000 * at + 300, 1_000 * at + 310
            trace.nvtx("step", 1_000 * at, 1_000 * at + 999)
            trace.kernel("k", start_ns=1_000 * at + 400, duration_ns=500, launch=launch)
            trace.cpu_sample([("f", "/usr/bin/python3")], start_ns=1_000 * at + 100)
        if name == "switches":
            trace.thread_switch(start_ns=0, goes_on=True)
        path = tmp_path / f"{name}.sqlite"
        trace.write_sqlite(path)
        states = quick("step_budget", path)["host_states"]
        assert bool(len(states)) == (name == "switches")
        # An overview reads samples, too, for idle_gaps.
        folder = tmp_path / name
        overview = analyze("llm_overview", path, folder, only="step_budget,idle_gaps")
        assert len(overview.parts["idle_gaps"].tables["host_states"])
        assert records(overview.parts["step_budget"].tables["host_states"]) == records(states)
