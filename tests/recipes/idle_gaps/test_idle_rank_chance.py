"""What chance gives of states that ranks share: against products, and on planted ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from planted import frame_of

from nsys_llm.numeric.intervals import total_length_ns, union_intervals
from nsys_llm.recipes.idle_gaps.findings.cross_rank_idle import (
    PipelineRanks,
    late_rank_findings,
    together_words,
)
from nsys_llm.recipes.idle_gaps.tables.cross_rank_idle import ALL_IDLE, ONE_BUSY
from nsys_llm.recipes.idle_gaps.tables.idle_intervals import common_intervals, intervals_by_chance

LENGTH = 10_000_000


def independent(rng, ranks_n, intervals_n, share):
    """Idle spells of ranks that know nothing of each other."""
    ranks = []
    for _ in range(ranks_n):
        idle = rng.exponential(share, intervals_n)
        busy = rng.exponential(1 - share, intervals_n)
        at = np.cumsum(np.stack((busy, idle), 1).ravel())
        edges = (at * LENGTH / at[-1]).astype(np.int64).reshape(-1, 2)
        ranks.append(union_intervals(edges[:, 0], edges[:, 1]))
    return ranks


def common_idle(intervals):
    """The table, of ranks whose idle time is known."""
    every, alone = common_intervals(intervals, (0, LENGTH))
    chances = intervals_by_chance(intervals, (0, LENGTH))
    states = [(ALL_IDLE, None, every, chances.every)]
    states += [(ONE_BUSY, rank, spans, chances.alone[rank]) for rank, spans in alone.items()]
    rows = [
        {
            "kind": kind,
            "rank": rank,
            "clock": "x",
            "ranks_n": len(intervals),
            "span_ns": LENGTH,
            "intervals_n": len(spans),
            "total_ns": total_length_ns(spans),
            "total_pct": 100 * total_length_ns(spans) / LENGTH,
            "chance_pct": 100 * chance.share,
            "chance_most_pct": 100 * chance.largest,
            "possible_pct": 100 * chance.possible,
            "longest_ns": 1,
            "window_rank": 0,
            "window_start_ns": 0,
            "window_end_ns": 1,
        }
        for kind, rank, spans, chance in states
    ]
    rows.sort(key=lambda row: (row["kind"] != ALL_IDLE, -row["total_ns"]))
    return frame_of("common_idle", rows, "idle_gaps")


def rules_of(intervals):
    rows = [
        {
            "rank": rank,
            "device_id": 0,
            "wall_class": "idle",
            "detail": "host_no_cuda",
            "time_ns": total_length_ns(spans),
            "span_ns": LENGTH,
        }
        for rank, spans in enumerate(intervals)
    ]
    files = [{"Rank": rank, "clock_offset_ns": 0} for rank in range(len(intervals))]
    tables: dict[str, pd.DataFrame] = {
        "common_idle": common_idle(intervals),
        "wall": frame_of("wall", rows, "idle_gaps"),
        "files": frame_of("files", files, "idle_gaps"),
        "coverage": frame_of("coverage", [], "idle_gaps"),
    }
    late = [finding.rule for finding in late_rank_findings(tables, PipelineRanks())]
    return [*late, *(["all idle"] if together_words(tables)[0] else [])]


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_the_product_of_the_shares(seed):
    rng = np.random.default_rng(seed)
    ranks = independent(rng, 3, 2_000, 0.4)
    idle = [total_length_ns(intervals) / LENGTH for intervals in ranks]
    chances = intervals_by_chance(ranks, (0, LENGTH))
    assert chances.every.share == pytest.approx(idle[0] * idle[1] * idle[2])
    assert chances.alone[1].share == pytest.approx(idle[0] * (1 - idle[1]) * idle[2])
    # And it is what independent ranks show, as far as 2,000 spells tell.
    every, alone = common_intervals(ranks, (0, LENGTH))
    assert total_length_ns(every) / LENGTH == pytest.approx(chances.every.share, rel=0.15)
    assert total_length_ns(alone[1]) / LENGTH == pytest.approx(chances.alone[1].share, rel=0.15)
    assert chances.every.possible == min(idle)


def test_independent_ranks_are_never_said_to_wait_for_one():
    rng = np.random.default_rng(11)
    rules, noticeable_n = [], 0
    for _ in range(50):
        ranks_n, intervals_n = int(rng.integers(3, 6)), int(rng.integers(20, 300))
        ranks = independent(rng, ranks_n, intervals_n, rng.uniform(0.2, 0.7))
        noticeable_n += (common_idle(ranks)["total_pct"] >= 5).any()
        rules += rules_of(ranks)
    assert rules == []
    # Their share alone would have been worth a finding.
    assert noticeable_n > 25


def test_independent_ranks_of_one_period_are_never_said_to_wait_for_one():
    rules = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        period, ranks = LENGTH // 50, []
        for _ in range(4):
            starts = rng.integers(period) + period * np.arange(-1, 51)
            ranks.append(np.stack((starts, starts + period // 2), 1))
        rules += rules_of([np.clip(spans, 0, LENGTH) for spans in ranks])
    # Equal phases happen: once in a hundred times for each of two rules.
    assert len(rules) <= 2


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_wait_for_one_are_found(seed):
    rng = np.random.default_rng(seed)
    # All compute for a time, then one alone.
    ends = np.cumsum(rng.integers(80_000, 120_000, 90))
    alone = rng.integers(20_000, 40_000, 90)
    waiting = np.stack((ends - alone + rng.integers(0, 900, 90), ends), 1)
    nothing = np.empty((0, 2), dtype=np.int64)
    assert rules_of([waiting, nothing, waiting + 100, waiting + 200]) == ["late_rank"]
    assert rules_of([waiting, waiting + 100, waiting + 200]) == ["all idle"]
