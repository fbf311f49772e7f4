"""Verdicts from what devices did, without any profile: equal ranks, one slow rank, and no peers."""

from __future__ import annotations

import numpy as np
import pytest
from effort import over_seeds, seeds

from nsys_llm.job.ranks.judge import judged
from nsys_llm.taxonomy.categories import load_rules
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.wall import DeviceWall, DeviceWork, JobWalls

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NAMES = ("gemm", "norm", NCCL)
STEP_NS = 10_000_000


def job(compute_ns, *, launches=None, steps=True):
    """Return a job of one device a rank.

    Args:
        compute_ns: Shape (ranks, steps).
        launches: Of each rank, launches of each of `NAMES` with its grid and time.
        steps: Whether windows are steps.
    """
    ranks, walls = [], {}
    for number, times in enumerate(np.asarray(compute_ns, dtype=np.int64)):
        key = RankKey(f"rank{number}", 7)
        ranks.append(Rank(key, number, f"rank{number}", "file name", None))
        edges = STEP_NS * np.arange(times.size + 1)
        whole = np.ones(times.size, dtype=bool)
        total_ns = int(times.sum())
        rows = [(100, 64, total_ns // 2), (100, 8, total_ns // 2), (50, 24, 1_000_000)]
        if launches is not None:
            rows = launches[number]
        table = [(code, grid, 1, 1, 128, 1, 1, n, ns) for code, (n, grid, ns) in enumerate(rows)]
        work = DeviceWork(
            np.column_stack((edges[:-1], edges[1:])), whole, steps, times, 0 * times, NAMES,
            np.array(table, dtype=np.int64), has_shapes=True,
        )  # fmt: skip
        walls[key, 0] = DeviceWall(
            device_id=0, span_start_ns=0, span_end_ns=int(edges[-1]), span_ns=int(edges[-1]),
            kernels_ns={"gemm": total_ns}, graphs_ns=0,
            communication_ns=int(edges[-1]) - total_ns, copies_ns=0, profiler_ns=0,
            not_recorded_ns=0, no_work_ns=0, start_up_ns=0, load_ns=0, idle_ns=0, work=work,
        )  # fmt: skip
    return JobWalls(tuple(ranks), walls, {}, load_rules("generic"))


def noisy(seed, ranks_n, steps_n):
    random = np.random.default_rng(seed)
    usual = 6_000_000 * (1 + 0.05 * random.standard_normal(steps_n))
    return usual * np.exp(0.01 * random.standard_normal((ranks_n, steps_n)))


@pytest.mark.parametrize("ranks_n", [2, 3, 8, 16, 64])
@over_seeds(range(20), each_n=20)
def test_of_equal_ranks_nobody_is_named(ranks_n, seed):
    verdicts = judged(job(noisy(seed, ranks_n, 30)))
    assert {row.verdict for row in verdicts} == {None}
    assert {row.peers_n for row in verdicts} == {ranks_n}


@pytest.mark.parametrize("ranks_n", [2, 3, 8, 64])
@pytest.mark.parametrize("seed", seeds(5, in_ci=2))
def test_a_slow_gpu_is_named_with_what_the_others_lose(ranks_n, seed):
    times = noisy(seed, ranks_n, 30)
    slow = seed % ranks_n
    times[slow] *= 1.1
    verdicts = judged(job(times))
    assert [row.rank for row in verdicts if row.verdict] == [slow]
    row = verdicts[slow]
    assert (row.verdict, row.kernel) == ("slow_gpu", None)
    assert row.more_pct == pytest.approx(10, abs=1)
    # Nothing is matched, so nobody knows who waits for it.
    assert row.about_ns is None
    assert row.bound_ns == pytest.approx(0.1 * 6_000_000 * 30, rel=0.15)


def test_one_longer_kernel_is_more_work_and_its_share_stays():
    times = noisy(0, 4, 30)
    extra = np.zeros(4)
    extra[2] = 0.2 * times[2].sum()
    times[2] *= 1.2
    launches = [
        [(100, 64, int(row.sum() / 2 + more)), (100, 8, int(row.sum() / 2)), (50, 24, 10**6)]
        for row, more in zip(times, extra, strict=True)
    ]
    launches[2][1] = (100, 8, launches[0][1][2])
    row = judged(job(times, launches=launches))[2]
    assert (row.verdict, row.kernel) == ("more_work", "gemm")
    assert row.bound_ns == pytest.approx(0.75 * 0.2 * 6_000_000 * 30, rel=0.2)
    # The kernel takes 60 % longer, all of its compute 20 %.
    assert row.kernel_pct == pytest.approx(60, rel=0.1)
    assert row.more_pct == pytest.approx(20, rel=0.1)


def test_servers_with_other_requests_are_no_peers():
    launches = [[(100, 64 * (1 + rank), 10**8), (100, 8, 10**8), (0, 0, 0)] for rank in range(3)]
    times = noisy(0, 3, 30)
    times[1] *= 1.5
    verdicts = judged(job(times, launches=launches))
    assert {(row.verdict, row.reason, row.peers_n) for row in verdicts} == {(None, "no_peers", 1)}


@pytest.mark.parametrize(
    ("ranks_n", "steps_n", "reason"), [(1, 30, "one_rank"), (3, 2, "few_steps")]
)
def test_why_there_is_no_verdict(ranks_n, steps_n, reason):
    times = noisy(1, ranks_n, steps_n)
    times[0] *= 1.5
    assert {(row.reason, row.chance) for row in judged(job(times))} == {(reason, None)}


def test_steps_and_parts_are_not_compared():
    times = noisy(2, 3, 30)
    times[0] *= 1.5
    mixed = job(times)
    parts = job(times, steps=False)
    key = mixed.ranks[1].key, 0
    walls = {**mixed.walls, key: parts.walls[key]}
    verdicts = judged(JobWalls(mixed.ranks, walls, {}, mixed.rules))
    assert {row.reason for row in verdicts} == {"few_steps"}
