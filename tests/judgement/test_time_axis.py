"""Jobs whose fault comes at some time: when, whose and how much are told, and said first."""

from __future__ import annotations

from random import Random

import pytest
from effort import at_night
from judgement.time_plants import PLANTS
from judgement.truth import NEAR_PCT, true_pct
from machine import simulate, write_profiles
from quick_run import quick


def planted(name, seed, folder, ranks_n=4, steps_n=30):
    """Write a job, and return what is planted and what the job without it gains, in percent."""
    make = PLANTS[name]
    program, truth = make(Random(f"{name} {seed}"), ranks_n, steps_n, fault=True)
    healed, _ = make(Random(f"{name} {seed}"), ranks_n, steps_n, fault=False)
    outcome = simulate(program)
    write_profiles(outcome, folder)
    return truth, true_pct(program, outcome, healed)


@pytest.mark.slow
@pytest.mark.nightly("random_pauses", "checkpoints", "recompiled", "all_slower", "even")
@pytest.mark.nightly("throttling", "collections_in_turns")  # whose first words are read by day
@pytest.mark.parametrize("name", PLANTS)
def test_what_is_planted_is_told(name, tmp_path):
    truth, gain_pct = planted(name, 1, tmp_path)
    tables = quick("step_budget", tmp_path)
    when = tables["when"]
    if truth.kind == "steady":
        assert when.empty
        return
    assert set(when["pattern"]) == {1}
    row = when.iloc[0]
    kind = row["sharing"] if row["sharing"] == "turns" else row["kind"]
    assert kind == truth.kind
    ranks = truth.ranks or range(4)
    assert row["ranks"] == ", ".join(map(str, sorted(ranks)))
    if truth.first is not None:
        assert abs(row["first_step"] - truth.first) <= 1
    said_pct = 100 * row["excess_ns"] / tables["wall"]["span_ns"].max()
    assert said_pct == pytest.approx(gain_pct, abs=NEAR_PCT)
    # What each GPU has, by step, is what the picture shows.
    steps = tables["when_steps"]
    assert set(steps.loc[steps["excess_ns"] > 0, "step"]) <= set(
        range(row["first_step"], row["last_step"] + 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("throttling", "Rank 2's GPU is slow from step 15 of 30 on: compute "),
        ("collections_in_turns", "Ranks 0-3 in turns (8 steps each): pauses in `prepare`: about "),
        *at_night(
            ("all_slower", "On all 4 GPUs compute takes 30.5 % longer from step 18 of 30 on"),
            ("recompiled", "all 4 ranks in step 19: compilation (`convert_frame`)"),
        ),
    ],
)
def test_the_first_words_say_when(name, title, tmp_path):
    _, gain_pct = planted(name, 0, tmp_path)
    tables = quick("llm_overview", tmp_path)
    first = tables["opportunities"].iloc[0]
    assert title in first["title"]
    assert first["gain_pct"] == pytest.approx(gain_pct, abs=NEAR_PCT)
    row = tables["when"].iloc[0]
    assert (row["finding"], row["kind"] == "steady") == (1, False)
    # Of the same time nothing else is said.
    assert (tables["opportunities"]["gain_pct"].iloc[1:] < 5).all()
