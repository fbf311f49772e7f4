"""Joining short stretches of a lane: no nanosecond is lost, and few segments are left."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from effort import over_seeds

from nsys_llm.facts.timeline.segments import NO_NAME, Pieces, joined

STATES_N = 5


def random_pieces(rng):
    """Return stretches of many lengths, some side by side, some of several states."""
    n = int(rng.integers(0, 60))
    length = np.where(rng.random(n) < 0.2, rng.integers(1, 400, n), rng.integers(1, 12, n))
    hole = np.where(rng.random(n) < 0.3, rng.integers(1, 30, n), 0)
    end_ns = 1_000 + np.cumsum(length + hole)
    start_ns = end_ns - length
    parts = []
    for piece in range(n):
        left = int(length[piece])
        for state in rng.permutation(STATES_N)[: int(rng.integers(1, 4))].tolist():
            part = left if rng.random() < 0.5 else int(rng.integers(0, left + 1))
            parts.append((piece, state, part))
            left -= part
        if left:
            parts.append((piece, int(rng.integers(STATES_N)), left))
    row = np.sort(rng.integers(0, 2, n)) if rng.random() < 0.3 else np.zeros(n, dtype=np.int64)
    return Pieces(
        start_ns.astype(np.int64),
        end_ns.astype(np.int64),
        rng.integers(-1, 4, n).astype(np.int64),
        np.array(parts, dtype=np.int64).reshape(-1, 3),
        row.astype(np.int64),
    )


@over_seeds(range(300))
def test_segments_cover_what_the_pieces_did_and_hold_their_time(seed):
    rng = np.random.default_rng(seed)
    pieces, cell_ns = random_pieces(rng), int(rng.integers(1, 60))
    segments = joined(pieces, STATES_N, 1_000, cell_ns)
    taken = 0
    for at in range(len(segments)):
        members = list(range(taken, taken + int(segments.pieces_n[at])))
        taken += len(members)
        # They touch each other, stand on one row, and are one stretch from first to last.
        assert segments.start_ns[at] == pieces.start_ns[members[0]]
        assert segments.end_ns[at] == pieces.end_ns[members[-1]]
        assert {int(pieces.row[member]) for member in members} == {int(segments.row[at])}
        for left, right in pairwise(members):
            assert pieces.end_ns[left] == pieces.start_ns[right]
        sums, longest = [0] * STATES_N, {}
        for piece, state, time_ns in pieces.parts.tolist():
            if piece in members:
                sums[state] += time_ns
                longest.setdefault(state, []).append((-time_ns, piece))
        assert segments.time_ns[at].tolist() == sums
        assert sum(sums) == segments.end_ns[at] - segments.start_ns[at]
        main = sums.index(max(sums))
        assert segments.state[at] == main
        assert segments.name[at] == pieces.name[min(longest[main])[1]]
        if len(members) > 1:
            assert all(
                pieces.end_ns[member] - pieces.start_ns[member] < cell_ns for member in members
            )
    assert taken == pieces.start_ns.size


@over_seeds(range(20))
def test_of_however_many_pieces_three_segments_a_cell_are_left(seed):
    rng = np.random.default_rng(seed)
    length = rng.choice([1, 2, 3, 40, 500, 3_000], 100_000, p=[0.3, 0.3, 0.2, 0.15, 0.04, 0.01])
    end_ns = np.cumsum(length)
    n, cells_n = length.size, 600
    place = np.arange(n)
    parts = np.column_stack((place, place % STATES_N, length))
    none = np.full(n, NO_NAME)
    pieces = Pieces(end_ns - length, end_ns, none, parts, np.zeros(n, dtype=np.int64))
    cell_ns = int(end_ns[-1]) // cells_n
    segments = joined(pieces, STATES_N, 0, cell_ns)
    assert len(segments) <= 3 * (cells_n + 1)
    assert segments.time_ns.sum() == end_ns[-1]
    assert (segments.start_ns[1:] == segments.end_ns[:-1]).all()
