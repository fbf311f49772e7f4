"""Peers beside each other: medians of the others, least sizes, machines."""

from __future__ import annotations

import numpy as np
import pytest
from effort import over_seeds

from nsys_llm.analyses.ranks.chance import SMALL
from nsys_llm.analyses.ranks.groups import others_beyond, sides_of


@over_seeds(range(100))
def test_the_median_of_the_others_is_that_without_the_peer(seed):
    random = np.random.default_rng(seed)
    shape = int(random.integers(2, 9)), int(random.integers(1, 6))
    values = random.integers(0, 5, shape).astype(float)
    expected = [
        row - np.median(np.delete(values, place, axis=0), axis=0)
        for place, row in enumerate(values)
    ]
    assert np.allclose(others_beyond(values), expected)


@pytest.mark.parametrize(
    ("steps_n", "more", "reason"),
    [(40, 0.008, SMALL), (40, 0.012, ""), (8, 0.04, SMALL), (8, 0.06, "")],
)
def test_what_is_named_has_a_least_size(steps_n, more, reason):
    values = 0.0005 * np.random.default_rng(0).standard_normal((8, steps_n))
    values[3] += more
    assert sides_of(values, 0.004)[3].standing.reason == reason
