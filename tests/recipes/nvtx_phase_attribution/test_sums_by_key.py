"""Sums under keys, and that they merge."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.recipes.nvtx_phase_attribution.per_rank.sums_by_key import SumsByKey


def made(*rows):
    """Return sums of rows (key, value, most)."""
    return SumsByKey.of(
        [(key,) for key, _, _ in rows],
        {"n": np.array([n for _, n, _ in rows], dtype=np.int64)},
        {"most": np.array([most for _, _, most in rows], dtype=np.int64)},
    )


def plain(sums):
    if not sums.keys:
        return {}
    values = zip(sums.sums["n"].tolist(), sums.most["most"].tolist(), strict=True)
    return dict(zip(sums.keys, values, strict=True))


def test_equal_keys_are_added_and_the_largest_stays_the_largest():
    assert plain(made(("b", 1, 5), ("a", 2, 1), ("b", 4, 3))) == {("a",): (2, 1), ("b",): (5, 5)}


def test_nothing_is_the_identity():
    sums = made(("a", 1, 2))
    assert plain(SumsByKey.merge([SumsByKey(), sums, SumsByKey()])) == plain(sums)
    assert SumsByKey.merge([]) == SumsByKey()


def test_names_that_become_one_are_added():
    sums = made(("a1", 1, 2), ("a2", 3, 4), ("b", 5, 6))
    renamed = sums.renamed([(key[:1],) for (key,) in sums.keys])
    assert plain(renamed) == {("a",): (4, 4), ("b",): (5, 6)}


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 9)), max_size=6)


@given(ROWS, ROWS, ROWS)
def test_merging_is_associative_and_commutative(first, second, third):
    a, b, c = made(*first), made(*second), made(*third)
    whole = plain(SumsByKey.merge([a, b, c]))
    assert plain(SumsByKey.merge([SumsByKey.merge([a, b]), c])) == whole
    assert plain(SumsByKey.merge([c, SumsByKey.merge([b, a])])) == whole
    assert plain(made(*first, *second, *third)) == whole
