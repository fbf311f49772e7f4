"""Merged facts: the top outliers over all ranks are those of all launches, whatever the order."""

from __future__ import annotations

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.tails import kernels as tails
from nsys_llm.facts.tails.launches import CONFIG, CONFIG_AT
from nsys_llm.numeric.stacking import merged
from nsys_llm.profile.tables import Table
from nsys_llm.recipes.tail_stats.tables.medians import Medians
from nsys_llm.recipes.tail_stats.tables.outliers import outlying
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

OPTIONS = {"base": False, "mangled": False, "step": None, "disable_alignment": False}

#: Ranks, each a list of (name, grid, duration, gap before).
RANKS = st.lists(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 9), st.integers(0, 3)),
        max_size=14,
    ),
    min_size=1,
    max_size=4,
)


def rank_trace(launches):
    """A rank with these kernels one after the other, in memory."""
    n = len(launches)
    durations = np.array([row[2] for row in launches], dtype=np.int64)
    gaps = np.array([row[3] for row in launches], dtype=np.int64)
    ends = np.cumsum(durations + gaps)
    columns = {name: np.ones(n, dtype=np.int64) for name in CONFIG}
    name_id = np.array([" ab".index(row[0]) for row in launches], dtype=np.int64)
    columns |= {
        "grid_x": np.array([row[1] for row in launches], dtype=np.int64),
        "demangled_name_id": name_id,
        "short_name_id": name_id,
        "start_ns": ends - durations,
        "end_ns": ends,
        **dict.fromkeys(("device_id", "stream_id", "correlation_id"), np.zeros(n, dtype=np.int64)),
        "graph_node_id": np.full(n, NULL_INT, dtype=np.int64),
        "launch_row": np.full(n, -1, dtype=np.int64),
    }
    ops = {"kernels": Table(columns)}
    return RankTrace(ops, {1: "a", 2: "b"}, None, ops, (0,) if n else ())


def mapped(index, launches, most):
    key = RankKey(f"/rank{index}", 0)
    return tails.of(RankView(rank_trace(launches), key, {**OPTIONS, "top": most}))


def longest_outliers(facts, most):
    """The first outliers of merged facts: (rank, start, duration, excess in halves)."""
    medians = Medians(facts)
    outliers = outlying(facts.instances, medians)
    outliers = outliers.take(np.arange(min(len(outliers), most)))
    numbers = outliers.numbers
    return [
        (
            outliers.ranks[owner].path,
            medians.keys[key][0],
            medians.keys[key][CONFIG_AT],
            start,
            duration,
            2 * duration - int(medians.twice[key]),
        )
        for owner, key, start, duration in zip(
            *(numbers[name].tolist() for name in ("owner", "key", "start_ns", "duration_ns")),
            strict=True,
        )
    ]


def by_hand(ranks, most):
    """The same from all launches of all ranks at once."""
    every = []
    for index, launches in enumerate(ranks):
        at_ns = 0
        for name, grid, duration, gap in launches:
            at_ns += gap
            every.append((f"/rank{index}", name, grid, at_ns, duration))
            at_ns += duration
    groups = {}
    for launch in every:
        groups.setdefault(launch[1:3], []).append(launch[4])
    median = {key: np.median(values) for key, values in groups.items()}
    outliers = [
        (*launch, round(2 * (launch[4] - median[launch[1:3]])))
        for launch in every
        if launch[4] > 2 * median[launch[1:3]] > 0
    ]
    modes = {key for key, values in groups.items() if has_second_mode(values, median[key])}
    # Two kinds of work stand after what is slow.
    outliers.sort(key=lambda launch: (launch[1:3] in modes, -launch[5], -launch[4], *launch[:4]))
    return outliers[:most]


def has_second_mode(durations, median):
    slow = [duration for duration in durations if duration > 2 * median > 0]
    others = [duration for duration in durations if not duration > 2 * median > 0]
    if len(slow) < 5 or len(slow) < 0.03 * len(durations):
        return False
    return max(slow) <= 1.5 * min(slow) and min(slow) >= 1.5 * max(others)


@pytest.mark.nightly
@examples(200)
@given(RANKS, st.integers(1, 4))
def test_the_top_over_all_ranks_is_that_of_all_launches(ranks, most):
    parts = [mapped(index, launches, most) for index, launches in enumerate(ranks)]
    assert longest_outliers(merged(parts), most) == by_hand(ranks, most)
