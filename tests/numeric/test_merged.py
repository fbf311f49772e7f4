"""Parts of ranks merge in any order and grouping, also with nothing, whatever their fields are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Spread, ValueCounts, interpolate
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import merged, stacked


@dataclass(frozen=True)
class Side:
    ranks: Mapping[int, str] = field(default_factory=dict)
    rows: ByKey = field(default_factory=ByKey)


@dataclass(frozen=True)
class Whole:
    """A field of each kind."""

    sides: Mapping[str, Side] = field(default_factory=dict)
    rows: ByKey = field(default_factory=ByKey)
    names: tuple[str, ...] = ()
    later: str | None = None


#: Of each row its key, a number, and values.
ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.lists(st.integers(0, 5), max_size=3)),
    max_size=5,
)
#: Of each rank its side and rows.
RANKS = st.lists(st.tuples(st.sampled_from(["", "x"]), ROWS), min_size=1, max_size=4)


def by_key(rows):
    sums = ByKey.of([key for key, _, _ in rows], {"n": np.array([n for _, n, _ in rows], int)})
    values = [(sums.keys.index(key), value) for key, _, some in rows for value in some]
    group, value = np.array(values, dtype=np.int64).reshape(-1, 2).T
    return ByKey(sums.keys, sums.sums, ValueCounts.from_values(group, value))


def one_rank(rank, side, rows):
    names = tuple(sorted({key for key, _, _ in rows}))
    return Whole({side: Side({rank: "it"}, by_key(rows))}, by_key(rows), names)


def plain(rows):
    values = {key: [] for key in rows.keys}
    columns = (rows.counts.group, rows.counts.value, rows.counts.count)
    for group, value, n in zip(*(column.tolist() for column in columns), strict=True):
        values[rows.keys[group]] += [value] * n
    return {key: (n, values[key]) for key, (n,) in rows.rows().items()}


def content(whole):
    sides = {name: (side.ranks, plain(side.rows)) for name, side in whole.sides.items()}
    return sides, plain(whole.rows), whole.names, whole.later


def by_hand(rows):
    keys = sorted({key for key, _, _ in rows})
    sums = {key: sum(n for it, n, _ in rows if it == key) for key in keys}
    return {
        key: (sums[key], sorted(v for it, _, vs in rows if it == key for v in vs)) for key in keys
    }


@given(RANKS, st.randoms(use_true_random=False))
def test_parts_merge_to_the_same_in_any_order_and_grouping(ranks, random):
    every = [row for _, rows in ranks for row in rows]
    sides = {}
    for name in sorted({side for side, _ in ranks}):
        there = {rank: "it" for rank, (side, _) in enumerate(ranks) if side == name}
        sides[name] = there, by_hand([row for side, rows in ranks if side == name for row in rows])
    expected = sides, by_hand(every), tuple(sorted({key for key, _, _ in every})), None
    parts = [one_rank(rank, *it) for rank, it in enumerate(ranks)]
    assert content(merged(parts)) == expected
    parts += [Whole()] * random.randint(0, 2)
    random.shuffle(parts)
    assert content(merged(parts)) == content(reduce(lambda a, b: merged([a, b]), parts)) == expected
    assert [*merged(parts).sides] == [*sides]


def test_two_parts_of_one_rank_are_refused():
    with pytest.raises(TypeError, match="two parts have the same str"):
        merged([one_rank(1, "", []), one_rank(1, "", [])])


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
