"""Who stands out of equals: false alarms and power by simulation, and the test by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from effort import nightly_but

from nsys_llm.job.ranks.chance import (
    CHANCE,
    DRIFT,
    FEW_STEPS,
    SMALL,
    block_lengths,
    standings,
)

NOISE = 0.01


def named(values, **options):
    return [rank for rank, item in enumerate(standings(values, **options)) if not item.reason]


def normal(random, shape):
    return NOISE * random.standard_normal(shape)


def heavy(random, shape):
    return NOISE * random.standard_t(3, shape)


def common_drift(random, shape):
    steps = np.cumsum(0.02 * random.standard_normal(shape[1]))
    return normal(random, shape) + steps


def drifting(rho):
    def draw(random, shape):
        noise = random.standard_normal(shape)
        values = noise.copy()
        for step in range(1, shape[1]):
            values[:, step] = rho * values[:, step - 1] + math.sqrt(1 - rho**2) * noise[:, step]
        return NOISE * values

    return draw


KINDS = {
    "normal": (normal, 0.4),
    "common drift": (common_drift, 0.5),
    "heavy": (heavy, 1.2),
    "drift 0.6": (drifting(0.6), 1.2),
    "drift 0.9": (drifting(0.9), 2.0),
}
RANKS = (2, 3, 4, 8, 64)
STEPS = (3, 5, 12, 24, 60, 200)


def large_enough(values, rank):
    """Return whether a rank differs by the least size; see the judge."""
    others = np.median(np.delete(values, rank, axis=0), axis=0)
    return (values[rank] - others).mean() >= (0.05 if values.shape[1] < 20 else 0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks_n", "steps_n"),
    nightly_but(
        [(kind, ranks_n, steps_n) for kind, ranks_n, steps_n in product(KINDS, RANKS, STEPS)],
        [("heavy", 8, 60), ("drift 0.6", 3, 60), ("common drift", 2, 12)],
    ),
)
def test_of_equals_hardly_any_is_named(kind, ranks_n, steps_n):
    random = np.random.default_rng(len(kind) + 100 * ranks_n + steps_n)
    draw, most_pct = KINDS[kind]
    jobs_n = 200 if ranks_n < 64 else 60
    alarms = 0
    for _ in range(jobs_n):
        values = draw(random, (ranks_n, steps_n))
        alarms += any(large_enough(values, rank) for rank in named(values))
    expected = jobs_n * most_pct / 100
    assert alarms <= expected + 3 * math.sqrt(expected) + 1


@pytest.mark.parametrize(
    ("ranks_n", "steps_n", "slower", "least_pct"),
    nightly_but(
        [
            (ranks_n, steps_n, slower, least)
            for ranks_n, steps_n in product(RANKS, (24, 60, 200))
            for slower, least in ((0.02, 80), (0.05, 95))
        ]
        + [(4, 5, 0.20, 93), (2, 3, 0.20, 60)],
        [(4, 24, 0.05, 95), (2, 60, 0.02, 80), (4, 5, 0.20, 93)],
    ),
)
def test_a_slower_rank_is_named(ranks_n, steps_n, slower, least_pct):
    random = np.random.default_rng(ranks_n + steps_n)
    hits = 0
    for job in range(50):
        values = normal(random, (ranks_n, steps_n))
        values[job % ranks_n] += slower
        hits += named(values) == [job % ranks_n]
    assert hits >= least_pct / 2 - 3 * math.sqrt(50 * 0.2 * 0.8)


def test_two_slow_ranks_of_four_are_both_named():
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(30):
        values = normal(random, (4, 24))
        values[[1, 3]] += 0.05
        hits += named(values) == [1, 3]
    assert hits >= 26


def test_a_burst_on_one_rank_is_no_drift_of_its_own():
    values = normal(np.random.default_rng(2), (8, 24))
    values[5, 8:16] += 0.10
    assert named(values) == [5]


def test_of_two_the_later_is_named_and_the_early_one_never():
    values = normal(np.random.default_rng(3), (2, 60))
    values[0] -= 0.1
    assert named(values) == [1]


def test_where_most_are_fast_the_others_are_the_slow_ones():
    values = normal(np.random.default_rng(4), (5, 40))
    values[:3] -= 0.1
    assert named(values) == [3, 4]


def test_one_fast_rank_is_not_named_nor_are_the_others():
    values = normal(np.random.default_rng(5), (4, 40))
    values[2] -= 0.1
    assert [item.reason for item in standings(values)] == [CHANCE, CHANCE, SMALL, CHANCE]


def test_equal_values_name_nobody_and_constant_ones_the_later():
    assert not named(np.zeros((4, 20)))
    assert not named(np.zeros((2, 5)))
    values = np.zeros((2, 5))
    values[1] = 0.1
    assert named(values) == [1]


@pytest.mark.parametrize(("steps_n", "reason"), [(1, FEW_STEPS), (2, FEW_STEPS)])
def test_two_steps_say_nothing(steps_n, reason):
    values = np.zeros((4, steps_n))
    values[0] = 1.0
    assert standings(values)[0].reason == reason


def test_a_drift_as_long_as_the_capture_says_nothing():
    """Both ranks wander: their blocks would be longer than a third of the capture."""
    values = np.stack((np.linspace(0, 1, 12), np.linspace(1, 0, 12)))
    assert {item.reason for item in standings(values)} == {DRIFT}


def test_a_clear_lateness_is_named_though_ranks_drift():
    """13 steps, each nine tenths like the one before: with whole blocks 1 of these 20 was named."""
    random, hits = np.random.default_rng(8), 0
    for _ in range(20):
        values = drifting(0.9)(random, (8, 13))
        values[2] += 0.3
        hits += named(values) == [2]
    assert hits >= 9


def test_the_blocks_of_a_rank_are_told_by_the_others():
    random = np.random.default_rng(6)
    beyond = normal(random, (6, 200))
    beyond[0] = drifting(0.9)(random, (1, 200))[0]
    lengths = block_lengths(beyond)
    assert lengths[0] == 1
    assert (lengths[1:] > 1).all()


@pytest.mark.slow
def test_chernoffs_bound_is_above_the_count_of_all_orders():
    """Two ranks: each block could have been turned round; 14 blocks have 16,384 orders."""
    random = np.random.default_rng(7)
    for _ in range(20):
        apart = random.exponential(size=14) * np.where(random.random(14) < 0.1, -1, 1)
        values = np.stack((-apart / 2, apart / 2))
        signs = np.array(list(product((-1, 1), repeat=14)))
        exact = 2 * float(((signs * np.abs(apart)).sum(axis=1) >= apart.sum() - 1e-9).mean())
        item = standings(values)[1]
        if item.blocks_n == 14 and apart.sum() > 0:
            assert math.exp(item.log_chance) >= min(exact, 1.0) - 1e-9
