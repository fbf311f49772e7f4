"""Inferred edges on the way of walks."""

from __future__ import annotations

import numpy as np

from nsys_llm.critical_path.path.outline import crossed


def test_inferred_edges_are_counted_within_each_walk():
    walk = np.array([0, 0, 0, 2, 2, 5])
    assert crossed(np.array([1, 0, 1, 0, 1, 1]), walk).tolist() == [1, 1, 2, 0, 1, 1]
    assert crossed(walk[:0], walk[:0]).tolist() == []
