"""Runs of events that chance does not explain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nsys_llm.recipes.tail_stats.tables.clusters import (
    LARGEST_CHANCE,
    find_bursts,
    log_chance,
    windows_n,
)

SPREAD = np.arange(20, dtype=np.int64) * 1_000_000


def test_events_spread_evenly_are_no_run():
    assert find_bursts(SPREAD, SPREAD + 10, 20_000_000) == []


def test_a_run_among_spread_events_is_found():
    extra = 5_500_000 + np.arange(6) * 100
    starts = np.sort(np.concatenate((SPREAD, extra)))
    bursts = find_bursts(starts, starts + 10, 20_000_000)
    assert [(burst.first, burst.events_n) for burst in bursts] == [(6, 6)]
    # 26 events in 20 ms lie 769,231 ns apart; the run lasts from the first start to the last end.
    assert bursts[0].expected == pytest.approx(510 / (20_000_000 / 26))
    # Windows of 5 ms and, halved, down to 1.2 us: 13 from each of 26 events. One of 610 ns would
    # be the fullest; the shortest is 1,220 ns, and each of 25 others is in it once in 16,384.
    part = 1_220 / 20_000_000
    exact = sum(math.comb(25, k) * part**k * (1 - part) ** (25 - k) for k in range(5, 26))
    assert 13 * 26 * exact < bursts[0].chance < 10 * 13 * 26 * exact
    assert bursts[0].chance < LARGEST_CHANCE


def test_the_same_events_in_a_time_as_short_as_they_last_are_no_run():
    starts = 5_500_000 + np.arange(6) * 100
    assert find_bursts(starts, starts + 10, 510) == []


def test_a_long_event_holds_a_run_together():
    starts = np.array([0, 10, 900, 950, 990, 995, 10_000_000], dtype=np.int64)
    ends = starts + np.array([5, 880, 5, 5, 5, 5, 5])
    bursts = find_bursts(starts, ends, 100_000_000)
    assert [(burst.first, burst.events_n) for burst in bursts] == [(0, 6)]


def test_two_events_or_no_time_make_no_run():
    two = np.array([0, 1], dtype=np.int64)
    assert find_bursts(two, two + 1, 10**9) == []
    assert find_bursts(np.arange(9), np.arange(9) + 1, 0) == []


def test_chance_seldom_makes_a_run():
    generator = np.random.default_rng(5)
    sets = [np.sort(generator.integers(0, 10**9, 200)) for _ in range(300)]
    found_n = sum(bool(find_bursts(start_ns, start_ns + 1, 10**9)) for start_ns in sets)
    # Expected at most 1 % of 300 sets; 12 would be far beyond it.
    assert found_n < 12


@pytest.mark.parametrize("part", [0.5, 0.1, 1e-3])
def test_the_chance_of_a_full_window_is_never_understated(part):
    n = 40
    for k in range(n + 1):
        exact = sum(math.comb(n, j) * part**j * (1 - part) ** (n - j) for j in range(k, n + 1))
        bound = math.exp(log_chance(np.array([k]), n, part)[0])
        # Chernoff's bound is at most about n times the chance.
        assert exact <= bound * (1 + 1e-9)
        assert bound <= n * max(exact, 1e-300)
    assert windows_n(7, 8_000) == 7 * 2


@pytest.mark.parametrize("seed", range(40))
def test_a_burst_is_found_as_one_though_its_events_are_far_apart(seed):
    rng = np.random.default_rng(seed)
    # 16 within 36 ms among 24 others in 5 s: neighbours are 2.25 ms apart in the mean.
    at = int(rng.integers(0, 4_900_000_000))
    burst = at + rng.integers(0, 36_000_000, 16)
    others = rng.integers(0, 5_000_000_000, 24)
    starts = np.sort(np.concatenate((burst, others)))
    (run,) = find_bursts(starts, starts + 50_000, 5_000_000_000)
    members = set(starts[run.first : run.first + run.events_n].tolist())
    # Its edges may lie too far from the rest of it to belong to it.
    assert len(members & set(burst.tolist())) >= 14
    assert len(members) <= 18


def test_two_bursts_are_two():
    early, other = 10**9 + np.arange(12) * 10**6, 3 * 10**9 + np.arange(9) * 10**6
    bursts = find_bursts(
        np.concatenate((early, other)), np.concatenate((early, other)) + 5, 4 * 10**9
    )
    assert [(burst.first, burst.events_n) for burst in bursts] == [(0, 12), (12, 9)]
