"""How sure a matching is: lockstep, cuts, shared streams; what is wrong has low confidence."""

from __future__ import annotations

import numpy as np
import pytest
from clock_world import ClockWorld, Communicators, matched_waits

from nsys_llm.job.collectives.cohesion import (
    Slope,
    is_one_communicator,
    parted,
    slope_between,
    slope_of,
)
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE, Party, shared_with_outsiders

PAIRS = [[rank, rank + 1] for rank in range(0, 8, 2)]
ACROSS = [[rank, rank + 4] for rank in range(4)]
HALVES = [list(range(4)), list(range(4, 8))]


def met(rng, n, groups, *, apart_ns=20_000.0, skew_ns=1_500):
    """Return starts and ends of groups that begin each round together, and run alike."""
    ranks_n = sum(map(len, groups))
    round_ns = np.cumsum(rng.uniform(4e5, 6e5, n))
    start = round_ns + apart_ns * rng.exponential(1.0, (ranks_n, n))
    end = np.empty_like(start)
    for group in groups:
        last = start[group].max(axis=0) + 20_000 * (1 + 0.05 * rng.random(n))
        end[group] = last + rng.integers(0, skew_ns, (len(group), n))
    return np.rint(start).astype(np.int64), np.rint(end).astype(np.int64)


def test_the_slope_by_hand():
    # Comes 0, 10, 20, 30 later and leaves 1, 6, 11, 16 later; the fifth, latest, says nothing.
    slope = slope_between(np.array([0, 10, 20, 30, 900]), np.array([1, 6, 11, 16, -5]))
    # Around the medians 20 and 6: come -20 -10 0 10, left -5 0 5 10.
    assert slope.value == pytest.approx((100 + 0 + 0 + 100) / 600)
    assert not slope.is_one
    assert not slope.is_two


def test_few_collectives_and_those_that_never_differ_tell_nothing_but_equal_ends():
    four = np.array([3, 9, 4, 1])
    assert slope_between(four, four * 0) == Slope(0.0, np.inf)
    assert not Slope(0.0, np.inf).is_one
    assert not Slope(1.0, np.inf).is_two
    six = np.zeros(6, dtype=np.int64)
    assert slope_between(six, six).is_one
    assert not slope_between(six, np.arange(6) * 1_000).is_one


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("n", [12, 40, 300])
def test_one_communicator_is_told_from_two_in_lockstep(seed, n):
    rng = np.random.default_rng(seed)
    every = list(range(int(rng.integers(2, 9))))
    start, end = met(rng, n, [every])
    assert is_one_communicator(start, end)
    half = max(len(every) // 2, 1)
    start, end = met(rng, n, [every[:half], every[half:]])
    assert not is_one_communicator(start, end)
    if len(every) % 2 == 0:
        mask = parted(end, 0)
        assert mask.tolist() == [rank < half for rank in every]
        assert not slope_of(start, end, mask).is_one


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ranks_n", [2, 4])
def test_a_rank_some_of_whose_collectives_are_of_others_makes_it_unsure(seed, ranks_n):
    start, end = met(np.random.default_rng(seed), 120, [list(range(ranks_n))])
    assert is_one_communicator(start, end)
    end[1, ::10] += 100_000
    assert not is_one_communicator(start, end)


@pytest.mark.parametrize("seed", range(20))
def test_a_rank_too_many_and_a_rank_too_few_are_noticed(seed):
    rng = np.random.default_rng(seed)
    start, end = met(rng, 120, [[0, 1, 2, 3], [4, 5, 6, 7]])
    mixed = [0, 1, 2, 3, 5]
    assert not is_one_communicator(start[mixed], end[mixed])
    parties = [
        Party.of(members, 0, [start[rank] for rank in members], [end[rank] for rank in members])
        for members in ([0, 1, 2], [3], [4, 5, 6, 7])
    ]
    # Rank 3 leaves with 0 to 2; the other group is another one, though in lockstep.
    assert shared_with_outsiders(parties, [0, 2]) == [True, False]
    whole = Party.of(range(4), 0, start[:4], end[:4])
    assert shared_with_outsiders([whole, parties[2]], [0, 1]) == [False, False]


def test_a_stream_that_is_shared_with_a_larger_communicator_has_low_confidence():
    # Pairs and all eight use one kernel and stream: what a pair has includes what all have.
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sets = [Communicators(7, PAIRS), Communicators(8, [list(range(8))])]
        world = ClockWorld.run(8, sets, steps=80, compute_ns=2e5, rng=rng)
        streams = {(rank, stream): 7 for rank in range(8) for stream in (7, 8)}
        matched = joined(world).matched(streams=streams)
        assert {sequence.confidence for sequence in matched.sequences if len(sequence)} <= {
            LOW_CONFIDENCE
        }


def joined(world):
    """Return the world with all kernels of a rank on its first stream, in order of time."""
    for rank in range(world.ranks_n):
        keys = [key for key in sorted(world.kept) if key[0] == rank]
        order = np.argsort(np.concatenate([world.start_ns[key] for key in keys]))
        for times in (world.start_ns, world.end_ns, world.kept):
            times[keys[0]] = np.concatenate([times[key] for key in keys])[order]
            for key in keys[1:]:
                del times[key]
    return world


def wrong(world, matched):
    """Return what is told with confidence and wrong, and the share of waiting told right.

    Right is what is within 1 % and what the clocks are said to leave open.
    """
    true, waits = world.waits(), matched_waits(matched)
    doubts = {
        key_of(matched, sequence): len(sequence) * (len(sequence.owners) - 1) * sequence.residual_ns
        for sequence in matched.sequences
        if sequence.confidence != LOW_CONFIDENCE
    }
    right = {
        key
        for key, doubt_ns in doubts.items()
        if key in true and abs(waits[key] - true[key]) <= 0.01 * true[key] + doubt_ns
    }
    return doubts.keys() - right, sum(true[key] for key in right) / max(sum(true.values()), 1)


def key_of(matched, sequence):
    ranks = [matched.devices[owner].rank.number for owner in sequence.owners]
    return ",".join(map(str, ranks)), sequence.matched.lanes[0].stream


@pytest.mark.nightly
@pytest.mark.parametrize("scatter", [0.3])
def test_cut_sets_of_many_seeds_state_no_wrong_sum(scatter):
    wrong_n, shares = 0, []
    for seed in range(40):
        rng = np.random.default_rng(7_000 + seed)
        kinds = [PAIRS, ACROSS, HALVES, [list(range(8))]]
        chosen = [kinds[at] for at in rng.choice(4, 2, replace=False)]
        sets = [Communicators(7 + 6 * at, groups, 1 + at) for at, groups in enumerate(chosen)]
        world = ClockWorld.run(8, sets, steps=60, compute_ns=1.5e5, rng=rng, scatter=scatter)
        at = float(rng.uniform(0.1, 0.9)) * world.length_ns
        world.cut(int(rng.integers(8)), *((0, at) if seed % 2 else (at, 2**62)))
        ahead = rng.integers(-3_000_000, 3_000_001, 2).repeat(4).tolist() if seed % 3 else None
        bad, share = wrong(world, world.matched(offset_ns=ahead))
        wrong_n += bool(bad)
        shares.append(share)
    assert wrong_n == 0
    assert np.mean(shares) > 0.9
