"""What the profiler makes ranks late by, planted: the lateness, the innocent rank, the identity."""

from __future__ import annotations

import numpy as np
import pytest
from flushed_ranks import US, write_ranks
from quick_run import quick


@pytest.mark.parametrize("seed", range(4))
def test_the_part_of_a_lateness_is_what_the_flushes_of_both_ranks_make(tmp_path, seed):
    rng = np.random.default_rng(seed)
    held = rng.integers(50 * US, 900 * US, (2, 30)) * (rng.random((2, 30)) < 0.3)
    tables = quick("tail_stats", write_ranks(tmp_path / "ranks", held))
    collectives = tables["collectives"]
    # Nothing but flushes makes a rank late: all waiting is the profiler's.
    assert collectives["wait_ns"].tolist() == np.abs(held[0] - held[1]).tolist()
    assert collectives["profiler_ns"].tolist() == collectives["wait_ns"].tolist()
    ranks = tables["stragglers"].set_index("rank")
    late = [np.maximum(held[rank] - held[1 - rank], 0).sum() for rank in range(2)]
    assert ranks["profiler_ns"][[0, 1]].tolist() == late
    assert not set(ranks["pattern"]) & {"persistent", "transient"}
    rules = set(tables["findings"]["rule"])
    assert "profiler_wait" in rules
    assert not rules & {"persistent_straggler", "transient_straggler", "collective_waits"}


@pytest.mark.parametrize("seed", range(3))
def test_a_host_that_sleeps_beside_a_flush_is_late_by_itself(tmp_path, seed):
    rng = np.random.default_rng(100 + seed)
    asleep = np.stack((rng.integers(300 * US, 900 * US, 30), np.zeros(30, dtype=int)))
    folder = write_ranks(tmp_path / "ranks", np.zeros((2, 30), dtype=int), asleep_ns=asleep)
    tables = quick("tail_stats", folder)
    assert tables["collectives"]["profiler_ns"].sum() == 0
    ranks = tables["stragglers"].set_index("rank")
    assert ranks["caused_wait_ns"][0] == asleep.sum()
    assert ranks["pattern"].to_dict() == {0: "persistent", 1: "none"}
    assert "profiler_wait" not in set(tables["findings"]["rule"])


def test_a_late_rank_that_a_flush_holds_too_is_judged_by_the_rest(tmp_path):
    held, asleep = np.zeros((2, 30), dtype=int), np.zeros((2, 30), dtype=int)
    held[1, 7], asleep = 6_000 * US, np.stack((np.zeros(30, dtype=int), np.full(30, 200 * US)))
    folder = write_ranks(tmp_path / "ranks", held, asleep_ns=asleep)
    tables = quick("tail_stats", folder)
    row = tables["stragglers"].set_index("rank").loc[1]
    assert row["caused_wait_ns"] == 6_000 * US + 30 * 200 * US
    assert row["profiler_ns"] == 6_000 * US
    assert row["worst_late_by_ns"] == 200 * US
    finding = tables["findings"].set_index("rule").loc["persistent_straggler"]
    assert row["late_by_ns"] == 30 * 200 * US
    # Flushes go on while the host sleeps: of its idle time, only what is beside them is to gain.
    wall = tables["wall"].query("rank == 1 and wall_class == 'idle'")
    assert finding["gain_ns"] == wall["time_ns"].sum() < row["late_by_ns"]
    assert not finding["gain_is_bound"]
    assert "6 ms of the waiting of all other ranks is left out" in finding["details"]


def test_a_flush_makes_no_tail_of_the_call_that_it_holds(tmp_path):
    held = np.zeros((2, 30), dtype=int)
    held[0, 7] = 6_000 * US
    tables = quick("tail_stats", write_ranks(tmp_path / "ranks", held))
    row = tables["api_tails"].set_index("api").loc["cudaLaunchKernel"]
    assert (row["max_ns"], row["net_max_ns"], row["profiler_ns"]) == (
        6_010 * US,
        10 * US,
        6_000 * US,
    )
    assert (row["outliers_n"], row["outlier"]) == (0, False)
    rank_calls = tables["rank_api_tails"].set_index("rank").loc[0]
    assert rank_calls["total_ns"] == 5 * US + 30 * 15 * US + 6_000 * US
    assert set(tables["findings"]["rule"]) == {"profiler_wait"}
