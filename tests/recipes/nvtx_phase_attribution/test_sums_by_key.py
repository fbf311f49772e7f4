"""Sums under keys, and that they merge."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.recipes.nvtx_phase_attribution.per_rank.sums_by_key import SumsByKey


def made(*rows):
    return SumsByKey.of(
        [(key,) for key, _ in rows],
        {"n": np.array([n for _, n in rows], dtype=np.int64)},
    )


def plain(sums):
    return dict(zip(sums.keys, sums.sums["n"].tolist(), strict=True)) if sums.keys else {}


def test_equal_keys_are_added():
    assert plain(made(("b", 1), ("a", 2), ("b", 4))) == {("a",): 2, ("b",): 5}


def test_nothing_is_the_identity():
    sums = made(("a", 1))
    assert plain(SumsByKey.merge([SumsByKey(), sums, SumsByKey()])) == plain(sums)
    assert SumsByKey.merge([]) == SumsByKey()


def test_names_that_become_one_are_added():
    sums = made(("a1", 1), ("a2", 3), ("b", 5))
    renamed = sums.renamed([(key[:1],) for (key,) in sums.keys])
    assert plain(renamed) == {("a",): 4, ("b",): 5}


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=6)


@given(ROWS, ROWS, ROWS)
def test_merging_is_associative_and_commutative(first, second, third):
    a, b, c = made(*first), made(*second), made(*third)
    whole = plain(SumsByKey.merge([a, b, c]))
    assert plain(SumsByKey.merge([SumsByKey.merge([a, b]), c])) == whole
    assert plain(SumsByKey.merge([c, SumsByKey.merge([b, a])])) == whole
    assert plain(made(*first, *second, *third)) == whole
