"""Rows of several parts, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.numeric.distributions import Spread, ValueCounts, interpolate
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked


@dataclass(frozen=True)
class Times:
    total_ns: IntArray


@dataclass(frozen=True)
class Rows:
    names: tuple[str, ...]
    times: Times
    spread: Spread


def rows(*values):
    """Return a row for each value, which is its time and all that it counts."""
    counts = ValueCounts.from_values(np.arange(len(values)), np.array(values, dtype=np.int64))
    total_ns = np.array(values, dtype=np.int64)
    return Rows(tuple(map(str, values)), Times(total_ns), counts.spread(len(values)))


def test_every_field_is_that_of_all_rows_at_once():
    both, once = stacked(Rows, [rows(3, 5), rows(), rows(7)]), rows(3, 5, 7)
    assert both.names == once.names
    assert both.times.total_ns.tolist() == once.times.total_ns.tolist()
    for name in ("n", "total", "squares", "minimum", "maximum"):
        assert list(getattr(both.spread.moments, name)) == list(getattr(once.spread.moments, name))
    assert both.spread.order.low.tolist() == once.spread.order.low.tolist()


def test_no_parts_have_no_rows():
    nothing = stacked(Rows, [])
    assert (nothing.names, nothing.times.total_ns.size) == ((), 0)
    assert interpolate(nothing.spread.order).shape == (0, 6)
