"""Waiting and transfer inside the communication class, against a walk over single nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
from effort import over_seeds
from rank_views import view_of
from test_wall_split import HORIZON_NS, trace_of

from nsys_llm.facts.wall.split import map_wall
from nsys_llm.job.collectives.waits import Waits, collective_waits
from nsys_llm.job.communication_split import communication_details

GEMM, REDUCE = 1, 3
KEYS = ("rank0", "rank1")


@dataclass(frozen=True)
class Sequence:
    """What is asked of matched collectives: one of two ranks on clocks that differ."""

    by_length = False  # one clock

    start_ns: tuple
    end_ns: tuple
    ahead_ns: tuple
    owners: tuple = (0, 1)
    confidence: str = "high"
    operation: str = "all_reduce"

    def __len__(self) -> int:
        return int(self.start_ns[0].size)

    @property
    def waits(self) -> Waits:
        return collective_waits(self.start_ns, self.end_ns)


def drawn_run(random, ahead=(0, 11)):
    """Return the traces of two ranks, their collectives, and what was not matched.

    Args:
        random: Draws.
        ahead: By how much each rank's clock is ahead of the common one.
    """
    sequences, kernels = [], ([], [])
    for _ in range(2):
        at, pairs = int(random.integers(0, 8)), []
        while at < 60:
            starts = at + random.integers(0, 9, 2)
            ends = starts.max() + random.integers(-2, 9, 2)
            pairs.append((starts, np.maximum(ends, starts)))
            at = int(ends.max()) + int(random.integers(0, 12))
        starts, ends = (np.array(some, dtype=np.int64).T for some in zip(*pairs, strict=True))
        aheads = tuple(np.full(len(pairs), clock_ahead, dtype=np.int64) for clock_ahead in ahead)
        sequences.append(Sequence(tuple(starts), tuple(ends), aheads))
        for place, some in enumerate(kernels):
            spans = zip(starts[place] + ahead[place], ends[place] + ahead[place], strict=True)
            some += [(int(start), int(end), 0, REDUCE) for start, end in spans]
    for some in kernels:
        for name in (GEMM, GEMM, REDUCE):  # the last one is in no sequence
            start = int(random.integers(0, 70))
            some.append((start, start + int(random.integers(1, 20)), 0, name))
    return [trace_of(some) for some in kernels], sequences, kernels


def found_of(sequences):
    devices = [SimpleNamespace(rank=SimpleNamespace(key=key), device_id=0) for key in KEYS]
    return SimpleNamespace(devices=devices, sequences=sequences)


def walls_of(traces):
    walls = {}
    for key, trace in zip(KEYS, traces, strict=True):
        view = view_of(trace)
        vars(view)["collectives"] = ()  # whoever asked for these needs what hides them
        (walls[key, 0],) = map_wall(view).devices
    return walls


def walked(place, sequences, kernels):
    """Return waiting, transfer and the rest of one rank: the rule, written as a rule."""
    horizon = 2 * HORIZON_NS
    state = np.zeros(horizon, dtype=np.int64)
    for start, end, _, name in kernels[place]:
        if name == REDUCE:
            state[start:end] = np.maximum(state[start:end], 1)
    for code in (2, 3):
        for sequence in sequences:
            last, ahead = np.maximum(*sequence.start_ns), sequence.ahead_ns[place]
            met = last <= np.minimum(*sequence.end_ns)
            spans = (
                (sequence.start_ns[place], last) if code == 2 else (last, sequence.end_ns[place])
            )
            for start, end, is_met in zip(spans[0] + ahead, spans[1] + ahead, met, strict=True):
                if is_met:
                    state[start:end] = code
    for start, end, _, name in kernels[place]:
        if name == GEMM:
            state[start:end] = 0
    return [int((state == code).sum()) for code in (2, 3, 1)]


@over_seeds(range(300))
def test_waiting_and_transfer_are_those_of_the_walk_and_add_up_to_the_class(seed):
    traces, sequences, kernels = drawn_run(np.random.default_rng(seed))
    walls = walls_of(traces)
    details = communication_details(found_of(sequences), walls)
    for place, key in enumerate(KEYS):
        expected = walked(place, sequences, kernels)
        assert sum(expected) == walls[key, 0].communication_ns
        if (key, 0) not in details:
            met = [
                np.maximum(*sequence.start_ns) < sequence.end_ns[place] for sequence in sequences
            ]
            assert not any(
                (some & sequence.waits.met).any()
                for some, sequence in zip(met, sequences, strict=True)
            )
            continue
        assert list(details[key, 0]["communication"].values()) == expected


def test_what_is_matched_with_low_confidence_is_neither():
    traces, sequences, _ = drawn_run(np.random.default_rng(1))
    walls = walls_of(traces)
    unsure = [replace(sequence, confidence="low") for sequence in sequences]
    assert communication_details(found_of(unsure), walls) == {}
    details = communication_details(found_of([sequences[0], unsure[1]]), walls)
    for key in KEYS:
        parts = details[key, 0]["communication"]
        assert parts["not_matched"] > 0
        assert sum(parts.values()) == walls[key, 0].communication_ns


def test_a_device_without_the_times_of_hidden_communication_is_not_divided():
    traces, sequences, _ = drawn_run(np.random.default_rng(1))
    walls = {key: replace(wall, hidden=None) for key, wall in walls_of(traces).items()}
    assert communication_details(found_of(sequences), walls) == {}


def test_communication_behind_computation_is_hidden():
    # Rank 0 comes at 10 and computes until 30; rank 1 comes at 40; both leave at 60.
    kernels = [(10, 60, 0, REDUCE), (0, 30, 0, GEMM)], [(40, 60, 0, REDUCE), (0, 5, 0, GEMM)]
    starts = np.array([[10], [40]], dtype=np.int64)
    ends = np.array([[60], [60]], dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    sequence = Sequence(tuple(starts), tuple(ends), (zero, zero))
    details = communication_details(found_of([sequence]), walls_of(map(trace_of, kernels)))
    assert [details[key, 0]["communication"] for key in KEYS] == [
        {"waiting": 10, "transfer": 20, "not_matched": 0},
        {"waiting": 0, "transfer": 20, "not_matched": 0},
    ]
