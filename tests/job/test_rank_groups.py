"""Peers beside each other: medians of the others, least sizes, machines."""

from __future__ import annotations

import numpy as np
import pytest
from effort import over_seeds

from nsys_llm.job.ranks import groups
from nsys_llm.job.ranks.chance import SMALL
from nsys_llm.job.ranks.groups import others_beyond, sized_standings
from nsys_llm.report.rank_findings import RULES


@over_seeds(range(100))
def test_the_median_of_the_others_is_that_without_the_peer(seed):
    random = np.random.default_rng(seed)
    shape = int(random.integers(2, 9)), int(random.integers(1, 6))
    values = random.integers(0, 5, shape).astype(float)
    expected = [
        row - np.median(np.delete(values, place, axis=0), axis=0)
        for place, row in enumerate(values)
    ]
    assert np.allclose(others_beyond(values), expected)


@pytest.mark.parametrize(
    ("steps_n", "more", "reason"),
    [(40, 0.008, SMALL), (40, 0.012, ""), (19, 0.04, SMALL), (19, 0.06, ""), (8, 0.04, SMALL)],
)
def test_what_is_named_has_a_least_size(steps_n, more, reason):
    values = 0.0005 * np.random.default_rng(0).standard_normal((8, steps_n))
    values[3] += more
    assert sized_standings(values, 0.004)[3].reason == reason


@pytest.mark.slow
def test_ranks_that_wander_are_hardly_ever_named_in_few_steps():
    """With a least size of 1 % about a tenth of such jobs of three equals named a rank."""
    random = np.random.default_rng(1)
    alarms = 0
    for _ in range(200):
        noise = random.standard_normal((3, 10))
        values = noise.copy()
        for step in range(1, 10):
            values[:, step] = 0.9 * values[:, step - 1] + np.sqrt(0.19) * noise[:, step]
        alarms += any(item.named for item in sized_standings(0.01 * values, 0.004))
    assert alarms <= 2


def test_a_long_step_now_and_then_hides_no_slow_rank():
    """Without the limit on single values 4 of these 60 jobs were right."""
    random = np.random.default_rng(1)
    hits = 0
    for job in range(60):
        values = 0.01 * random.standard_normal((4, 30)) + (random.random((4, 30)) < 0.03)
        values[job % 4] += 0.05
        found = sized_standings(values, 0.004)
        hits += [row for row, item in enumerate(found) if item.named] == [job % 4]
    assert hits >= 55


@pytest.mark.parametrize("ranks_n", [4, 8])
def test_a_machine_is_not_slow_because_a_rank_of_another_one_is_fast(ranks_n):
    hosts = ["a"] * ranks_n + ["b"] * ranks_n
    for seed in range(20):
        values = 0.003 * np.random.default_rng(seed).standard_normal((2 * ranks_n, 40))
        values[:ranks_n] += 0.05
        assert groups.tested([values], hosts, 0.004)[0].keys() == {tuple(range(ranks_n))}
        values[:ranks_n] -= 0.05
        values[-1] -= 0.3
        assert not groups.tested([values], hosts, 0.004)[0]


def test_a_finding_says_the_limits_of_the_test():
    limits = f"{groups._LEAST:.0%} ({groups._LEAST_OF_FEW:.0%} with fewer than {groups._FEW} steps)"
    assert limits.replace("%", " %") in RULES["slow_gpu"].threshold
