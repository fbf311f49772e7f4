"""Who is to blame, on simulated ranks that meet after each step: the generator knows the truth."""

from __future__ import annotations

import re

import numpy as np
import pytest
from quick_run import quick

from nsys_llm.recipes.tail_stats.findings.answer import answer
from nsys_llm.testing.trace_builder import TraceBuilder

RANKS, STEPS = 4, 30
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
NAMES = ["q", "k", "v", "attention", "norm", "router", "experts_up", "experts_down", REDUCE]
USUAL_NS = np.array([20, 22, 24, 40, 12, 9, 60, 50]) * 1_000
EXPERTS = np.array([1, 1, 1, 1, 1, 1, 1.6, 1.6])
LATE_NS = 60_000
GENERIC = {"slow_throughout", "uneven_work", "collective_waits"}


def write_ranks(folder, seed, *, ranks_n=RANKS, pace=None, late=None):
    """Write a set; return the rank clocks' truth of each step.

    Args:
        folder: Where to.
        seed: Of 1 % of jitter.
        ranks_n: How many.
        pace: By rank, what its kernels take over the usual.
        late: By rank, a function of the step that says for how long its host sleeps before it.
    """
    rng = np.random.default_rng(seed)
    free = np.full(ranks_n, 1_000_000, dtype=np.int64)
    rows = [[] for _ in range(ranks_n)]
    for step in range(STEPS):
        for rank in range(ranks_n):
            free[rank] += (late or {}).get(rank, lambda _: 0)(step)
            durations = USUAL_NS * (pace or {}).get(rank, 1.0) * rng.uniform(0.99, 1.01, 8)
            for kernel, duration in enumerate(durations.astype(np.int64).tolist()):
                rows[rank].append((kernel, free[rank], free[rank] + duration))
                free[rank] += duration + 300
        end = free.max() + 8_000
        for rank in range(ranks_n):
            rows[rank].append((8, free[rank], end + int(rng.integers(0, 200))))
        free[:] = end + 1_000
    for rank, rank_rows in enumerate(rows):
        kernel, start_ns, end_ns = np.array(rank_rows).T
        report = TraceBuilder(hostname="node0", system_clock_ns=7)
        report.kernels(NAMES, kernel, start_ns=start_ns, end_ns=end_ns)
        report.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


def findings_of(tables):
    findings = tables["findings"]
    findings = findings[findings["kind"] == "performance"]
    return {row["rule"]: row for row in findings.to_dict("records")}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ranks_n", [2, 4])
def test_longer_experts_on_one_rank_are_uneven_work_and_no_slow_gpu(tmp_path, seed, ranks_n):
    busiest = seed % ranks_n
    write_ranks(tmp_path, seed, ranks_n=ranks_n, pace={busiest: EXPERTS})
    by_rule = findings_of(quick("tail_stats", tmp_path))
    (finding,) = by_rule.values()
    assert (finding["rule"], finding["rank"]) == ("persistent_straggler", busiest)
    assert re.search(r"1\.(59|60|61) times", finding["details"])
    assert finding["title"].endswith("it has more work in `experts_up` and 1 more kernel")
    # Spread over all ranks, its own share comes back.
    even = 0.6 * 110_000 * STEPS * (ranks_n - 1) / ranks_n
    assert finding["gain_ns"] == pytest.approx(even, rel=0.05)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ranks_n", [2, 4])
def test_a_gpu_that_is_slow_in_all_kernels_is_slow(tmp_path, seed, ranks_n):
    slow = seed % ranks_n
    write_ranks(tmp_path, seed, ranks_n=ranks_n, pace={slow: 1.2})
    by_rule = findings_of(quick("tail_stats", tmp_path))
    (finding,) = by_rule.values()
    assert (finding["rule"], finding["rank"]) == ("persistent_straggler", slow)
    # None of the difference is lost, with two ranks either.
    more = float(re.search(r"compute ([\d.]+) % longer", finding["title"])[1])
    assert more == pytest.approx(20, abs=1)
    assert finding["gain_ns"] == pytest.approx(0.2 * USUAL_NS.sum() * STEPS, rel=0.05)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ranks_n", [2, 4])
def test_a_host_that_launches_late_is_named_with_the_idle_time_of_its_gpu(tmp_path, seed, ranks_n):
    late = seed % ranks_n
    write_ranks(tmp_path, seed, ranks_n=ranks_n, late={late: lambda _: LATE_NS})
    tables = quick("tail_stats", tmp_path)
    by_rule = findings_of(tables)
    assert GENERIC & set(by_rule) == set()
    finding = by_rule["persistent_straggler"]
    assert (finding["rank"], finding["severity"]) == (late, "high")
    assert finding["title"].endswith("is a straggler: its host is late")
    assert finding["gain_basis"] == "idle"
    # The step before the first kernel is outside of the window; a fix gains what is in it.
    assert finding["gain_ns"] == pytest.approx((STEPS - 1) * LATE_NS, rel=0.05)
    assert finding["details"].startswith("Its GPU is idle for")
    assert tables["findings"]["rule"].iloc[0] == "persistent_straggler"
    assert not tables["findings"]["recommendation"].str.contains("No rank is to blame").any()
    idle = tables["tail_ranks"].set_index("rank")["idle_ns"]
    # Before the first step there is no window yet.
    assert idle[late] - idle.drop(late).median() == pytest.approx((STEPS - 1) * LATE_NS, rel=0.02)


def test_both_stragglers_are_in_the_answer_with_the_time_of_the_transient_one(tmp_path):
    burst = range(12, 16)
    late = {1: lambda _: 30_000, 3: lambda step: 300_000 if step in burst else 0}
    write_ranks(tmp_path, 3, late=late)
    tables = quick("tail_stats", tmp_path)
    ranks = tables["stragglers"].set_index("rank")
    assert ranks["pattern"].to_dict() == {1: "persistent", 3: "transient", 0: "none", 2: "none"}
    text = answer(tables)
    assert "rank 1 is a straggler: its host is late" in text
    match = re.search(r"^Rank 3 is a straggler from ([\d.]+) s to ([\d.]+) s:", text)
    low, high = (round(float(seconds) * 1e9) for seconds in match.groups())
    straggler = tables["stragglers"].set_index("rank").loc[3]
    assert (low, high) == (straggler["burst_start_ns"], straggler["burst_end_ns"])
    # Four fifths of four equal latenesses are all of them.
    reduces = tables["collectives"].sort_values("first_start_ns")
    firsts = reduces["first_start_ns"].tolist()
    # Clocks are aligned by the ends of collectives, which differ by 200 ns.
    assert abs(low - firsts[burst[0]]) <= 200
    assert firsts[burst[-1]] < high < firsts[burst[-1] + 1]


def test_ranks_that_are_alike_are_not_blamed(tmp_path):
    write_ranks(tmp_path, 4)
    by_rule = findings_of(quick("tail_stats", tmp_path))
    assert not {
        "persistent_straggler",
        "transient_straggler",
        "slow_throughout",
        "uneven_work",
    } & set(by_rule)
