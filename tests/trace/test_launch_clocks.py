"""How long before their calls operations start, against hand-made numbers and a brute force."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.trace.attribution import EarlyStarts, early_starts


def tables(pairs):
    """Return operations and calls out of pairs (start of the operation, start of its call)."""
    ops, starts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    known = starts != -1
    row = np.where(known, np.arange(ops.size), -1)
    calls = {"start_ns": starts, "end_ns": np.where(starts == NULL_INT, NULL_INT, starts + 5)}
    return Table({"start_ns": ops, "launch_row": row}), Table(calls)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(110, 100), (120, 100)], EarlyStarts()),
        ([(100, 100)], EarlyStarts()),
        ([(90, 100), (98, 100)], EarlyStarts(2, 10, 10)),
        # 1 of 200 is early: an odd row, and no clock.
        ([(110, 100)] * 199 + [(60, 100)], EarlyStarts(1, 0, 40)),
        # 2 of 100 are.
        ([(110, 100)] * 98 + [(95, 100), (60, 100)], EarlyStarts(2, 5, 40)),
        # What has no call, or one without times, says nothing.
        ([(90, -1), (120, 100), (50, NULL_INT)], EarlyStarts()),
        ([], EarlyStarts()),
    ],
)
def test_early_starts_are_counted_with_a_robust_figure(pairs, expected):
    assert early_starts(*tables(pairs)) == expected


@pytest.mark.parametrize("seed", range(30))
def test_the_figures_are_those_of_a_sorted_list(seed):
    rng = np.random.default_rng(seed)
    n, offset = int(rng.integers(1, 400)), int(rng.integers(-30, 30))
    pairs = [(1_000 + offset + int(x), 1_000) for x in rng.integers(0, 40, n)]
    early = sorted(max(call - op, 0) for op, call in pairs)
    figures = early_starts(*tables(pairs))
    assert figures.early_n == sum(early_ns > 0 for early_ns in early)
    assert figures.most_ns == early[-1]
    assert figures.usual_ns == next(
        early_ns for at, early_ns in enumerate(early, 1) if 100 * at >= 99 * len(early)
    )


def test_without_api_calls_nothing_is_known():
    op, _ = tables([(1, 2)])
    assert early_starts(op, None) == EarlyStarts()
    assert early_starts(op, Table({"correlation_id": np.array([1])})) == EarlyStarts()
