"""Verdicts on ranks: every planted fault is named, and no innocent rank ever is."""

from __future__ import annotations

import pytest
from effort import nightly_but
from judgement.truth import HEALED, planted, true_pct
from machine import random_program, simulate, write_profiles
from quick_run import quick
from results import tables_of

from nsys_llm.report.records import records

#: Verdicts that are right, by what is planted.
RIGHT = {
    "slow_gpu": {"slow_gpu"},
    "more_work": {"more_work"},
    "more_launches": {"more_work"},
    "slow_machine": {"slow_host"},
    "late_host": {"late_host"},
    "late_for_no_reason": {"late"},
    "pauses": {"pauses", "late_host"},
    "slewing_clocks": {"slow_gpu"},
    "cut_start": {"slow_gpu"},
    "pinned": {"more_work"},
    "context_ring": {"more_work"},
}
#: Nobody's fault, or the profiler's.
INNOCENT = ("flushed", "rotating", "equal_ranks", "transfer", "launch_bound", "queued")
SEEDS = range(8)
NEAR_PCT = 5.0


def verdicts(program, folder, recipe="step_budget"):
    """Return rank, verdict and price in percent of the span of each rank that has one."""
    write_profiles(simulate(program), folder)
    tables = quick(recipe, folder)
    span_ns = int(tables["wall"]["span_ns"].max())
    rows = tables["rank_verdicts"]
    return [
        (row["rank"], row["verdict"], 100.0 * (row["about_ns"] or row["bound_ns"] or 0) / span_ns)
        for row in records(rows[rows["verdict"].notna()])
    ]


@pytest.mark.parametrize(
    ("kind", "seed"),
    nightly_but(
        # Compute of the last one drifts.
        [*((kind, seed) for kind in RIGHT for seed in SEEDS), ("pinned", 20)],
        [
            ("pinned", 20),
            ("slow_machine", 0),
            ("more_work", 1),
            ("pauses", 2),
            ("slewing_clocks", 0),
            # Of its transfers none is matched for sure.
            ("context_ring", 5),
        ],
    ),
)
def test_a_planted_rank_is_named_with_its_reason_and_price(kind, seed, tmp_path):
    program, healed, wanted = planted(kind, seed)
    named = verdicts(program, tmp_path)
    assert {rank for rank, _, _ in named} == {item.rank for item in wanted if item.kind == "rank"}
    assert {verdict for _, verdict, _ in named} <= RIGHT[kind]
    truth_pct = true_pct(program, simulate(program), healed)
    price_pct = max(price for _, _, price in named)
    # More work that is spread evenly leaves its share with the rank: (n - 1) / n of the truth.
    assert 0.6 * truth_pct - 1 <= price_pct <= truth_pct + NEAR_PCT


@pytest.mark.parametrize(
    ("kind", "seed"),
    nightly_but(
        [
            *((f"{kind}{HEALED}", seed) for kind in RIGHT for seed in SEEDS),
            *((kind, seed) for kind in INNOCENT for seed in SEEDS),
        ],
        [
            ("slow_gpu/healed", 0),
            ("rotating", 2),
            ("slow_machine/healed", 1),
            ("flushed", 1),
            ("context_ring/healed", 5),
        ],
    ),
)
def test_nobody_else_is_named(kind, seed, tmp_path):
    program, _, _ = planted(kind, seed)
    assert {verdict for _, verdict, _ in verdicts(program, tmp_path)} <= {"profiler"}


@pytest.mark.parametrize(
    ("kind", "seed"),
    nightly_but(
        [(f"late_in_grid{healed}", seed) for healed in ("", HEALED) for seed in range(40)],
        # What 3 and 12 wait in is matched with other ranks, or not at all.
        [("late_in_grid", seed) for seed in (3, 12, 21)] + [("late_in_grid/healed", 21)],
    ),
)
def test_who_waits_for_a_partner_is_innocent(kind, seed, tmp_path):
    """Whoever that waiting makes late elsewhere; the late one is named where that is known."""
    program, _, wanted = planted(kind, seed)
    named = {rank for rank, _, _ in verdicts(program, tmp_path, "tail_stats")}
    guilty = {item.rank for item in wanted}
    assert named <= guilty
    assert named == guilty or seed not in (3, 12, 21)


def test_steps_that_a_filter_cuts_cost_as_much_as_the_others(tmp_path):
    """3 whole steps of 5.9: the price was that of 3."""
    write_profiles(simulate(planted("slow_gpu", 0)[0]), tmp_path)
    shares = []
    words = []
    for _ in range(2):
        tables = quick("step_budget", tmp_path, *words)
        begin_ns, span_ns = (
            int(tables["wall"][name].min()) for name in ("span_start_ns", "span_ns")
        )
        shares.append(tables["rank_verdicts"]["about_ns"].max() / span_ns)
        begin, end = (int(begin_ns + part * span_ns) for part in (0.2, 0.62))
        words = ["--filter-time", f"{begin}/{end}"]
    assert shares[1] == pytest.approx(shares[0], rel=0.05)


@pytest.mark.nightly("1")
@pytest.mark.parametrize("ranks", ["0-1", "1"])
def test_waiting_for_ranks_that_were_not_read_is_no_transfer(ranks, tmp_path):
    """Rank 2 is slow, and left out: the others' waiting for it was half of a usual fix."""
    write_profiles(simulate(planted("slow_gpu", 1)[0]), tmp_path / "in")
    options = ["--ranks", ranks, "--only", "step_budget"]
    tables = tables_of(tmp_path / "o", tmp_path / "in", options=options, recipe="llm_overview")
    rows = tables["wall"][tables["wall"]["wall_class"] == "communication"]
    assert set(rows.loc[rows["time_ns"] > 0, "detail"]) <= {"waiting", "transfer or ranks not read"}
    assert "exposed_communication" not in set(tables["opportunities"]["rule"])


def test_waiting_for_ranks_that_were_not_read_is_no_transfer_of_compared_runs(tmp_path):
    write_profiles(simulate(planted("slow_gpu", 1)[0]), tmp_path / "in")
    tables = tables_of(
        tmp_path / "o",
        *(tmp_path / "in", tmp_path / "in"),
        options=["--ranks", "1"],
        recipe="trace_diff",
    )
    rows = tables["wall"][tables["wall"]["wall_class"] == "communication"]
    assert set(rows["detail"]) == {"transfer or ranks not read"}


def test_parts_of_a_run_show_no_pauses(tmp_path):
    assert not verdicts(random_program(5, ahead=True), tmp_path)


@pytest.mark.parametrize(
    ("kind", "seed", "right"),
    nightly_but(
        [
            # 95: another rank waits for the slow one, and so comes later elsewhere.
            *(("slow_in_stage", seed, "slow_gpu") for seed in (1, 2, 3, 4, 5, 95)),
            # 19 and 72: the stages in the middle run one program.
            *(("uneven_stages", seed, "slow_stage") for seed in (*range(6), 19, 70, 72)),
            *(("even_stages", seed, None) for seed in range(6)),
        ],
        [("slow_in_stage", 95, "slow_gpu"), ("uneven_stages", 19, "slow_stage")],
    ),
)
def test_stages_are_sets_of_ranks_and_compared_with_no_other_stage(kind, seed, right, tmp_path):
    """Tensor and context parallel pipelines; of a slow GPU the rest of its stage is innocent.

    What a slow one costs depends on the schedule, and is that of the job run without it.
    """
    program, healed, wanted = planted(kind, seed)
    named = verdicts(program, tmp_path, "tail_stats")
    ranks = {item.rank for item in wanted if item.rank is not None}
    assert {rank for rank, _, _ in named} == ranks
    assert {verdict for _, verdict, _ in named} == ({right} if right else set())
    truth_pct = true_pct(program, simulate(program), healed)
    assert all(price == pytest.approx(truth_pct, abs=2.5) for _, _, price in named)


def test_a_transfer_between_equal_stages_is_not_matched_within_one(tmp_path):
    """Clocks a microbatch apart fit nearly as well, but not as closely."""
    write_profiles(simulate(planted("even_stages/healed", 101)[0]), tmp_path)
    communicators = quick("tail_stats", tmp_path)["communicators"]
    transfers = communicators[communicators["operation"] == "send_recv"]
    assert transfers["communicator"].tolist() == ["0, 2", "1, 3"]
    assert transfers["residual_ns"].tolist() == [0, 0]


@pytest.mark.nightly("late_host-llm_hotspots", "late_host-idle_gaps")
@pytest.mark.parametrize("recipe", ["llm_hotspots", "tail_stats", "idle_gaps"])
@pytest.mark.parametrize("kind", nightly_but(RIGHT, ["late_host"]))
def test_a_recipe_by_itself_says_the_same_or_less(kind, recipe, tmp_path):
    program, _, _ = planted(kind, 0)
    every = {rank: verdict for rank, verdict, _ in verdicts(program, tmp_path)}
    tables = quick(recipe, tmp_path)
    for row in records(tables["rank_verdicts"]):
        assert row["verdict"] is None or row["verdict"] in (every[row["rank"]], "late")
        evidence = [] if row["evidence"] is None else row["evidence"].split(", ")
        assert ("wall" in evidence) == (row["verdict"] is not None)
        assert all("rank" in tables[name].columns for name in evidence)
