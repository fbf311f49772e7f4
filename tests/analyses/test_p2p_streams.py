"""Transfers on a stream that all devices have are matched by themselves if they are whole."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from nsys_llm.analyses.collectives.alignment import STEADY_CLOCK_NS, Executions
from nsys_llm.analyses.collectives.matching import Lane
from nsys_llm.analyses.collectives.p2p_matching import match_communication
from nsys_llm.analyses.collectives.p2p_streams import common_streams

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
    assert [[lane.owner for lane in some] for some in common_streams(lanes)] == [[0, 1, 2, 3]]
    rings = [lane for lane in lanes if lane.stream == RING]
    assert common_streams(rings) == []
