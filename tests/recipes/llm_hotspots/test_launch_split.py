"""A rank that is slow by another mix of kernels has no slower launches; and chance is no cause."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nsys_llm.recipes.llm_hotspots.findings.balance import balance_findings
from nsys_llm.recipes.llm_hotspots.findings.launch_split import (
    hosts_beyond_chance,
    ranks_beyond_chance,
    split_host,
    split_rank,
)
from nsys_llm.recipes.llm_hotspots.findings.longer_kernels import longer_on_host

NAMES = ("heavy", "light", "norm")
LENGTHS = np.array([100_000, 10_000, 2_000])


def rank_kernels(calls, totals, stds=None):
    """Return the table's rows; arrays of shape (ranks, kernels)."""
    rows = [
        {
            "rank": rank,
            "name": name,
            "launches_n": int(calls[rank][at]),
            "total_ns": int(totals[rank][at]),
            "std_ns": 0.0 if stds is None else float(stds[rank][at]),
        }
        for rank in range(len(calls))
        for at, name in enumerate(NAMES)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(30))
def test_parts_add_up_to_the_difference_to_the_median_rank(seed):
    rng = np.random.default_rng(seed)
    ranks_n = int(rng.integers(2, 9))
    calls = rng.integers(1, 100, (ranks_n, len(NAMES)))
    totals = calls * rng.integers(1, 1_000, calls.shape) + rng.integers(0, 3, calls.shape)
    times = {rank: int(totals[rank].sum()) for rank in range(ranks_n)}
    worst = max(times, key=times.__getitem__)
    split = split_rank(rank_kernels(calls, totals), NAMES, worst, times)
    others = sorted(ns for rank, ns in times.items() if rank != worst)
    assert times[split.reference] == others[(len(others) - 1) // 2]
    assert split.count_ns + split.per_call_ns == times[worst] - times[split.reference]
    reference = split.reference
    count = sum(
        (int(calls[worst][at]) - int(calls[reference][at]))
        * int(totals[reference][at])
        / int(calls[reference][at])
        for at in range(len(NAMES))
    )
    assert split.count_ns == pytest.approx(count, abs=0.5 * len(NAMES))


@pytest.mark.parametrize("seed", range(20))
def test_another_mix_is_told_from_longer_launches(seed):
    rng = np.random.default_rng(seed)
    calls = np.tile([65, 85, 50], (4, 1))
    slow = int(rng.integers(0, 4))
    calls[slow] = [85, 65, 50]
    jitter = 1 + 0.002 * rng.standard_normal(calls.shape)
    totals = (calls * LENGTHS * jitter).astype(np.int64)
    times = {rank: int(totals[rank].sum()) for rank in range(4)}
    split = split_rank(rank_kernels(calls, totals), NAMES, slow, times)
    assert split.mixed
    assert (split.name, split.launches_n, split.reference_n) == ("heavy", 85, 65)
    longer = np.where(np.arange(4)[:, None] == slow, 1.2, 1.0) * jitter
    calls[slow] = calls[slow - 1]
    totals = (calls * LENGTHS * longer).astype(np.int64)
    times = {rank: int(totals[rank].sum()) for rank in range(4)}
    split = split_rank(rank_kernels(calls, totals), NAMES, slow, times)
    assert not split.mixed
    assert split.sure


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_is_split_against_the_median_rank_elsewhere(seed):
    rng = np.random.default_rng(seed)
    calls = rng.integers(1, 60, (6, len(NAMES)))
    totals = calls * rng.integers(1, 1_000, calls.shape)
    times = {rank: int(totals[rank].sum()) for rank in range(6)}
    host_ranks = sorted(rng.choice(6, int(rng.integers(1, 5)), replace=False).tolist())
    split = split_host(rank_kernels(calls, totals), NAMES, host_ranks, times, 3)
    others = sorted(ns for rank, ns in times.items() if rank not in host_ranks)
    assert split.reference not in host_ranks
    assert times[split.reference] == others[(len(others) - 1) // 2]
    whole = sum(times[rank] for rank in host_ranks) - len(host_ranks) * times[split.reference]
    assert split.count_ns + split.per_call_ns == whole
    parts = [split_rank(rank_kernels(calls, totals), NAMES, rank, times) for rank in host_ranks]
    same = [part.count_ns for part in parts if part.reference == split.reference]
    if len(same) == len(host_ranks):
        assert split.count_ns == pytest.approx(sum(same), abs=len(host_ranks) * len(NAMES))
    # One that is slow throughout, and one with another kernel for it.
    for kernel in (None, "heavy"):
        calls = np.tile([65, 85, 50], (6, 1))
        jitter = 1 + 0.002 * rng.standard_normal(calls.shape)
        factor = np.ones(calls.shape)
        factor[host_ranks, slice(None) if kernel is None else NAMES.index(kernel)] = 1.2
        table = rank_kernels(calls, (calls * LENGTHS * jitter * factor).astype(np.int64))
        assert longer_on_host(table, NAMES, host_ranks) == ([] if kernel is None else [kernel])


def test_longer_launches_have_to_be_beyond_their_own_spread():
    # 40 launches of 100 us with a deviation of 60 us: a mean of 108 us is chance.
    calls = [[40, 40, 40]] * 2
    totals = [[4_000_000, 0, 0], [4_320_000, 0, 0]]
    for std, sure in ((60_000, False), (1_000, True)):
        stds = [[std, 0, 0]] * 2
        split = split_rank(
            rank_kernels(calls, totals, stds), NAMES, 1, {0: 4_000_000, 1: 4_320_000}
        )
        assert split.sure is sure


@pytest.mark.parametrize("ranks_n", [8, 16, 64])
def test_the_slowest_of_equal_ranks_is_seldom_beyond_chance(ranks_n):
    rng = np.random.default_rng(ranks_n)
    sets = np.sort(rng.normal(1e6, 5e4, (1_000, ranks_n)).astype(np.int64), axis=1)
    fired = sum(ranks_beyond_chance(row[-1], row[:-1].tolist()) for row in sets)
    # 5 % at most, and three standard deviations of so many sets.
    assert fired <= 1_000 * (0.05 + 3 * (0.05 * 0.95 / 1_000) ** 0.5)
    # A rank that is slow for real, among ranks that differ by 0.1 %.
    others = rng.normal(1e6, 1e3, ranks_n - 1).astype(np.int64).tolist()
    assert ranks_beyond_chance(1_100_000, others)


@pytest.mark.parametrize("hosts_n", [4, 16])
def test_the_slowest_of_equal_machines_is_seldom_beyond_chance(hosts_n):
    rng = np.random.default_rng(hosts_n)
    fired = 0
    for _ in range(300):
        times = rng.normal(1e6, 5e4, (hosts_n, 8))
        rows = [
            {"host": f"h{host}", "compute_total_ns": int(ns)}
            for host in range(hosts_n)
            for ns in times[host]
        ]
        worst = int(times.mean(axis=1).argmax())
        excess_ns = times[worst].mean() - np.median(times)
        fired += hosts_beyond_chance(excess_ns, f"h{worst}", rows)
    assert fired <= 300 * (0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5)
    slow = [dict(row, compute_total_ns=1_200_000) if row["host"] == "h0" else row for row in rows]
    assert hosts_beyond_chance(2e5, "h0", slow)


def test_one_slow_rank_is_not_its_machine():
    rows = [{"host": f"h{n // 4}", "compute_total_ns": 1_000} for n in range(8)]
    rows[5] = {"host": "h1", "compute_total_ns": 1_300}
    assert not hosts_beyond_chance(75, "h1", rows)


def test_the_finding_names_the_kernel_that_runs_more_often():
    calls = np.tile([65, 85, 50], (4, 1))
    calls[2] = [85, 65, 50]
    totals = calls * LENGTHS
    processes = pd.DataFrame(
        {
            "rank": range(4),
            "host": ["n"] * 4,
            "compute_total_ns": totals.sum(axis=1),
            "launches_n": calls.sum(axis=1),
            "window_ns": 20_000_000,
            "window_start_ns": 0,
            "window_end_ns": 20_000_000,
        }
    )
    empty = pd.DataFrame(columns=["scope", "name"])
    kernels = pd.DataFrame(
        [
            {
                "scope": "kernel",
                "name": name,
                "communication": False,
                "suspect_rank": 2,
                "max_ns": int(totals[:, at].max()),
                "p50_ns": float(np.median(totals[:, at])),
                "others_p50_ns": float(np.median(np.delete(totals[:, at], 2))),
            }
            for at, name in enumerate(NAMES)
        ]
    )
    tables = {
        "overlap": empty,
        "processes": processes,
        "imbalance": kernels,
        "host_imbalance": empty,
        "rank_kernels": rank_kernels(calls, totals),
        "wall": pd.DataFrame(
            {
                "rank": range(4),
                "device_id": 0,
                "wall_class": "compute",
                "time_ns": totals.sum(axis=1),
                "span_ns": 20_000_000,
            }
        ),
    }
    (finding,) = [finding for finding in balance_findings(tables) if finding.rule == "slow_rank"]
    assert "`heavy` runs 85 times, 65 times on rank" in finding.details
    assert "+1.8 ms by the number of launches, 0 ns by their length" in finding.details
    # 1,800 of 7,450 us.
    assert finding.title == "Rank 2 has 24.2 % more to compute"
    assert "clocks" not in finding.recommendation.lower()
    assert finding.record is None
    # 20 launches of 100 us more, 20 of 10 us less, of 20 ms.
    assert (finding.gain.gain_ns, finding.severity) == (1_800_000, "medium")
