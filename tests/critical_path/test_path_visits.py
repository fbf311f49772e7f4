"""Positions of walks against a loop that follows them one by one."""

from __future__ import annotations

import random

import numpy as np

from nsys_llm.critical_path.path.outline import WalkPositions, crossed


def followed(walks):
    """Return left and end of every leg, and the high of every visit."""
    legs, highs = [], []
    for walk in walks:
        at = 1 << 60
        for left, joined, visits in walk:
            at_left = at = min(at, left)
            at = min(at, joined)
            for top, bottom in visits:
                at = min(at, top)
                highs.append(at)
                at = min(at, bottom)
            legs.append((at_left, at))
    return legs, highs


def test_positions_are_those_of_a_loop():
    some = random.Random(1)
    for _ in range(50):
        walks = [
            [
                (
                    some.randrange(1000),
                    some.randrange(1000),
                    [
                        (some.randrange(1000), some.randrange(1000))
                        for _ in range(some.randrange(4))
                    ],
                )
                for _ in range(some.randrange(1, 4))
            ]
            for _ in range(some.randrange(4))
        ]
        legs = [(place, *leg) for place, walk in enumerate(walks) for leg in walk]
        visits = np.array(
            [v for *_, leg_visits in legs for v in leg_visits], dtype=np.int64
        ).reshape(-1, 2)
        positions = WalkPositions.of(
            np.array([leg[0] for leg in legs], dtype=np.int64),
            np.array([len(leg[3]) for leg in legs], dtype=np.int64),
            np.array([leg[1] for leg in legs], dtype=np.int64),
            np.array([leg[2] for leg in legs], dtype=np.int64),
            visits[:, 0],
            visits[:, 1],
        )
        expected, highs = followed(walks)
        assert [*zip(positions.left_ns, positions.end_ns, strict=True)] == expected
        assert positions.high_ns.tolist() == highs


def test_inferred_edges_are_counted_within_each_walk():
    walk = np.array([0, 0, 0, 2, 2, 5])
    assert crossed(np.array([1, 0, 1, 0, 1, 1]), walk).tolist() == [1, 1, 2, 0, 1, 1]
    assert crossed(walk[:0], walk[:0]).tolist() == []
