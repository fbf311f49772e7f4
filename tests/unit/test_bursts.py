"""Runs of events that chance does not explain."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.bursts import LARGEST_CHANCE, find_bursts

SPREAD = np.arange(20, dtype=np.int64) * 1_000_000


def test_events_spread_evenly_are_no_run():
    assert find_bursts(SPREAD, SPREAD + 10, 20_000_000) == []


def test_a_run_among_spread_events_is_found():
    extra = 5_500_000 + np.arange(6) * 100
    starts = np.sort(np.concatenate((SPREAD, extra)))
    found = find_bursts(starts, starts + 10, 20_000_000)
    assert [(one.first, one.events_n) for one in found] == [(6, 6)]
    # 26 events in 20 ms lie 769,231 ns apart; the run lasts from the first start to the last end.
    assert found[0].expected == pytest.approx(510 / (20_000_000 / 26))
    # Distances of at most a tenth of that: p = 1 - exp(-0.1), and 26 p^5 runs by chance.
    assert found[0].chance == pytest.approx(26 * (1 - np.exp(-0.1)) ** 5)
    assert found[0].chance < LARGEST_CHANCE


def test_the_same_events_in_a_time_as_short_as_they_last_are_no_run():
    starts = 5_500_000 + np.arange(6) * 100
    assert find_bursts(starts, starts + 10, 510) == []


def test_a_long_event_holds_a_run_together():
    starts = np.array([0, 10, 900, 950, 990, 995, 10_000_000], dtype=np.int64)
    ends = starts + np.array([5, 880, 5, 5, 5, 5, 5])
    found = find_bursts(starts, ends, 100_000_000)
    assert [(one.first, one.events_n) for one in found] == [(0, 6)]


def test_two_events_or_no_time_make_no_run():
    two = np.array([0, 1], dtype=np.int64)
    assert find_bursts(two, two + 1, 10**9) == []
    assert find_bursts(np.arange(9), np.arange(9) + 1, 0) == []


def test_chance_seldom_makes_a_run():
    generator = np.random.default_rng(5)
    sets = [np.sort(generator.integers(0, 10**9, 200)) for _ in range(300)]
    found_n = sum(bool(find_bursts(one, one + 1, 10**9)) for one in sets)
    # Expected at most 1 % of 300 sets; 12 would be far beyond it.
    assert found_n < 12
