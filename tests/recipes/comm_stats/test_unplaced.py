"""Stages whose sends and receives nobody can match are told by what each of them shows."""

from __future__ import annotations

import json
import random

import pytest
from quick_run import quick
from rank_world import ATTENTION, GEMM, SEND_RECV, RankWorld


def forward(folder, computes_ns, *, messages_n=8, apart_ns=0, one_process=False):
    """Write a pipeline of forward passes.

    Args:
        computes_ns: Of a microbatch in each stage.
        apart_ns: How far apart two ends of a transfer may end, so that nothing is matched; then
            all ranks exchange after each slot.
    """
    dice, stages_n = random.Random(1), len(computes_ns)
    world = RankWorld(stages_n, one_process=one_process)
    for step in range(12):
        world.begin(lambda _, step=step: f"step {step}")
        for slot in range(messages_n + (stages_n - 1) * bool(apart_ns)):
            for stage, length_ns in enumerate(computes_ns):
                if not apart_ns or 0 <= slot - stage < messages_n:
                    world.run(stage, GEMM, 0.6 * length_ns)
                    world.run(stage, ATTENTION, 0.4 * length_ns)
                if not apart_ns and stage + 1 < stages_n:
                    world.meet((stage, stage + 1), SEND_RECV, 4_000)
            if apart_ns:
                latest = max(world.free_ns)
                for stage in range(stages_n):
                    end_ns = latest + 4_000 + dice.randrange(apart_ns)
                    world.run(stage, SEND_RECV, end_ns - world.free_ns[stage], 2)
        world.end()
    return quick("comm_stats", world.write(folder))


def found(tables):
    row = tables["findings"].set_index("rule").loc["unplaced_pipeline"]
    return row["title"], row


def test_of_stages_in_lockstep_the_heavier_one_is_named(tmp_path):
    tables = forward(tmp_path, [200_000, 200_000, 200_000, 280_000])
    title, row = found(tables)
    shares = tables["exchanges"].groupby("rank")[["compute_ns", "window_ns"]].sum()
    others = 100 * shares.loc[:2, "compute_ns"].sum() / shares.loc[:2, "window_ns"].sum()
    own = 100 * shares.loc[3, "compute_ns"] / shares.loc[3, "window_ns"]
    assert title.startswith(
        f"The last stage is heavier: rank 3 computes {own:.1f} % of a step, the others "
        f"{others:.1f} %; all ranks wait "
    )
    # Each step begins behind the one before, so 280 us become 220.
    assert row["gain_pct"] == pytest.approx(100 * 60 / 280, rel=0.1)
    assert tables["rank_verdicts"]["verdict"].isna().all()


def test_equal_stages_have_a_bubble(tmp_path):
    title, row = found(forward(tmp_path, [200_000] * 4))
    assert title.startswith("Pipeline bubble about ")
    assert title.endswith(": all stages compute alike")
    assert row["change"] == "microbatches"


def test_ranks_that_may_be_no_stages_are_told_by_what_they_compute(tmp_path):
    title, _ = found(forward(tmp_path, [150_000, 150_000, 210_000, 150_000], apart_ns=90_000))
    assert title.startswith("One rank is heavier: rank 2 computes ")


def test_of_gpus_of_one_process_the_one_that_computes_most_is_named(tmp_path):
    title, row = found(
        forward(tmp_path, [150_000, 150_000, 210_000, 150_000], apart_ns=90_000, one_process=True)
    )
    assert title.startswith("One GPU is heavier: GPU 2 of rank 0 computes ")
    numbers = {cell["name"]: cell["value"] for cell in json.loads(row["evidence"])}
    assert numbers["heavy_pct"] == pytest.approx(1.4 * numbers["others_pct"], rel=0.02)
