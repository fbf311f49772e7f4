"""Which ranks meet in which collectives: groups, cuts, drops, clocks. The truth is planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from collective_world import DATA, TENSOR, groups_of, lanes_of, numbers_of, world

from nsys_llm.job.collectives.alignment import (
    SAME_CLOCK_NS,
    STEADY_CLOCK_NS,
    WALL_CLOCK_NS,
    Executions,
    align,
)
from nsys_llm.job.collectives.matching import Lane, match_lanes


def track(*spans):
    return Executions.ordered(
        *(np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    )


def lane(owner, *spans, clock=None, stream=7):
    return Lane(owner, owner if clock is None else clock, "k", stream, track(*spans))


def matched(*lanes):
    return [
        (
            [member.owner for member in sequence.lanes],
            [row.tolist() for row in sequence.rows],
            sequence.cut_n,
        )
        for sequence in match_lanes(lanes, WALL_CLOCK_NS)
    ]


#: Three collectives at uneven distances, so that only one shift fits.
FIRST = [(0, 4), (10, 14), (27, 31)]


def test_ranks_that_leave_together_are_matched_by_ordinal():
    # Rank 1 comes later and leaves with rank 0.
    sequences = matched(lane(0, *FIRST), lane(1, (1, 4), (12, 14), (28, 31)))
    assert sequences == [([0, 1], [[0, 1, 2]] * 2, (0, 0))]


def test_a_rank_that_nobody_meets_is_left_out():
    alone = lane(2, (100, 104), (230, 231), (370, 377), clock=0)
    sequences = matched(lane(0, *FIRST, clock=0), lane(1, *FIRST, clock=0), alone)
    assert sequences == [([0, 1], [[0, 1, 2]] * 2, (0, 0))]
    assert matched(alone) == []
    assert matched() == []


def test_other_kernels_are_other_sequences():
    lanes = [lane(owner, *FIRST, clock=0) for owner in (0, 1)]
    other = [replace(member, kernel="j") for member in lanes]
    assert [sequence[0] for sequence in matched(*lanes, *other)] == [[0, 1], [0, 1]]


def test_what_no_rank_can_pair_was_not_cut_off():
    spans = [(27, 31), (40, 44), (61, 65), (72, 76), (90, 93), (104, 107), (120, 122), (141, 144)]
    spans += [(170, 172), (193, 195)]
    # Each begins with one of its own; rank 1 lacks the sixth, and has one more at the end.
    lacks = [*spans[:5], *spans[6:]]
    sequences = matched(
        lane(0, (0, 4), *spans, clock=0), lane(1, (10, 12), *lacks, (220, 222), clock=0)
    )
    rows = [[1, 2, 3, 4, 5, 7, 8, 9, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9]]
    assert sequences == [([0, 1], rows, (0, 1))]


def test_ordinals_pair_what_does_not_overlap_if_all_else_does():
    spans = [(10 * at, 10 * at + 4 + at % 3) for at in range(12)]
    late = [*spans[:6], (66, 68), *spans[7:]]
    sequences = matched(lane(0, *spans, clock=0), lane(1, *late, clock=0))
    # The seventh is [60, 64) on rank 0: it is there on both, and says nothing of who waits.
    assert sequences == [([0, 1], [list(range(12))] * 2, (0, 0))]


def test_collectives_of_no_length_and_of_one_instant_are_matched():
    spans = [(3, 3), (3, 3), (9, 9)]
    assert matched(*(lane(owner, *spans, clock=0) for owner in (0, 1))) == [
        ([0, 1], [[0, 1, 2]] * 2, (0, 0))
    ]


def test_a_stream_that_changes_midway_splits_no_communicator():
    # Rank 0 uses stream 7 and then 8, rank 1 the other way round at another place.
    spans = [(0, 4), (10, 14), (27, 31), (40, 44), (61, 65), (72, 76)]
    lanes = [
        lane(0, *spans[:3], clock=0),
        lane(0, *spans[3:], clock=0, stream=8),
        lane(1, *spans[:2], clock=0),
        lane(1, *spans[2:], clock=0, stream=8),
    ]
    assert matched(*lanes) == [([0, 1], [list(range(6))] * 2, (0, 0))]


@pytest.mark.nightly("64-8-False")
@pytest.mark.parametrize("one_clock", [True, False])
@pytest.mark.parametrize(("ranks_n", "tensor_n"), [(2, 2), (4, 2), (8, 2), (8, 4), (8, 8), (64, 8)])
def test_tensor_parallel_groups_are_told_apart_though_they_run_alike(ranks_n, tensor_n, one_clock):
    runs = world(ranks_n, tensor_n)
    ahead_ns = [0 if one_clock else (rank * 7_919) % 5_000 for rank in range(ranks_n)]
    lanes, truth = lanes_of(runs, ahead_ns=ahead_ns, one_clock=one_clock)
    sequences = match_lanes(lanes, WALL_CLOCK_NS)
    expected = np.arange(ranks_n).reshape(-1, tensor_n).tolist()
    assert groups_of(sequences, TENSOR) == expected
    for sequence in sequences:
        numbers = numbers_of(sequence, truth)
        assert all(row == numbers[0] for row in numbers)
        assert len(numbers[0]) == (96 if sequence.lanes[0].stream == TENSOR else 12)


def test_a_slow_rank_tells_its_data_parallel_group_apart_too():
    # Rank 1 holds up its own group of tensor-parallel ranks, 0 and 1, and through them all others.
    lanes, _ = lanes_of(world(8, 2, steps=40, layers=2, slow={1: 1.5}), one_clock=True)
    sequences = match_lanes(lanes, WALL_CLOCK_NS)
    assert groups_of(sequences, TENSOR) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups_of(sequences, DATA) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_groups_of_one_kernel_and_stream_are_told_apart_when_each_holds_its_own_up():
    runs = world(4, 2, slow={0: 1.3, 3: 1.6})
    lanes, truth = lanes_of(
        runs, one_clock=True, without=[(r, DATA, n) for r in range(4) for n in range(12)]
    )
    sequences = match_lanes(lanes, WALL_CLOCK_NS)
    assert groups_of(sequences, TENSOR) == [[0, 1], [2, 3]]
    assert numbers_of(sequences[0], truth) == [list(range(96))] * 2


@pytest.mark.parametrize("one_clock", [True, False])
def test_cuts_at_both_ends_and_gaps_in_the_middle_are_survived_by_eight_ranks(one_clock):
    rng = np.random.default_rng(5)
    runs = world(8, 8)
    gone = {
        (rank, TENSOR, number)
        for rank in range(8)
        for number in [
            *range(rng.integers(0, 12)),
            *range(96 - rng.integers(0, 12), 96),
            *rng.integers(0, 96, 2).tolist(),
        ]
    }
    ahead_ns = [0 if one_clock else int(rng.integers(-9_000, 9_000)) for _ in range(8)]
    lanes, truth = lanes_of(runs, ahead_ns=ahead_ns, one_clock=one_clock, without=gone)
    (sequence,) = match_lanes(lanes, STEADY_CLOCK_NS)
    everywhere = [
        number for number in range(96) if not any((r, TENSOR, number) in gone for r in range(8))
    ]
    assert numbers_of(sequence, truth) == [everywhere] * 8


@pytest.mark.parametrize("seconds", [0, 3, -7])
def test_a_clock_that_is_wrong_by_seconds_changes_no_pair(seconds):
    ahead_ns = [0, seconds * 1_000_000_000, 250, -900]
    lanes, truth = lanes_of(world(4, 4), ahead_ns=ahead_ns)
    for trust_ns in (STEADY_CLOCK_NS, WALL_CLOCK_NS):
        (sequence,) = match_lanes(lanes, trust_ns)
        assert numbers_of(sequence, truth) == [list(range(96))] * 4


def test_the_order_of_lanes_changes_nothing():
    lanes, _ = lanes_of(world(8, 4), ahead_ns=list(range(0, 8000, 1000)))
    expected = matched(*lanes)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(lanes))
        assert matched(*(lanes[place] for place in order)) == expected


@pytest.mark.nightly
def test_a_thousand_ranks_in_groups_of_eight_are_matched():
    lanes, truth = lanes_of(world(1024, 8, steps=4), one_clock=True)
    tensor_lanes = [member for member in lanes if member.stream == TENSOR]
    sequences = match_lanes(tensor_lanes, WALL_CLOCK_NS)
    assert groups_of(sequences, TENSOR) == np.arange(1024).reshape(-1, 8).tolist()
    assert all(numbers_of(sequence, truth) == [list(range(32))] * 8 for sequence in sequences)


def test_a_shift_of_the_clock_is_found_exactly_where_ends_agree():
    ours = track((0, 4_000), (10_000, 14_000), (27_000, 31_000), (40_000, 44_000))
    theirs = Executions(ours.start_ns + 1_234, ours.end_ns + 1_234)
    alignment = align(ours, theirs, WALL_CLOCK_NS)
    assert (alignment.line.offset_ns, alignment.spread_ns, alignment.met_n) == (1_234, 0, 4)
    assert alignment.row.tolist() == [0, 1, 2, 3]
    # On one clock that would be 1,234 ns of difference, which is none of the clock.
    assert align(ours, theirs, SAME_CLOCK_NS).line.offset_ns == 0


def test_tracks_of_other_work_do_not_line_up():
    ours = track(*((at, at + 20) for at in (0, 100, 230, 350, 480, 590, 720, 830)))
    theirs = track(*((at, at + 20) for at in (0, 170, 260, 430, 500, 680, 700, 870)))
    assert align(ours, theirs, WALL_CLOCK_NS) is None
    # Nor do long ones that always overlap and end anyhow: up to 40 of 100 ns apart.
    ends = 100 * np.arange(1, 21)
    apart = np.array([-40, 35, 10, -25, 30] * 4)
    steady = Executions(ends - 90, ends)
    assert align(steady, Executions(ends + apart - 90, ends + apart), WALL_CLOCK_NS) is None
