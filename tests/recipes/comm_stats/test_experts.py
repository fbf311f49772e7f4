"""Uneven experts, against simulated jobs of which everything is known."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random
from statistics import mean, median

import pytest
from effort import nightly_but, seeds
from judgement import rank_plants
from judgement.jobs import each_rank, job
from machine import simulate, write_profiles
from machine.parts import GEMM, POINTWISE, SEND_RECV
from quick_run import quick
from results import rows

from nsys_llm.run.worker import load_analysis

EXCHANGE = "ncclDevKernel_AllToAll(ncclDevKernelArgsStorage<(unsigned long)4096>)"
GATE = "topk_gating_kernel"
#: What hot experts do: stay on a rank, on one of each layer, move, or are none.
LAYERS_N, STEPS_N = 3, 10
PATTERNS = ("one rank", "by layer", "rotating", "even")


def planted(
    seed,
    pattern,
    names=(rank_plants.DISPATCH, rank_plants.COMBINE),
    *,
    steps_n=STEPS_N,
    gate=0,
    late=0,
    less=1.0,
    once=0,
):
    """Return a job of 4 ranks and 3 layers, hosts ahead of their GPUs.

    Args:
        gate: How long it takes to choose experts.
        late: For how much longer than the others one rank computes after its experts.
        less: For how long it computes before them, in shares of the others.
        once: For how long it computes in one step only.
    """
    hot = Random(seed).randrange(4)

    def body(make, rank, step):
        launches = [make.kernel(GEMM, once)] if once and (rank, step) == (hot, 4) else []
        for layer in range(LAYERS_N):
            there = {"one rank": hot, "by layer": (hot + layer) % 4}.get(
                pattern, Random(f"{seed} {step} {layer}").randrange(4)
            )
            more = 1.6 if rank == there and pattern != "even" else 1.0
            gates = [make.kernel(GATE, gate)] if gate else []
            launches += [
                make.kernel(GEMM, 40_000 * (less if rank == hot else 1)),
                *gates,
                make.reduce(9_000, name=names[0]),
                make.kernel(rank_plants.MOE, 60_000 * more),
                make.kernel(POINTWISE, 4_000 * more + late * (rank == hot)),
                make.reduce(9_000, name=names[1]),
                make.kernel(POINTWISE, 6_000),
            ]
        return launches

    return job(Random(seed), body, steps_n=steps_n)


def true_instances(outcome, names):
    """Return rank, longest and mean time of each layer of each step, operation by operation."""
    times = {}
    for rank, ops in enumerate(outcome.operations):
        layers, begun, sums = Counter(), None, 0
        is_first = True
        for op in sorted(ops, key=lambda op: op.start):
            if op.work.name in names and op.work.kind == "collective":
                if is_first:
                    begun, sums = op.end, 0
                elif begun is not None:
                    times.setdefault((op.step, layers[op.step]), {})[rank] = sums
                    layers[op.step] += 1
                is_first = not is_first
            elif op.work.kind == "kernel":
                sums += op.end - op.start
    return {
        key: (max(some, key=lambda rank: some[rank]), max(some.values()), sum(some.values()) / 4)
        for key, some in times.items()
    }


def true_waits(outcome, names):
    """Return for how long each rank waits for uneven experts, and for all else."""
    exchanges = []
    for ops in outcome.operations:
        seen, experts, other = [], 0, 0
        for op in sorted(ops, key=lambda op: op.start):
            if op.work.name in names:
                seen.append((op.last_member.start - op.start, experts, other))
                experts, other = 0, 0
            elif op.work.name in (rank_plants.MOE, GATE):
                experts += op.end - op.start
            elif op.work.kind == "kernel":
                other += op.end - op.start
        exchanges.append(seen)
    truth = [[0, 0] for _ in exchanges]
    # What all do before dispatches.
    others = [[other for _, _, other in seen[2::2]] for seen in exchanges]
    paces = [
        median(ns / mean(every) for ns, every in zip(some, zip(*others, strict=True), strict=True))
        for some in others
    ]
    for at, members in enumerate(zip(*exchanges, strict=True)):
        waits = [wait for wait, *_ in members]
        # As they are, and on a GPU as fast as the mean one.
        plain = [ns for _, ns, _ in members]
        at_pace = [ns / pace for ns, pace in zip(plain, paces, strict=True)]
        more = min(some[waits.index(0)] - mean(some) for some in (plain, at_pace))
        is_for_experts = at > 0 and 2 * more >= mean(waits)
        for rank, wait in enumerate(waits):
            truth[rank][not is_for_experts] += wait
    return truth


def shown_waits(tables):
    """Return the same as the table wall has it."""
    wall = tables["wall"].set_index(["rank", "detail"])["time_ns"]
    return [[wall.get((rank, name), 0) for name in ("experts", "waiting")] for rank in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", nightly_but(PATTERNS, ["rotating"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_each_dispatch_and_combine_is_as_it_was(seed, pattern, tmp_path):
    names = ((rank_plants.DISPATCH, rank_plants.COMBINE), (EXCHANGE, EXCHANGE))[seed % 2]
    program = planted(seed, pattern, names, gate=2_000 * (seed % 3))
    if seed % 4 > 1:  # one clock
        program = each_rank(program, lambda _: {"host": "node", "clock_error_ns": 0})
    outcome = simulate(program)
    write_profiles(outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    truth = true_instances(outcome, names)
    shown = rows(tables["experts"], "step layer hot_rank max_ns mean_ns cost_ns")
    assert len(shown) >= 3 * 9
    for step, layer, *figures in shown:
        hot, longest, mean = truth[step, layer]
        assert figures == [hot, longest, mean, longest - mean], (step, layer)
    assert set(tables["experts"]["pattern"]) == {pattern}
    assert ("experts" in set(tables["findings"]["rule"])) == (pattern != "even")
    waits = true_waits(outcome, names)
    assert shown_waits(tables) == (
        [[0, sum(some)] for some in waits] if pattern == "even" else waits
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [rank_plants.rotating, rank_plants.pinned], ids=["moves", "stays"]
)
@pytest.mark.parametrize("seed", seeds(6, 1))
def test_even_experts_gain_what_the_job_takes_less_with_them(seed, plant, tmp_path):
    program = plant(Random(seed), True)[0]
    wall_ns, even_ns = (simulate(some).wall_ns for some in (program, plant(Random(seed), False)[0]))
    write_profiles(simulate(program), tmp_path)
    gained_ns = int(quick("comm_stats", tmp_path)["experts"]["late_ns"].sum())
    assert 100 * abs(gained_ns - (wall_ns - even_ns)) / wall_ns < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6, 1))
def test_two_groups_of_experts_lose_beside_each_other(seed, tmp_path):
    def two_groups(is_uneven):
        def body(make, rank, step):
            first = rank // 4 * 4
            group, launches = tuple(range(first, first + 4)), []
            for layer in range(3):
                hot = first + Random(f"{seed} {step} {layer} {first}").randrange(4)
                share = (1.6 if rank == hot else 0.8) if is_uneven else 1
                launches += [
                    # In lockstep the groups would be taken for one.
                    make.kernel(GEMM, 55_000 if first else 40_000),
                    make.reduce(9_000, name=rank_plants.DISPATCH, group=group),
                    make.kernel(rank_plants.MOE, 90_000 * share),
                    make.reduce(9_000, name=rank_plants.COMBINE, group=group),
                ]
            return launches

        return simulate(job(Random(seed), body, ranks_n=8, steps_n=8))

    outcome = two_groups(is_uneven=True)
    gained_ns = outcome.wall_ns - two_groups(is_uneven=False).wall_ns
    write_profiles(outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    found = tables["findings"].set_index("rule").loc["experts"]
    assert 100 * abs(found["gain_ns"] - gained_ns) / outcome.wall_ns < 1.5
    # Nothing else makes a rank wait.
    assert re.fullmatch(r".*: (9\d\.\d|100\.0) % of all waiting", found["title"])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds(4, 1))
def test_even_experts_have_next_to_none_to_gain(seed, tmp_path):
    outcome = simulate(rank_plants.rotating(Random(seed), False)[0])
    write_profiles(outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    assert tables["experts"]["late_ns"].sum() < 0.02 * outcome.wall_ns
    assert "experts" not in set(tables["findings"]["rule"])


@pytest.mark.nightly
def test_a_slow_gpu_is_no_hot_expert(tmp_path):
    program = planted(1, "even")
    ranks = [replace(rank, gpu_pct=100 + 40 * (at == 2)) for at, rank in enumerate(program.ranks)]
    write_profiles(simulate(replace(program, ranks=tuple(ranks))), tmp_path)
    findings = quick("llm_overview", tmp_path)["all_findings"]
    assert "slow_gpu" in set(findings["rule"])
    assert "experts" not in set(findings["rule"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow_pct", "others"), [(100, {}), (140, {}), (100, {"late": 30_000}), (100, {"less": 0.4})]
)
def test_nothing_is_said_of_even_experts(slow_pct, others, tmp_path):
    program = planted(1, "even", **others)
    ranks = [
        replace(rank, gpu_pct=slow_pct if at == 2 else 100) for at, rank in enumerate(program.ranks)
    ]
    write_profiles(simulate(replace(program, ranks=tuple(ranks))), tmp_path)
    tables = quick("comm_stats", tmp_path)
    assert len(tables["experts"])
    assert "xperts" not in load_analysis("comm_stats").answer(tables)
    assert "experts" not in set(tables["wall"]["detail"])


@pytest.mark.slow
@pytest.mark.parametrize("pattern", nightly_but(PATTERNS[:3], ["one rank"]))
@pytest.mark.parametrize("seed", seeds(6, 1))
def test_what_a_rank_does_once_is_not_its_pace(seed, pattern, tmp_path):
    outcome = simulate(planted(seed, pattern, once=5_000_000))
    write_profiles(outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    waits = true_waits(outcome, (rank_plants.DISPATCH, rank_plants.COMBINE))
    assert shown_waits(tables) == waits
    # Ranks wait for experts in all exchanges but those to which it comes late.
    assert sum(experts for experts, _ in waits) > 2_000_000
    assert "experts" in set(tables["findings"]["rule"])


@pytest.mark.slow
def test_exchanges_of_low_confidence_say_nothing_of_experts(tmp_path):
    write_profiles(simulate(planted(1, "rotating", steps_n=1)), tmp_path)
    assert set(quick("tail_stats", tmp_path)["communicators"]["confidence"]) == {"low"}
    tables = quick("comm_stats", tmp_path)
    assert not len(tables["experts"])
    assert "experts" not in set(tables["findings"]["rule"])


@pytest.mark.slow
def test_all_recipes_say_alike_who_waits_for_experts(tmp_path):
    write_profiles(simulate(planted(1, "rotating")), tmp_path)
    names = ("comm_stats", "tail_stats", "step_budget", "llm_overview")
    by_recipe = {name: quick(name, tmp_path) for name in names}
    waits = [shown_waits(tables) for tables in by_recipe.values()]
    assert all(some == waits[0] for some in waits)
    assert sum(experts for experts, _ in waits[0]) > 0
    # Where no rank is to blame tail_stats says it, too, and both are one opportunity.
    (title,) = by_recipe["tail_stats"]["findings"]["title"]
    assert title.endswith("most of it for uneven experts")
    recipes = by_recipe["llm_overview"]["opportunities"].set_index("rule")["recipes"]
    assert recipes["experts"].split(", ") == ["comm_stats", "tail_stats"]
    assert "collective_waits" not in recipes


@pytest.mark.parametrize("ranks", [slice(None), slice(1)], ids=["all", "one"])
def test_a_ring_of_which_ranks_run_no_experts_has_none(ranks, tmp_path):
    outcome = simulate(planted(0, "even", (SEND_RECV, SEND_RECV)))
    for ops in outcome.operations[ranks]:
        for op in ops:
            if op.work.name == rank_plants.MOE:
                op.work = replace(op.work, name=GEMM)
    write_profiles(outcome, tmp_path)
    assert not len(quick("comm_stats", tmp_path)["experts"])
