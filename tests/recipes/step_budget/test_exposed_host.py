"""A wait and the work of the host that it exposes are one finding; of a host late anyway, two."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from gain_checks import check_findings
from machine import changes, parts, random_program, simulate, write_profiles
from machine.program import Program, Sync
from path_truth import budget
from quick_run import quick

from nsys_llm.recipes.step_budget.findings.answer import answer
from nsys_llm.recipes.step_budget.findings.gains import findings
from nsys_llm.report.findings import ranked
from nsys_llm.view.text import format_ns, format_percent

WAIT = "cudaDeviceSynchronize"
OF_HOST = {"path_host_work", "path_launch_calls"}


def exposing(ranks_n=1, steps_n=8, seed=0):
    """Return a job that waits for each step's kernels before it prepares the next: `sync`."""

    def body(make, rank, step):
        kernels = [make.kernel(name, 400_000) for name in (parts.GEMM, parts.ATTENTION)]
        return [make.host(120_000), *kernels, Sync("device", fault="sync")]

    return parts.ranked(ranks_n, steps_n, body, seed)


def late_anyway(ranks_n=1, steps_n=8, seed=0):
    """Return a job whose host works longer than its GPU, and waits for it amid a step: `sync`."""

    def body(make, rank, step):
        first = [make.host(600_000), make.kernel(parts.GEMM, 200_000), Sync("device", fault="sync")]
        return [*first, make.host(200_000), make.kernel(parts.ATTENTION, 200_000)]

    return parts.ranked(ranks_n, steps_n, body, seed)


def taking_turns(ranks_n=2, steps_n=8, seed=0):
    """Return a job whose ranks prepare longer in turns, and the others wait in the reduction."""

    def body(make, rank, step):
        work = make.host(500_000 if step % ranks_n == rank else 60_000)
        kernels = [make.kernel(parts.GEMM, 800_000), make.reduce(40_000)]
        return [work, *kernels, Sync("device", fault="sync")]

    return parts.ranked(ranks_n, steps_n, body, seed)


def late_in_turns(host=1.0, steps_n=8, seed=0):
    """Return a job of two hosts that are late in turns, whether they wait or not."""

    def body(make, rank, step):
        long_ns, short_ns = (900_000 * host, 300_000 * host)[:: 1 if step % 2 == rank else -1]
        first = [make.host(long_ns), make.kernel(parts.GEMM, 100_000), make.reduce(40_000)]
        then = [make.host(short_ns), make.kernel(parts.ATTENTION, 100_000), make.reduce(40_000)]
        return [*first, *then, Sync("device", fault="sync")]

    return parts.ranked(2, steps_n, body, seed)


def with_start_up(program):
    """Return a job of one rank with work before its first step that is as long as ten of them."""
    (rank,) = program.ranks
    make = parts.Maker(0, 1)
    first = (make.kernel(parts.POINTWISE, 10_000_000), Sync("device"))
    return Program((replace(rank, threads=((*first, *rank.threads[0]), *rank.threads[1:])),))


def shown(tables):
    listed = ranked(findings(tables))
    check_findings(listed, tables)
    return {finding.rule: finding for finding in listed if finding.kind == "performance"}


@pytest.mark.parametrize("ranks_n", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_host_work_that_a_wait_exposes_is_part_of_the_wait(tmp_path, seed, ranks_n):
    program = exposing(ranks_n, seed=seed)
    outcome, tables = budget(tmp_path, program)
    by_rule = shown(tables)
    assert by_rule["path_waits"].name == WAIT
    assert OF_HOST.isdisjoint(by_rule)
    gained_ns = outcome.wall_ns - simulate(changes.without_fault(program, "sync")).wall_ns
    assert 0.8 * gained_ns <= by_rule["path_waits"].gain.gain_ns <= 1.25 * gained_ns


@pytest.mark.parametrize("seed", range(3))
def test_a_wait_gains_what_gpus_wait_for_each_other_too(tmp_path, seed):
    program = taking_turns(seed=seed)
    outcome, tables = budget(tmp_path, program)
    wait = shown(tables)["path_waits"].gain
    gained_ns = outcome.wall_ns - simulate(changes.without_fault(program, "sync")).wall_ns
    wall = tables["wall"].query("rank == 0")
    assert gained_ns > 1.25 * wall.loc[wall["wall_class"] == "idle", "time_ns"].sum()
    assert 0.8 * gained_ns <= wait.gain_ns <= 1.25 * gained_ns
    assert wait.wall_classes == ("idle", "communication")


@pytest.mark.parametrize("seed", range(3))
def test_host_work_gains_no_more_than_is_said_where_ranks_are_late_in_turns(tmp_path, seed):
    _, tables = budget(tmp_path / "late", late_in_turns(seed=seed))
    _, healed = budget(tmp_path / "healed", late_in_turns(host=0.0, seed=seed))
    host = shown(tables)["path_host_work"]
    spans_ns = healed["wall"].set_index("rank")["span_ns"]
    assert host.gain.is_bound
    assert host.gain.wall_classes == ("idle", "communication")
    assert 0 < host.gain.span_ns - spans_ns[host.rank].iloc[0] <= host.gain.gain_ns


@pytest.mark.parametrize("seed", range(3))
def test_a_host_that_is_late_without_the_wait_too_is_a_finding_of_its_own(tmp_path, seed):
    program = late_anyway(seed=seed)
    outcome, tables = budget(tmp_path, program)
    by_rule = shown(tables)
    assert by_rule["path_waits"].name == WAIT
    assert "path_host_work" in by_rule
    # Without its wait the host is late still, and with a fast host the wait costs nothing more.
    healed = simulate(changes.without_fault(program, "sync"))
    fast = simulate(changes.with_fast_host(program))
    gains_ns = [outcome.wall_ns - other.wall_ns for other in (healed, fast)]
    assert 2 * gains_ns[0] < gains_ns[1]


def test_without_a_wait_none_exposes_a_host_that_gains_nothing(tmp_path):
    # Replayed, its infinitely fast host is a little slower.
    _, tables = budget(tmp_path, random_program(6032))
    assert tables["what_if"].set_index("change").loc["host=0", "gain_ns"] < 0
    assert "path_waits" not in shown(tables)


def test_the_overview_has_one_opportunity_for_one_idle_time_and_two_for_two(tmp_path):
    for name, program in (("exposing", exposing(2)), ("late_anyway", late_anyway(2))):
        write_profiles(simulate(program), tmp_path / name)
    culprits = {
        name: set(quick("llm_overview", tmp_path / name)["opportunities"]["culprit"])
        for name in ("exposing", "late_anyway")
    }
    assert "idle:host_sync" in culprits["exposing"]
    assert "host:late" not in culprits["exposing"]
    assert {"idle:host_sync", "host:late"} <= culprits["late_anyway"]


def first_line_pct(tables):
    """Return what the first line says that waits gain."""
    return re.search(
        r"Removing the waits of .* gains about ([\d.]+ %) in a replay", answer(tables)
    )[1]


def test_time_outside_of_steps_is_why_a_gain_is_less_of_a_run_than_of_a_step(tmp_path):
    _, tables = budget(tmp_path, with_start_up(exposing()))
    wait = shown(tables)["path_waits"]
    of_step_pct = tables["what_if"].set_index("change").loc[f"wait:{WAIT}", "gain_pct"]
    assert wait.gain.gain_pct < 0.6 * of_step_pct
    whole_ns = wait.numbers["whole_steps_ns"]
    assert wait.gain.gain_ns == pytest.approx(of_step_pct / 100 * whole_ns, abs=1)
    said = f"that of 8 whole steps, which take {format_ns(whole_ns)}; the span of this GPU is"
    assert said in wait.details
    assert first_line_pct(tables) == format_percent(wait.gain.gain_pct)


def test_what_a_gpu_has_to_gain_limits_a_gain_and_is_said(tmp_path):
    _, tables = budget(tmp_path, exposing())
    wall = tables["wall"]
    idle = wall["wall_class"] == "idle"
    short = wall.assign(time_ns=wall["time_ns"].where(~idle, wall["time_ns"] // 10))
    wait = shown({**tables, "wall": short})["path_waits"]
    idle_ns = int(short.loc[idle, "time_ns"].sum())
    assert wait.gain.gain_ns == idle_ns
    assert (
        f"limited to {format_ns(idle_ns)}, the idle and waiting time of this GPU." in wait.details
    )


@pytest.mark.traces
@pytest.mark.parametrize("run", ["before", "after"])
def test_the_first_line_gains_what_its_finding_does_of_a_window_that_cuts_layers(traces, run):
    tables = quick("step_budget", traces / "h100_mfu_ranks" / run)
    wait, steps = shown(tables)["path_waits"], tables["job_steps"]
    mean_ns = steps.loc[steps["mark"] == "", "wall_ns"].mean()
    assert first_line_pct(tables) == format_percent(wait.gain.gain_pct)
    assert 100 * wait.gain.gain_step_ns / mean_ns == pytest.approx(wait.gain.gain_pct)
    of_step_pct = tables["what_if"].set_index("change").loc[f"wait:{wait.name}", "gain_pct"]
    assert wait.gain.gain_pct == pytest.approx(of_step_pct)


@pytest.mark.traces
@pytest.mark.parametrize("run", ["before", "after"])
def test_one_idle_time_of_a_real_trace_is_one_finding(traces, run):
    by_rule = shown(quick("step_budget", traces / "h100_mfu_ranks" / run))
    assert by_rule["path_waits"].name == "cudaStreamSynchronize"
    assert OF_HOST.isdisjoint(by_rule)
    culprits = quick("llm_overview", traces / "h100_mfu_ranks" / run)["opportunities"]["culprit"]
    assert "host:late" not in set(culprits)
