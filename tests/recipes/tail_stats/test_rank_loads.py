"""Ranks with less or more to do than others are named for that, and who only waits is not."""

from __future__ import annotations

import random

import pytest
from quick_run import quick
from rank_world import ALL_REDUCE, ATTENTION, COMBINE, DISPATCH, GEMM, RankWorld

STEPS_N = 24
DICE = random.Random(3)
RANDOM = [[DICE.randrange(8, 80) for _ in range(4)] for _ in range(STEPS_N)]


def vllm(requests):
    return f"execute_context_0(0)_generation_{requests}({requests})"


def data_parallel(folder, load, *, name=None, pace=(1.0,) * 4, grids=False, experts=True):
    """Write engines of one model; attention grows with requests, and experts are exchanged.

    Args:
        load: Requests of a rank in a step.
        name: Of all steps; None: as vLLM calls them.
        pace: How much longer the kernels of each rank take.
        grids: Whether grids are as large as batches.
        experts: Whether ranks meet at all.
    """
    world = RankWorld(4)
    for step in range(STEPS_N):
        some = [load(rank, step) for rank in range(4)]
        names = [name or (vllm(n) if n else "execute_dummy_batch") for n in some]
        world.begin(lambda rank, names=names: names[rank])
        for _ in range(3):
            for rank, requests in enumerate(some):
                blocks = max(requests, 1) if grids else 132
                world.run(rank, ATTENTION, (10_000 + 2_000 * requests) * pace[rank], blocks)
                world.run(rank, GEMM, 40_000 * pace[rank])
            for kernel in (DISPATCH, COMBINE) if experts else ():
                world.meet(range(4), kernel, 12_000)
        world.end()
    return world.write(folder)


def told(recipe, folder):
    """Return titles by rule, and the rows of `rank_verdicts`."""
    tables = quick(recipe, folder)
    findings = tables["findings"]
    findings = findings[findings["kind"] == "performance"]
    titles = dict(zip(findings["rule"], findings["title"], strict=True))
    return titles, tables["rank_verdicts"].set_index("rank")


@pytest.mark.parametrize(
    ("load", "options", "title"),
    [
        ((32, 32, 32, 0), {}, "Rank 3 runs empty batches in 24 of 24 steps"),
        ((0, 32, 32, 0), {}, "Ranks 0 and 3 run empty batches in 24 of 24 steps"),
        ((32, 0, 0, 0), {}, "Ranks 1-3 run empty batches in 24 of 24 steps"),
        ((40, 40, 40, 6), {}, "Rank 3 has less to do: 6 requests a step, the others 40"),
        ((40, 40, 40, 6), {"name": "forward"}, "Rank 3 has less to compute in 24 of 24 steps"),
        (
            # 80 % of their compute, in smaller grids.
            (40, 40, 40, 28),
            {"name": "forward", "grids": True},
            "Rank 3 has less to compute in 24 of 24 steps",
        ),
    ],
)
def test_who_constantly_has_less_to_do_is_a_cause(load, options, title, tmp_path):
    titles, verdicts = told("tail_stats", data_parallel(tmp_path, lambda r, _: load[r], **options))
    row = verdicts.loc[3]
    assert titles["less_work"].startswith(f"{title} ({row['waiting_pct']:.1f} % of rank ")
    # What it waits is what it could do, and nothing is left that would vary.
    assert row["waiting_pct"] > 10
    assert "collective_waits" not in titles
    assert verdicts["verdict"].dropna().unique().tolist() == ["less_work"]


def test_only_steps_without_requests_are_called_empty(tmp_path):
    folder = data_parallel(tmp_path, lambda r, s: 32 if r < 3 else 0 if s % 12 < 7 else 4)
    titles, verdicts = told("tail_stats", folder)
    assert titles["less_work"].startswith("Rank 3 runs empty batches in 14 of 24 steps ")
    assert verdicts.loc[3, "less_steps_n"] == 14


def test_who_constantly_has_more_to_do_is_named_with_its_requests(tmp_path):
    load = (32, 70, 32, 32)
    titles, verdicts = told("tail_stats", data_parallel(tmp_path, lambda r, _: load[r]))
    words = "Rank 1 has more to compute: 70 requests a step, its peers 32, and computes "
    assert titles["more_work"].startswith(words)
    assert verdicts["verdict"].dropna().to_dict() == {1: "more_work"}


def test_of_two_and_two_those_with_more_are_named(tmp_path):
    load = (6, 40, 40, 6)
    _, verdicts = told("tail_stats", data_parallel(tmp_path, lambda r, _: load[r]))
    assert verdicts["verdict"].dropna().to_dict() == {1: "more_work", 2: "more_work"}


def test_what_varies_from_step_to_step_is_no_load(tmp_path):
    titles, verdicts = told("tail_stats", data_parallel(tmp_path, lambda r, s: RANDOM[s][r]))
    assert verdicts["verdict"].isna().all()
    assert titles["collective_waits"].startswith("Waiting without a straggler: ")


@pytest.mark.parametrize(
    ("pace", "verdict"),
    [((1.0,) * 4, {}), ((1.0, 1.2, 1.0, 1.0), {1: "slow_gpu"}), ((1.0, 0.6, 1.0, 1.0), {})],
)
def test_of_equal_batches_nobody_has_less(pace, verdict, tmp_path):
    """Also the rank that waits because its GPU is faster: that is said, and nothing varies."""
    folder = data_parallel(tmp_path, lambda *_: 32, pace=pace)
    titles, verdicts = told("tail_stats", folder)
    assert verdicts["verdict"].dropna().to_dict() == verdict
    if min(pace) < 1:
        assert "its compute is shorter than its peers' (-40.0 %)" in titles["collective_waits"]


@pytest.mark.parametrize(("is_last", "words"), [(True, "most often for rank 2"), (False, "")])
def test_who_comes_last_most_often_is_named_where_no_verdict_is(is_last, words, tmp_path):
    """A rank that runs other kernels has no peers, but who comes last does not vary."""
    world = RankWorld(4)
    for step in range(12):
        world.begin(lambda _, step=step: f"step {step}")
        for number in range(4):
            last = 2 if is_last else number % 4
            for rank in range(4):
                name = ATTENTION if rank == 2 else GEMM
                world.run(rank, name, 100_000 + 60_000 * (rank == last))
            world.meet(range(4), ALL_REDUCE, 20_000)
        world.end()
    titles, verdicts = told("tail_stats", world.write(tmp_path))
    assert verdicts["verdict"].isna().all()
    assert titles["collective_waits"].endswith(words)
    assert ("without a straggler" in titles["collective_waits"]) != is_last


@pytest.mark.parametrize("grids", [False, True])
def test_engines_that_never_meet_are_compared_by_their_batches(grids, tmp_path):
    """The gain of a slow GPU is its own; of one with less to do what it could do besides."""
    load, pace = (48, 48, 16, 48), (1.0, 1.0, 1.0, 1.12)
    folder = data_parallel(tmp_path, lambda r, _: load[r], pace=pace, grids=grids, experts=False)
    titles, verdicts = told("serving_steps", folder)
    assert titles["less_work"] == "Rank 2 has less to do: 16 requests a step, the others 48"
    assert titles["slow_gpu"] == (
        "Rank 3's GPU is slow: compute 12.0 % longer at the same batch size (48 requests)"
    )
    span_ns = quick("serving_steps", folder)["wall"].groupby("rank")["span_ns"].max()
    assert verdicts.loc[3, "about_ns"] / span_ns[3] == pytest.approx(0.12 / 1.12, rel=0.03)
    # 146 us for 48 requests, 82 for 16.
    used = (146 / 48) / (82 / 16)
    assert verdicts.loc[2, "bound_ns"] / span_ns[2] == pytest.approx(1 - used, rel=0.03)


def test_a_gpu_of_several_of_a_process_is_named_beside_its_rank(tmp_path):
    world = RankWorld(4, one_process=True)
    for step in range(12):
        world.begin(lambda _, step=step: f"step {step}")
        for _ in range(4):
            for device in range(4):
                world.run(device, GEMM, 100_000 * (1.25 if device == 2 else 1))
            world.meet(range(4), ALL_REDUCE, 20_000)
        world.end()
    titles, _ = told("tail_stats", world.write(tmp_path))
    assert titles["slow_gpu"] == "GPU 2 of rank 0 is slow: compute 25.0 % longer"
