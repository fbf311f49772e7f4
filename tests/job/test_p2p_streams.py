"""Transfers on a stream that all devices have are matched by themselves if they are whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.alignment import STEADY_CLOCK_NS, Executions
from nsys_llm.job.collectives.matching import Lane, joined_lane
from nsys_llm.job.collectives.p2p_matching import match_communication
from nsys_llm.job.collectives.p2p_streams import common_streams, doubted

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"
RING, FORTH, BACK = 7, 21, 22
#: Two stages of two ranks each run one program each.
PROGRAMS = {0: 0, 1: 0, 2: 1, 3: 1}


def lanes_of(times: Mapping[tuple[int, int], list[tuple[int, int]]]) -> list[Lane]:
    """Return lanes of (owner, stream) out of starts and ends."""
    return [
        Lane(owner, 0, KERNEL, stream, Executions.ordered(*np.array(some, dtype=np.int64).T))
        for (owner, stream), some in sorted(times.items())
    ]


def job(random: np.random.Generator, n: int) -> list[Lane]:
    """Two stages of two ranks: rings within each, and transfers to the other one."""
    times: dict[tuple[int, int], list[tuple[int, int]]] = {}
    at = 0
    for _ in range(n):
        for pair in ((0, 1), (2, 3)):
            end = at + int(random.integers(60_000, 90_000))
            for owner in pair:
                start = end - int(random.integers(5_000, 9_000))
                times.setdefault((owner, RING), []).append((start, end))
        for owner in (0, 1):
            start = at + 100_000 + int(random.integers(0, 5_000))
            # Links are not in step, by microseconds.
            end = start + int(random.integers(20_000, 40_000))
            times.setdefault((owner, FORTH), []).append((start, end))
            times.setdefault((owner + 2, BACK), []).append((start + 1_000, end))
        at += 200_000 + int(random.integers(0, 20_000))
    return lanes_of(times)


@pytest.mark.parametrize("seed", range(20))
def test_rings_of_a_stage_and_transfers_between_stages_are_all_found(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(40, 200))
    matched = match_communication(job(random, n), STEADY_CLOCK_NS, 1, PROGRAMS)
    pairs = {tuple(lane.owner for lane in item.lanes): item.rows[0].size for item in matched}
    assert pairs == {(0, 1): n, (2, 3): n, (0, 2): n, (1, 3): n}


def test_streams_count_that_all_have_beside_others():
    lanes = job(np.random.default_rng(0), 10)
    streams, have_others = common_streams(lanes)
    assert [[lane.owner for lane in some] for some in streams] == [[0, 1, 2, 3]]
    assert have_others
    rings = [lane for lane in lanes if lane.stream == RING]
    assert common_streams(rings) == ([], False)


def moved(lanes, streams):
    """Return lanes on other streams, each owner's on one stream as one lane."""
    ordered = sorted(lanes, key=lambda lane: lane.owner)
    by_stream = {}
    for lane in (replace(lane, stream=streams.get(lane.stream, lane.stream)) for lane in ordered):
        by_stream.setdefault((lane.owner, lane.stream), []).append(lane)
    return [joined_lane(some) for some in by_stream.values()]


@pytest.mark.parametrize("seed", range(5))
def test_transfers_between_stages_that_share_a_stream_are_told_from_rings(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(40, 200))
    lanes = moved(job(random, n), {BACK: FORTH})
    matched = match_communication(lanes, STEADY_CLOCK_NS, 1, PROGRAMS)
    pairs = {tuple(lane.owner for lane in item.lanes): item.rows[0].size for item in matched}
    assert pairs == {(0, 1): n, (2, 3): n, (0, 2): n, (1, 3): n}
    assert not any(item.is_doubted for item in matched)


def alike(n):
    """Return lanes of four ranks whose ring and pipeline end at the same instants, on one stream.

    By time alone nobody can tell them apart; ids of communicators do.
    """
    at = 200_000 * np.arange(2 * n)
    ring = {0: 1, 1: 1, 2: 2, 3: 2}
    comms = {owner: np.resize([ring[owner], 3 + owner % 2], 2 * n) for owner in ring}
    return [
        Lane(owner, 0, KERNEL, RING, Executions(at + owner, at + 30_000), comm)
        for owner, comm in comms.items()
    ]


@pytest.mark.parametrize("known", [True, False])
def test_ids_of_communicators_come_before_time(known):
    lanes = alike(40)
    if not known:
        # One call without an id: none counts.
        lanes[0].comm[7] = NULL_INT
    matched = match_communication(lanes, STEADY_CLOCK_NS, 1, PROGRAMS)
    pairs = {tuple(lane.owner for lane in item.lanes): item.rows[0].size for item in matched}
    exact = {(0, 1): 40, (2, 3): 40, (0, 2): 40, (1, 3): 40}
    assert (pairs == exact) == known


@pytest.mark.parametrize(
    ("crossed_n", "cut_n", "wanted"),
    [(0, 0, set()), (3, 0, {0, 1, 2, 3}), (3, 3, set())],
    ids=["equal", "crossed", "cut"],
)
def test_pairs_of_a_kind_with_unequal_counts_are_doubted(crossed_n, cut_n, wanted):
    lanes = job(np.random.default_rng(0), 40)
    matched = match_communication(lanes, STEADY_CLOCK_NS, 1, PROGRAMS)
    first = next(item for item in matched if [lane.owner for lane in item.lanes] == [0, 2])
    fewer = replace(first, rows=tuple(rows[crossed_n:] for rows in first.rows))
    shown = [fewer if item is first else item for item in matched]
    if cut_n:
        lanes = [
            lane.only(np.arange(len(lane.track)) >= cut_n * (lane.owner == 0)) for lane in lanes
        ]
    told = doubted(shown, PROGRAMS, lanes)
    assert {lane.owner for item in told if item.is_doubted for lane in item.lanes} == wanted


def test_pairs_that_some_ranks_of_the_kind_lack_are_doubted():
    """Messages between stages alone, of which one pair is not matched: the others may have them."""
    lanes = [lane for lane in job(np.random.default_rng(0), 40) if lane.stream != RING]
    matched = match_communication(lanes, STEADY_CLOCK_NS, 1, PROGRAMS)
    pairs = [item for item in matched if item.rows[0].size]
    assert [item.is_doubted for item in doubted(pairs, PROGRAMS, lanes)] == [False, False]
    assert [item.is_doubted for item in doubted(pairs[:1], PROGRAMS, lanes)] == [True]
