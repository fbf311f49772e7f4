"""Which send belongs to which receive in a pipeline, one profile a rank. The truth is planted."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from collective_world import lanes_of as collective_lanes
from collective_world import world as collective_world
from effort import seeds
from pipeline_world import SEND_RECV, World, lanes_of, run, run_blocking, waiting_ns

from nsys_llm.job.collectives.alignment import STEADY_CLOCK_NS, WALL_CLOCK_NS, Executions
from nsys_llm.job.collectives.clocks import Meeting, fit_clocks
from nsys_llm.job.collectives.matching import Lane, match_lanes
from nsys_llm.job.collectives.p2p_matching import match_communication
from nsys_llm.job.collectives.waits import collective_waits

SCHEDULES = {"1F1B": (run, 1), "blocking": (run_blocking, 1), "interleaved": (run, 2)}


def drawn(seed, chunks_n, *, least=3):
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(least, 9))
    return World(
        stages,
        stages * int(rng.integers(1, 4)),
        steps_n=int(rng.integers(2, 5)),
        chunks_n=chunks_n,
        jitter=float(rng.choice([0.01, 0.03, 0.1])),
        forward_us=float(rng.choice([400, 1000, 5000])),
        seed=seed,
    )


def judged(sequences, truth, clocks_n):
    """Return matched right, matched wrong, and the waiting of what is matched."""
    ends = [[lane.track.end_ns[row] for lane, row in pairs(sequence)] for sequence in sequences]
    meetings = [
        Meeting(tuple(lane.clock for lane in sequence.lanes), tuple(lane_ends))
        for sequence, lane_ends in zip(sequences, ends, strict=True)
    ]
    fits = fit_clocks(meetings, clocks_n)
    right = wrong = wait_ns = 0
    for sequence in sequences:
        starts, stops, keys = [], [], []
        for lane, row in pairs(sequence):
            start, end = lane.track.start_ns[row], lane.track.end_ns[row]
            spans = zip(start.tolist(), end.tolist(), strict=True)
            keys.append([truth[(lane.owner, *span)] for span in spans])
            starts.append(start - fits[lane.clock].offset_ns)
            stops.append(end - fits[lane.clock].offset_ns)
        same = sum(len(set(some)) == 1 for some in zip(*keys, strict=True))
        right, wrong = right + same, wrong + len(keys[0]) - same
        if keys[0]:
            waits = collective_waits(starts, stops)
            wait_ns += int(waits.wait_ns[waits.met].sum())
    return right, wrong, wait_ns


def pairs(sequence):
    return list(zip(sequence.lanes, sequence.rows, strict=True))


def transfers_n(ran):
    return sum(len(stage.transfers) for stage in ran) // 2


@pytest.mark.parametrize("one_clock", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", seeds(20, 6))
def test_sends_find_their_receives_on_clocks_of_one_host(seed, schedule, one_clock):
    simulate, chunks_n = SCHEDULES[schedule]
    world = drawn(seed, chunks_n)
    ran = simulate(world)
    ahead = np.random.default_rng(seed).integers(-9_000, 9_000, world.stages_n).tolist()
    lanes, truth = lanes_of(ran, ahead_ns=None if one_clock else ahead, one_clock=one_clock)
    sequences = match_communication(lanes, STEADY_CLOCK_NS, world.stages_n)
    right, wrong, wait_ns = judged(sequences, truth, world.stages_n)
    assert wrong == 0
    assert right >= 0.99 * transfers_n(ran)
    assert wait_ns == pytest.approx(waiting_ns(ran), rel=0.01)
    neighbors = {tuple(lane.owner for lane in sequence.lanes) for sequence in sequences}
    ring = {(0, world.stages_n - 1)} if chunks_n > 1 else set()
    assert neighbors == {(at, at + 1) for at in range(world.stages_n - 1)} | ring


@pytest.mark.nightly("1F1B", "interleaved")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_wall_clocks_cost_pairs_but_make_none_that_are_wrong(schedule):
    simulate, chunks_n = SCHEDULES[schedule]
    right = wrong = every = 0
    for seed in range(12):
        world = drawn(seed, chunks_n)
        ran = simulate(world)
        ahead = np.random.default_rng(seed).integers(-5_000_000, 5_000_000, world.stages_n)
        lanes, truth = lanes_of(ran, ahead_ns=ahead.tolist())
        sequences = match_communication(lanes, WALL_CLOCK_NS, world.stages_n)
        judgment = judged(sequences, truth, world.stages_n)
        right, wrong, every = right + judgment[0], wrong + judgment[1], every + transfers_n(ran)
    assert wrong <= 0.002 * right
    assert right >= 0.75 * every


def test_two_stages_are_matched_as_one_sequence():
    for seed in range(5):
        world = replace(drawn(seed, 1), stages_n=2)
        ran = run_blocking(world)
        lanes, truth = lanes_of(ran, ahead_ns=[0, 7_000])
        sequences = match_communication(lanes, STEADY_CLOCK_NS, 2)
        right, wrong, wait_ns = judged(sequences, truth, 2)
        assert (right, wrong) == (transfers_n(ran), 0)
        assert wait_ns == pytest.approx(waiting_ns(ran), rel=0.01)


@pytest.mark.parametrize("seed", range(6))
def test_cut_captures_shift_no_transfer_to_another_peer(seed):
    world = drawn(seed, 1)
    ran = run_blocking(world)
    rng = np.random.default_rng(seed)
    for stage in ran:
        low, high = rng.integers(0, len(stage.transfers) // 4 + 1, 2)
        stage.transfers[:] = stage.transfers[low : len(stage.transfers) - high]
    keys = [{transfer[0] for transfer in stage.transfers} for stage in ran]
    whole = sum(len(stage_keys & other) for stage_keys, other in pairwise(keys))
    lanes, truth = lanes_of(ran, ahead_ns=rng.integers(-9_000, 9_000, world.stages_n).tolist())
    right, wrong, _ = judged(
        match_communication(lanes, STEADY_CLOCK_NS, world.stages_n), truth, world.stages_n
    )
    assert wrong == 0
    assert right >= 0.95 * whole


@pytest.mark.parametrize("ranks_n", [3, 4, 8])
def test_an_all_to_all_of_sends_and_receives_stays_a_collective(ranks_n):
    lanes, _ = collective_lanes(collective_world(ranks_n, ranks_n, steps=8), one_clock=True)
    sends = [replace(lane, kernel=SEND_RECV) for lane in lanes]
    assert described(match_communication(sends, WALL_CLOCK_NS, 1)) == described(
        match_lanes(sends, WALL_CLOCK_NS)
    )
    assert [len(match.lanes) for match in match_communication(sends, WALL_CLOCK_NS, 1)] == [ranks_n]


def test_collectives_beside_a_pipeline_are_matched_as_without_it():
    ran = run(World(4, 8))
    transfers, truth = lanes_of(ran, one_clock=True)
    collectives, _ = collective_lanes(collective_world(4, 2), one_clock=True)
    sequences = match_communication([*collectives, *transfers], WALL_CLOCK_NS, 1)
    others = [sequence for sequence in sequences if sequence.lanes[0].kernel != SEND_RECV]
    assert described(others) == described(match_lanes(collectives, WALL_CLOCK_NS))
    matched_transfers = [
        sequence for sequence in sequences if sequence.lanes[0].kernel == SEND_RECV
    ]
    assert judged(matched_transfers, truth, 1)[:2] == (transfers_n(ran), 0)


def test_collectives_make_wall_clocks_good_enough_for_a_regular_pipeline():
    world = World(6, 12, jitter=0.001, forward_us=200)
    ran = run_blocking(world)
    ahead = [0, 3_000_000, -2_000_000, 900_000, 50_000, -4_000_000]
    lanes, truth = lanes_of(ran, ahead_ns=ahead)
    assert judged(match_communication(lanes, WALL_CLOCK_NS, 6), truth, 6)[1] == 0
    alone_n = judged(match_communication(lanes, WALL_CLOCK_NS, 6), truth, 6)[0]
    collectives, _ = collective_lanes(collective_world(6, 6), ahead_ns=ahead)
    sequences = match_communication([*collectives, *lanes], WALL_CLOCK_NS, 6)
    matched_transfers = [
        sequence for sequence in sequences if sequence.lanes[0].kernel == SEND_RECV
    ]
    right, wrong, _ = judged(matched_transfers, truth, 6)
    assert wrong == 0
    assert right > alone_n


def test_pairs_in_lockstep_are_undecided_and_have_no_sum():
    # Ranks 0 and 1 send to 2 and 3 at the same instants, and those to 4 and 5 at others.
    rng = np.random.default_rng(0)
    first = np.cumsum(rng.integers(400_000, 900_000, 200))
    second = first + 200_000
    lanes = []
    for owner in range(6):
        ends = np.sort(np.concatenate([first, second])) if owner in (2, 3) else first
        ends = second if owner > 3 else ends
        ends = ends + rng.integers(0, 2_000, ends.size)
        lanes.append(Lane(owner, 0, SEND_RECV, 7, Executions(ends - 90_000, ends)))
    sequences = match_communication(lanes, WALL_CLOCK_NS, 1)
    assert [len(sequence.rows[0]) for sequence in sequences] == [0]
    assert [lane.owner for lane in sequences[0].lanes] == list(range(6))


def test_the_order_of_lanes_changes_nothing():
    lanes, _ = lanes_of(run(World(4, 8)), ahead_ns=[0, 5_000, -3_000, 100])
    assert described(match_communication(lanes, STEADY_CLOCK_NS, 4)) == described(
        match_communication(lanes[::-1], STEADY_CLOCK_NS, 4)
    )


def described(sequences):
    return sorted(
        (
            [lane.owner for lane in sequence.lanes],
            [row.tolist() for row in sequence.rows],
            sequence.cut_n,
        )
        for sequence in sequences
    )
