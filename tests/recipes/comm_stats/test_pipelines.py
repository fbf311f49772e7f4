"""Pipelines of stages: the bubble is named and nobody blamed for it; a slow stage still is.

The truth is planted: what each stage computes and transfers is known to the nanosecond.
"""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from statistics import mean

import numpy as np
import pandas as pd
import pytest
from comm_jobs import Plan, true_bubbles
from effort import seeds
from machine import simulate, write_profiles
from machine.changes import with_scaled
from pipeline_world import SEND_RECV
from planted import frame_of
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.job.collectives.stages import may_be_stages
from nsys_llm.recipes.comm_stats.findings.pipelines import find_pipelines
from nsys_llm.report.rank_findings import RULES
from nsys_llm.run.worker import load_analysis

#: Rules that blame a rank for what others wait for.
BLAME = {*RULES, "collective_waits", "clocks_too_uncertain", "host_work"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "recipe"),
    [("1f1b", "comm_stats"), ("interleaved", "llm_hotspots"), ("gpipe", "idle_gaps")],
)
def test_nobody_is_blamed_for_the_schedule(schedule, recipe, tmp_path):
    chunks_n = 1 + (schedule == "interleaved")
    write_profiles(Plan({"pp": 3}, schedule, 6, chunks_n, steps_n=4).outcome, tmp_path)
    tables = quick(recipe, tmp_path)
    assert not set(tables["findings"]["rule"]) & BLAME
    if recipe == "comm_stats":
        assert not re.search("for rank|straggler", load_analysis(recipe).answer(tables))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_experts_that_are_launched_one_by_one_are_no_pipeline(seed, tmp_path):
    rng = np.random.default_rng(seed)
    free = np.full(2, 1_000_000)
    traces = [TraceBuilder(hostname="node") for _ in range(2)]
    for exchange in range(60):
        experts_n = int(rng.binomial(16, 0.5))
        for rank, trace in enumerate(traces):
            kernels_n = 3 * abs(16 * rank - experts_n) if exchange % 2 else 6
            for start in range(int(free[rank]), int(free[rank]) + 10_000 * kernels_n, 10_000):
                launch = (start - 900, start)
                trace.kernel("gemm(int)", start_ns=start, duration_ns=9_000, launch=launch)
            free[rank] += 10_000 * kernels_n
        end = int(free.max()) + 30_000
        for start, trace in zip(free.tolist(), traces, strict=True):
            span = {"start_ns": start, "end_ns": end + int(rng.integers(0, 500))}
            trace.kernel(SEND_RECV, **span, launch=(start - 900, start), stream_id=9)
        free[:] = end + 2_000
    for rank, trace in enumerate(traces):
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    tables = quick("comm_stats", tmp_path)
    assert tables["stages"]["stage"].isna().all()
    assert not set(tables["findings"]["rule"]) & {"pipeline_bubble", "slow_stage"}


@pytest.mark.slow
def test_a_slow_stage_is_compared_with_what_its_words_say(tmp_path):
    plan = Plan({"pp": 3}, paces=(1, 1.4, 1), steps_n=6)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    slow = tables["findings"].set_index("rule").loc["slow_stage"]
    computes = tables["bubbles"].groupby("rank")["compute_ns"].sum()
    beyond_mean_pct = 100 * (computes[1] / computes.mean() - 1)
    beyond_median_pct = 100 * (computes[1] / computes[[0, 2]].median() - 1)
    assert f"{beyond_mean_pct:.1f} % longer than the mean stage" in slow["title"]
    assert slow["details"].startswith(f"{beyond_mean_pct:.1f} % more compute than the mean stage")
    answer = " ".join(load_analysis("comm_stats").answer(tables).split())
    assert f"{beyond_median_pct:.1f} % longer than the median of the others" in answer


def uneven(seed):
    dice = Random(f"uneven {seed}")
    schedule = dice.choice(("gpipe", "1f1b", "interleaved"))
    stages_n, many = dice.choice((2, 3, 4)), dice.choice((4, 6, 8, 12, 16))
    if schedule == "interleaved":
        stages_n, many = 3, dice.choice((6, 12))
    paces = [1.0] * stages_n
    paces[dice.randrange(stages_n)] = dice.choice((1.2, 1.3, 1.5))
    chunks_n = 2 if schedule == "interleaved" else 1
    return Plan({"pp": stages_n}, schedule, many, chunks_n, tuple(paces), steps_n=5, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 2))
def test_of_bubble_and_slow_stage_that_leads_which_gains_more(seed, tmp_path):
    plan = uneven(seed)
    halves = tuple(pace / 2 for pace in plan.paces)
    twice = replace(plan, microbatches_n=2 * plan.microbatches_n, paces=halves).program
    even = replace(plan, paces=(mean(plan.paces),) * len(plan.paces)).program
    # Of half as many tokens a message takes half as long.
    jobs = {"pipeline_bubble": with_scaled(twice, SEND_RECV, 0.5), "slow_stage": even}
    usual_ns = plan.outcome.wall_ns
    truth = {rule: 1 - simulate(job).wall_ns / usual_ns for rule, job in jobs.items()}
    write_profiles(plan.outcome, tmp_path)
    shown = quick("comm_stats", tmp_path)["findings"].set_index("rule")["gain_ns"] / usual_ns
    for rule, gained in truth.items():
        assert abs(shown.get(rule, 0) - max(gained, 0)) < 0.05
    more, less = sorted(truth, key=lambda rule: -truth[rule])
    if truth[more] - truth[less] > 0.03:
        assert shown.index[0] == more


@pytest.mark.slow
def test_without_its_schedule_a_slow_stage_costs_at_most_so_much(tmp_path):
    # Two stages that are interleaved look like two that are not.
    plan = Plan({"pp": 2}, "interleaved", 4, chunks_n=2, paces=(1, 1.4), steps_n=6)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    assert tables["bubbles"]["microbatches_n"].isna().all()
    even = replace(plan, paces=(1.2, 1.2)).outcome
    slow = tables["findings"].set_index("rule").loc["slow_stage"]
    assert pd.isna(slow["about_basis"])
    assert slow["bound_ns"] > plan.outcome.wall_ns - even.wall_ns


@pytest.mark.slow
def test_the_gain_of_microbatches_is_of_the_gpu_that_sets_the_pace(tmp_path):
    program = Plan({"tp": 2, "pp": 2}, "gpipe", 8, seed=1).program
    ranks = [
        replace(rank, gpu_pct=125 if at == 0 else 100) for at, rank in enumerate(program.ranks)
    ]
    write_profiles(simulate(replace(program, ranks=tuple(ranks))), tmp_path)
    tables = quick("comm_stats", tmp_path)
    bubbles = tables["bubbles"].groupby("rank")["bubble_ns"].sum()
    assert bubbles[1] > 1.5 * bubbles[0]
    bubble = tables["findings"].set_index("rule").loc["pipeline_bubble"]
    assert (bubble["rank"], bubble["bound_ns"]) == (0, bubbles[0])
    assert "Stage 0 (rank 0) computes most" in bubble["details"]


@pytest.mark.slow
def test_a_bubble_with_waits_that_are_not_matched_is_at_least_so_much(tmp_path):
    plan = Plan({"pp": 3}, closing=True, steps_n=3, paces=(1, 1, 1.1))
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    truth = [vars(some) for some in true_bubbles(plan).values()]
    true_ns = sum(some["wait_stage_ns"] + some["idle_ns"] - some["host_ns"] for some in truth)
    true_pct = 100 * true_ns / sum(some["window_ns"] for some in truth)
    frame = tables["bubbles"]
    told_pct = 100 * frame["bubble_ns"].sum() / frame["window_ns"].sum()
    assert told_pct < 0.9 * true_pct
    answer = load_analysis("comm_stats").answer(tables)
    assert f"Bubble at least {told_pct:.1f} %" in answer
    assert "imbalance" not in answer
    bubble = tables["findings"].set_index("rule").loc["pipeline_bubble"]
    assert f"bubble at least {told_pct:.1f} %" in bubble["title"]
    ours = sum(
        some.wait_stage_ns + some.idle_ns - some.host_ns
        for (rank, _), some in true_bubbles(plan).items()
        if rank == bubble["rank"]
    )
    assert bubble["bound_ns"] >= ours


def test_ends_of_chains_send_and_receive_less_often():
    for chain in ([44, 84, 76, 36], [192, 256, 256, 192], [40, 40, 80, 80, 40, 40], [40, 80]):
        assert may_be_stages(chain)
    for equals in ([64, 64, 64, 64], [640, 640, 640, 620], [4, 8, 8, 4], [210] + 7 * [30], []):
        assert not may_be_stages(equals)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_equal_stages_in_lockstep_have_the_neighbors_of_the_line(seed, tmp_path):
    plan = Plan({"pp": 4}, "gpipe", 8, closing=seed % 5 == 1, seed=seed + 2)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    pairs = tables["groups"].query("ranks_n == 2")
    assert set(zip(pairs["ranks"], pairs["collectives_n"], strict=True)) == {
        ("0-1", 96),
        ("1-2", 96),
        ("2-3", 96),
    }
    assert set(tables["bubbles"]["kind"]) == {"gpipe"}


def test_stages_go_by_their_labels_and_a_sum_without_one_step_is_not_known():
    bubbles = [
        {
            **{"rank": rank, "step": step, "window_ns": 100, "bubble_ns": 50, "schedule_ns": 20},
            **{"compute_ns": 30 if rank == 1 else 10, "imbalance_ns": 5 if step or rank else None},
        }
        for rank in range(3)
        for step in range(2)
    ]
    # The first stage of the pipeline left no profile.
    stages = [{"rank": rank, "pipeline": 0, "stage": rank + 1} for rank in range(3)]
    rows = {"bubbles": bubbles, "stages": stages}
    (found,) = find_pipelines({name: frame_of(name, rows[name], "comm_stats") for name in rows})
    assert (found.pace, found.pace_gpu["rank"], found.longer_pct) == (2, 1, 200)
    assert found.gpus["bubble_ns"].tolist() == [100] * 3
    assert found.gpus["imbalance_ns"].isna().tolist() == [True, False, False]
