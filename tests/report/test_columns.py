"""Columns of tables are sorted as pandas sorts, and text by code point."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.report.columns import nullable, sorted_columns


def columns(seed):
    random = np.random.default_rng(seed)
    text = random.choice(["a", "A", "\u00e9", "\uffff", "\U0001f600", "ab", ""], 40)
    return {
        "rank": random.integers(0, 3, 40),
        "name": text.tolist(),
        "object": text.astype(object),
        "host": [None if host == "ab" else host for host in text.tolist()],
        "total_ns": random.integers(0, 4, 40) * 2**60,
        "mean_ns": random.choice([0.0, -0.0, 1.5, np.nan], 40),
        "start_ns": nullable(random.choice([NULL_INT, 2**53, 2**53 + 1], 40)),
        "graph": random.choice([True, False], 40),
        "row": list(range(40)),
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "by",
    [
        ["name"],
        ["-total_ns"],
        ["rank", "-total_ns", "object"],
        ["host", "-mean_ns"],
        ["-host", "mean_ns"],
        ["-start_ns", "-graph"],
        ["-rank", "start_ns", "-name"],
    ],
    ids=", ".join,
)
def test_rows_are_ordered_as_by_pandas(seed, by):
    given = columns(seed)
    frame = pd.DataFrame({name: pd.Series(values) for name, values in given.items()})
    theirs = frame.sort_values(
        [name.lstrip("-") for name in by],
        ascending=[not name.startswith("-") for name in by],
        kind="stable",
    )
    ours = sorted_columns(given, *by)
    assert list(ours["row"]) == theirs["row"].tolist()
    for name, values in ours.items():
        assert type(values) is type(given[name])
        expected = pd.Series([given[name][row] for row in ours["row"]], dtype=object)
        pd.testing.assert_series_equal(pd.Series(list(values), dtype=object), expected)


def test_columns_of_a_frame_are_taken_by_position():
    series = pd.Series([3, 1, 2], index=[7, 8, 9])
    assert sorted_columns({"x": series, "y": ["c", "a", "b"]}, "x")["y"] == ["a", "b", "c"]
    assert list(sorted_columns({"x": series}, "x")["x"]) == [1, 2, 3]


def test_a_long_name_among_many_takes_no_more_than_its_own_room():
    names = ["b" * 1_000_000, *map(str, range(1_000))]
    tracemalloc.start()
    try:
        ordered = sorted_columns({"name": names}, "-name")["name"]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert ordered == sorted(names, reverse=True)
