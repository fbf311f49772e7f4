"""Axes, model parts and stages of jobs along several axes: the truth or null, never wrong."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest
from comm_jobs import AXES, Plan
from effort import seeds
from machine import write_profiles
from machine.profile_writer import rank_profile
from quick_run import quick
from results import rows

from nsys_llm.core.errors import UsageError
from nsys_llm.run.worker import load_analysis
from nsys_llm.view.text import format_ns

SIZES = (
    {"tp": 2, "cp": 2, "pp": 2},
    {"tp": 2, "dp": 2},
    {"tp": 2, "pp": 2},
    {"dp": 2, "pp": 3},
    {"tp": 2, "dp": 2, "pp": 2},
    {"tp": 4},
    {"cp": 4},
    {"cp": 2, "dp": 2},
    {"dp": 4},
    {"tp": 4, "dp": 2},
)


def planted(seed):
    dice = Random(seed)
    sizes = SIZES[seed % len(SIZES)]
    return Plan(
        sizes,
        dice.choice(("gpipe", "1f1b")) if "pp" in sizes else "gpipe",
        dice.choice((4, 6)),
        closing=dice.random() < 0.5,
        one_host=dice.random() < 0.7,
        steps_n=6,
        seed=seed,
    )


def members(text):
    ranks = []
    for part in text.split(", "):
        low, _, high = part.partition("-")
        ranks += range(int(low), int(high or low) + 1)
    return tuple(ranks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    # Of the last one two pairs of stages are not matched, and gradients across stages are.
    [*seeds(20, 1), 2023],
)
def test_an_axis_that_is_told_is_right(seed, tmp_path):
    plan = planted(seed)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    truth = plan.groups()
    everybody = tuple(range(plan.ranks_n))
    for axis, ranks in rows(tables["groups"], "axis ranks"):
        if axis is not None:
            # A group of all ranks along one axis is the world, too.
            right = truth.get(members(ranks), set())
            assert axis in right | ({"world"} if members(ranks) == everybody else set())
    for rank, stage, *shown in rows(tables["stages"], f"rank stage {' '.join(AXES)}"):
        places = plan.places(rank)
        assert stage in (None, places["pp"])
        for axis, place in zip(AXES, shown, strict=True):
            assert place in (None, places[axis])
    # All ranks launch the same kernels.
    assert set(tables["stages"]["model_part"]) == {0}


@pytest.mark.parametrize(
    ("plan", "gone"),
    [
        (Plan({"pp": 3}, "1f1b", steps_n=4, seed=1), 0),
        (Plan({"pp": 4}, "gpipe", steps_n=4, seed=2), 3),
    ],
    ids=["first not traced", "last not traced"],
)
def test_a_part_of_a_pipeline_tells_no_stages(plan, gone, tmp_path):
    write_profiles(plan.outcome, tmp_path)
    (tmp_path / f"rank{gone}.sqlite").unlink()
    tables = quick("comm_stats", tmp_path)
    parts = {}
    for rank, stage, reason in rows(tables["stages"], "rank stage reason"):
        assert stage in (None, plan.places(rank)["pp"])
        parts[rank] = reason
    known = set(tables["stages"].dropna(subset="stage")["rank"])
    assert {rank for rank, reason in parts.items() if reason} == {*range(plan.ranks_n)} - {gone}
    assert set(tables["bubbles"]["rank"]) == known
    assert "are stages, but" in load_analysis("comm_stats").caveats(tables)[0]
    assert "late" not in set(tables["rank_verdicts"]["verdict"])
    for rank, peers_n in rows(tables["rank_verdicts"], "rank peers_n"):
        assert rank in known or peers_n == 1


@pytest.mark.parametrize("sizes", [{"tp": 2}, {"dp": 2}, {"pp": 2}], ids=str)
def test_the_screen_says_how_long_a_step_takes(sizes, tmp_path):
    plan = Plan(sizes, microbatches_n=2, steps_n=4)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    step_ns = [
        (max(op.end for op in ops) - min(op.start for op in ops)) / plan.steps_n
        for ops in plan.outcome.operations
    ]
    first = load_analysis("comm_stats").answer(tables).splitlines()[0]
    assert first.startswith(f"2 GPUs, 4 steps, mean {format_ns(mean(step_ns))} a step: ")


@pytest.mark.slow
def test_a_pipeline_with_tensor_parallel_stages_has_both_axes(tmp_path):
    plan = Plan({"tp": 2, "pp": 2}, "1f1b", 6, steps_n=6, seed=3)
    write_profiles(plan.outcome, tmp_path)
    shown = rows(quick("comm_stats", tmp_path)["groups"], "axis ranks")
    assert sorted(shown) == [("pp", "0, 2"), ("pp", "1, 3"), ("tp", "0-1"), ("tp", "2-3")]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("tp=3", "has 3 ranks; the job has 4. GPUs count as ranks where each"),
        ("tp=2,tp=2", "is not a layout"),
        ("tp=2,xp=2", "is not a layout"),
        ("tp=4,order=tp-tp", "each of its axes once"),
        ("tp=2,pp=2,order=tp-dp", "each of its axes once"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(layout, message, four_ranks):
    with pytest.raises(UsageError, match=message):
        quick("comm_stats", four_ranks, "--layout", layout)


def test_a_second_gpu_of_one_rank_is_no_rank(tmp_path):
    outcome = Plan({"tp": 4}, microbatches_n=2, steps_n=3).outcome
    for rank in range(4):
        trace = rank_profile(outcome, rank)
        if rank == 0:
            trace.kernel("ncclDevKernel_AllReduce_Sum", start_ns=5_000, end_ns=9_000, device_id=1)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    tables = quick("comm_stats", tmp_path, "--layout", "tp=4")
    assert rows(tables["groups"], "axis ranks") == [("tp", "0-3")]
    assert rows(tables["stages"], "rank device_id tp") == [(0, 0, 0), (0, 1, 0)] + [
        (rank, 0, rank) for rank in range(1, 4)
    ]


def test_the_order_of_axes_may_be_given(four_ranks):
    tables = quick("comm_stats", four_ranks, "--layout", "tp=2,dp=2,order=dp-tp")
    assert rows(tables["stages"], "rank tp dp") == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    write_profiles(Plan({"tp": 4}, microbatches_n=2, steps_n=3).outcome, folder)
    return folder
