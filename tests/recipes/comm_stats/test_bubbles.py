"""Where the steps of stages went, to the nanosecond, against jobs of which everything is known."""

from __future__ import annotations

import pytest
from comm_jobs import Plan, random_pipeline, true_bubbles
from effort import seeds
from machine import write_profiles
from quick_run import quick
from results import rows

PARTS = "window_ns compute_ns transfer_ns wait_stage_ns wait_own_ns copy_ns idle_ns host_ns"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_each_nanosecond_of_a_step_is_where_it_was(seed, tmp_path):
    plan = random_pipeline(seed)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    frame, truth = tables["bubbles"], true_bubbles(plan)
    steps = set(frame["step"])
    assert len(steps) >= plan.steps_n - 1
    assert len(frame) == plan.ranks_n * len(steps)
    for rank, step, *times in rows(frame, f"rank step {PARTS}"):
        assert tuple(times) == tuple(vars(truth[rank, step]).values()), (rank, step)
    assert (frame[["not_matched_ns", "overhead_ns"]] == 0).all(axis=None)
    assert set(frame["microbatches_n"]) == {plan.messages_n}
    assert set(frame["kind"]) == {plan.schedule}
    assert dict(rows(tables["stages"], "rank stage")) == {r: r for r in range(plan.ranks_n)}
    for step in steps:
        of_step = [truth[rank, step] for rank in range(plan.ranks_n)]
        most_ns = max(some.compute_ns for some in of_step)
        schedule_ns = (sum(some.compute_ns for some in of_step) - most_ns) // plan.messages_n
        here = frame[frame["step"] == step].sort_values("rank")
        shown = rows(here, "schedule_ns imbalance_ns other_ns bubble_ns")
        for some, row in zip(of_step, shown, strict=True):
            bubble_ns = some.wait_stage_ns + some.idle_ns - some.host_ns
            imbalance_ns = most_ns - some.compute_ns
            rest_ns = bubble_ns - schedule_ns - imbalance_ns
            assert row == (schedule_ns, imbalance_ns, rest_ns, bubble_ns)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_the_wall_has_the_waits_of_all_bubbles(seed, tmp_path):
    plan = random_pipeline(seed + 100)
    write_profiles(plan.outcome, tmp_path)
    tables = quick("comm_stats", tmp_path)
    wall, frame = tables["wall"], tables["bubbles"]
    if set(frame["step"]) == set(range(plan.steps_n)):
        by_rank = wall[wall["detail"] == "pipeline bubble"].groupby("rank")["time_ns"].sum()
        assert by_rank.to_dict() == frame.groupby("rank")["wait_stage_ns"].sum().to_dict()
        spans = wall.groupby("rank")["span_ns"].first()
        assert spans.to_dict() == frame.groupby("rank")["window_ns"].sum().to_dict()


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_messages_of_both_directions_in_one_stream_are_counted(schedule, tmp_path):
    plan = Plan({"pp": 3}, schedule, 5, one_stream=True, steps_n=4)
    write_profiles(plan.outcome, tmp_path)
    frame = quick("comm_stats", tmp_path)["bubbles"]
    assert set(frame["microbatches_n"]) == {5}
    assert set(frame["kind"]) == {schedule}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan({"tp": 2, "pp": 2}, steps_n=5, seed=10), "wait_own_ns"),
        (Plan({"pp": 4}, "1f1b", 8, late=(2, 300_000), steps_n=4), "host_ns"),
    ],
    ids=str,
)
def test_waiting_for_a_rank_of_its_stage_or_for_its_host_is_no_bubble(plan, what, tmp_path):
    write_profiles(plan.outcome, tmp_path)
    truth, tables = true_bubbles(plan), quick("comm_stats", tmp_path)
    assert sum(vars(some)[what] for some in truth.values()) > 100_000
    assert not set(tables["findings"]["rule"]) & {"host_work", "slow_stage", "unplaced_pipeline"}
    assert not tables["exchanges"]["unplaced"].any()
    shown = rows(tables["bubbles"], f"rank step {PARTS}")
    assert len(shown) == plan.ranks_n * plan.steps_n
    for rank, step, *times in shown:
        assert tuple(times) == tuple(vars(truth[rank, step]).values()), (rank, step)
