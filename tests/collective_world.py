"""Ranks that meet in collectives, with all that a capture does to them; the truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nsys_llm.job.collectives.alignment import Executions
from nsys_llm.job.collectives.matching import Lane, Matched

#: Streams of tensor-parallel and of data-parallel collectives.
TENSOR, DATA = 7, 9

#: What one rank ran: stream, number of the collective, start, end.
Runs = list[tuple[int, int, int, int]]


def world(
    ranks_n: int,
    tensor_n: int,
    *,
    steps: int = 12,
    layers: int = 8,
    slow: Mapping[int, float] | None = None,
    seed: int = 0,
) -> list[Runs]:
    """Return the collectives of ranks in tensor-parallel groups of consecutive ranks.

    After each step the ranks at the same place of all groups meet too (data parallel). Every
    layer computes for about 40 us, `slow` times as long on slow ranks, then reduces for 15 us.
    """
    rng = np.random.default_rng(seed)
    pace = np.array([(slow or {}).get(rank, 1.0) for rank in range(ranks_n)])
    groups = np.arange(ranks_n) // tensor_n
    places = np.arange(ranks_n) % tensor_n
    free_ns = np.zeros(ranks_n)
    runs: list[Runs] = [[] for _ in range(ranks_n)]

    def meet(stream: int, number: int, members: np.ndarray, transfer_ns: float) -> None:
        nonlocal free_ns
        last = np.array([free_ns[members == group].max() for group in members])
        jitter = 1 + 0.02 * rng.standard_normal(int(members.max()) + 1)[members]
        end_ns = last + transfer_ns * jitter + rng.integers(0, 2000, ranks_n)
        for rank in range(ranks_n):
            runs[rank].append((stream, number, int(free_ns[rank]), int(end_ns[rank])))
        free_ns = end_ns + 1000

    for step in range(steps):
        for layer in range(layers):
            free_ns = free_ns + 40_000 * pace * (1 + 0.05 * rng.standard_normal(ranks_n))
            meet(TENSOR, step * layers + layer, groups, 15_000)
        if tensor_n < ranks_n:
            free_ns = free_ns + rng.integers(0, 60_000, ranks_n)
            meet(DATA, step, places, 60_000)
        free_ns = free_ns + 200_000 * (1 + 0.2 * rng.random())
    return runs


def lanes_of(
    runs: Sequence[Runs],
    *,
    ahead_ns: Sequence[int] | None = None,
    one_clock: bool = False,
    without: Iterable[tuple[int, int, int]] = (),
) -> tuple[list[Lane], dict[int, list[int]]]:
    """Return lanes as the reports show them, and the true numbers of each lane's collectives.

    Args:
        runs: See `world`.
        ahead_ns: How far each rank's clock is ahead.
        one_clock: Whether all ranks are in one report.
        without: Rank, stream and number of collectives that a report lacks.
    """
    missing = set(without)
    lanes, truth = [], {}
    for rank, rank_runs in enumerate(runs):
        kept = [
            collective
            for collective in rank_runs
            if (rank, collective[0], collective[1]) not in missing
        ]
        for stream in sorted({collective[0] for collective in kept}):
            of_stream = [collective for collective in kept if collective[0] == stream]
            times = np.array([collective[2:] for collective in of_stream], dtype=np.int64)
            times += 0 if ahead_ns is None else ahead_ns[rank]
            track = Executions(times[:, 0], times[:, 1])
            lane = Lane(rank, 0 if one_clock else rank, "k", stream, track)
            lanes.append(lane)
            truth[id(lane)] = [collective[1] for collective in of_stream]
    return lanes, truth


def groups_of(matched: Iterable[Matched], stream: int) -> list[list[int]]:
    sequences = [sequence for sequence in matched if sequence.lanes[0].stream == stream]
    return [[lane.owner for lane in sequence.lanes] for sequence in sequences]


def numbers_of(sequence: Matched, truth: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return for each lane which collectives, by their true numbers, were matched."""
    pairs = zip(sequence.lanes, sequence.rows, strict=True)
    return [[truth[id(lane)][row] for row in rows] for lane, rows in pairs]
