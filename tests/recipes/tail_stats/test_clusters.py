"""Outliers that come together are found and named; those that do so by nature are not."""

from __future__ import annotations

import numpy as np
import pytest
from effort import seeds
from results import rows, tables_of
from trace_builder import TraceBuilder


def tables(output, *inputs, options=()):
    return tables_of(output, *inputs, options=options, recipe="tail_stats")


def write(path, names, kernel, durations, starts):
    """Write a rank; `kernel` holds positions in `names`."""
    order = np.argsort(starts, kind="stable")
    ends = starts + durations
    builder = TraceBuilder(hostname="node0", system_clock_ns=7)
    builder.kernels(names, kernel[order], start_ns=starts[order], end_ns=ends[order])
    return builder.write_sqlite(path)


def found(frames):
    findings = frames["findings"]
    # What a rank gains that nobody waits for is not known; it is another finding.
    return findings[findings["gain_ns"].notna()].to_dict("records")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """Four ranks whose launches take 4 us; on rank 2 eight in a row take 20 us, and two later."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(4):
        durations = np.full(2_000, 4_000)
        if rank == 2:
            durations[[*range(1_000, 1_008), 1_500, 1_800]] = 20_000
        else:
            durations[[300 + 100 * rank, 1_100 + 100 * rank]] = 20_000
        starts = 1_000 + np.cumsum(durations + 1_000) - durations
        write(folder / f"rank{rank}.sqlite", ["k"], starts * 0, durations, starts)
    return tables(folder / "out", folder)


def test_outliers_that_come_together_are_found_with_rank_and_window(disturbed):
    columns = "rank ranks_n ranks outliers_n kernels_n name excess_ns likely_cause"
    expected = [(2, 1, "2", 8, 1, "k", 8 * 16_000, "ran alone")]
    assert rows(disturbed["outlier_clusters"], columns) == expected
    # 1,000 launches of 4 us and as many gaps of 1 us come before; 8 of 20 us and 7 gaps follow.
    window = rows(disturbed["outlier_clusters"], "window_start_ns window_end_ns")
    assert window == [(5_002_000, 5_002_000 + 8 * 20_000 + 7 * 1_000)]


def test_the_finding_names_the_rank_and_the_time_and_no_other_speaks_of_it(disturbed):
    (burst,) = found(disturbed)
    assert burst["rule"] == "outlier_cluster"
    assert (burst["rank"], burst["window_start_ns"]) == (2, 5_002_000)
    assert burst["title"] == "8 launches over twice their median on rank 2 within 167 us"
    assert (burst["gain_ns"], burst["severity"]) == (8 * 16_000, "low")
    assert "clocks, temperature, power" in burst["recommendation"]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks_n", "launches_n"), [(4, 1_000), (4, 120), (1, 1_000)])
def test_a_window_in_which_calls_of_one_rank_take_five_times_as_long_is_a_burst(
    ranks_n, launches_n, tmp_path
):
    # 22 launches, all of one length, within 46 ms: on a GPU that idles most of the time, and also
    # where they are so many of all that they look like another kind of work.
    first = launches_n // 2
    for rank in range(ranks_n):
        starts = 2_000_000 * np.arange(launches_n)
        durations = 100_000 + (7 * np.arange(launches_n) + rank) % 11
        if rank == ranks_n - 1:
            durations[first : first + 22] = 500_000
        write(tmp_path / f"rank{rank}.sqlite", ["k"], starts * 0, durations, starts)
    clusters = tables(tmp_path / "o", tmp_path, options=["--top", "50"])["outlier_clusters"]
    assert rows(clusters, "rank outliers_n window_start_ns") == [
        (ranks_n - 1, 22, 2_000_000 * first)
    ]


@pytest.mark.parametrize("seed", seeds(4, in_ci=1))
def test_outliers_milliseconds_apart_are_one_burst_with_its_window(tmp_path, seed):
    rng = np.random.default_rng(seed)
    # A launch each 400 us on two ranks; 16 of the 90 in 36 ms of rank 1 take thrice as long.
    at = int(rng.integers(1_000, 4_000))
    # Six of each rank by themselves do so too, none of them near these.
    apart = np.delete(np.arange(2, 5_000), np.s_[at - 300 : at + 390])
    for rank in range(2):
        durations = 100_000 + rng.integers(0, 2_000, 5_000)
        scattered = rng.choice(apart, 6, replace=False)
        burst = at + np.sort(rng.choice(90, 16, replace=False))
        durations[scattered] *= 3
        durations[burst] *= 3 if rank else 1
        starts = 400_000 * np.arange(5_000)
        write(tmp_path / f"rank{rank}.sqlite", ["k"], starts * 0, durations, starts)
    frames = tables(tmp_path / "o", tmp_path)
    ((rank, low, high, outliers_n),) = rows(
        frames["outlier_clusters"], "rank window_start_ns window_end_ns outliers_n"
    )
    assert rank == 1
    assert 14 <= outliers_n <= 16
    assert abs(low - 400_000 * burst[0]) <= 6_000_000
    assert abs(high - 400_000 * burst[-1]) <= 6_000_000
    # 3.2 ms of 2 s are not worth a finding.
    assert found(frames) == []


def test_a_burst_over_kernels_and_ranks_is_one_about_the_rank_that_loses_most(tmp_path):
    # Two kernels in turn; for 20 launches ranks 1 and 2 take thrice and five times as long.
    for rank in range(4):
        kernel = np.arange(1_000) % 2
        durations = 10_000 + 2_000 * kernel
        durations[450:470] *= (1, 3, 5, 1)[rank]
        starts = 20_000 + 80_000 * np.arange(1_000)
        write(tmp_path / f"rank{rank}.sqlite", ["a", "b"], kernel, durations, starts)
    frames = tables(tmp_path / "o", tmp_path, options=["--top", "100"])
    assert rows(frames["outlier_clusters"], "rank ranks outliers_n kernels_n name excess_ns") == [
        (2, "1, 2", 40, 2, "b", 10 * 4 * (10_000 + 12_000))
    ]
    (burst,) = found(frames)
    assert burst["title"] == "40 launches over twice their median on 2 ranks within 1.58 ms"
    assert burst["gain_ns"] == 10 * 4 * (10_000 + 12_000)


@pytest.mark.slow
def test_bursts_of_every_step_are_one_finding(tmp_path):
    for rank in range(3):
        durations = np.random.default_rng(rank).integers(9_900, 10_100, 5_000)
        for first in range(300, 5_000, 800) if rank == 1 else []:
            durations[first : first + 120 : 2] = 28_000
        starts = 1_000_000 + 30_000 * np.arange(5_000)
        write(tmp_path / f"rank{rank}.sqlite", ["k"], starts * 0, durations, starts)
    frames = tables(tmp_path / "o", tmp_path, options=["--top", "1000"])
    assert len(frames["outlier_clusters"]) == 6
    (burst,) = found(frames)
    assert burst["title"].endswith("on rank 1 within 3.57 ms, the largest of 6")
    assert burst["gain_ns"] == frames["outlier_clusters"]["excess_ns"].sum()


@pytest.mark.parametrize("seed", seeds(4, in_ci=1))
def test_outliers_of_a_kernel_that_runs_in_a_short_time_only_are_no_burst(tmp_path, seed):
    rng = np.random.default_rng(seed)
    # `prefill` runs 300 times within 45 ms of 2 s, and 12 of these anywhere among them are slow.
    decode = 400_000 * np.arange(5_000)
    prefill = 1_000_000_000 + 150_000 * np.arange(300) + 20_000
    durations = np.concatenate((np.full(5_000, 300_000), np.full(300, 10_000)))
    durations[5_000 + 2 + rng.choice(298, 12, replace=False)] *= rng.integers(3, 9, 12)
    durations[rng.choice(np.arange(2, 5_000), 6, replace=False)] *= 3
    starts = np.concatenate((decode, prefill))
    kernel = (np.arange(5_300) >= 5_000).astype(int)
    path = write(tmp_path / "t.sqlite", ["decode", "prefill"], kernel, durations, starts)
    frames = tables(tmp_path / "o", path)
    assert frames["tails"].set_index("name").loc["prefill", "outliers_n"] == 12
    assert frames["outlier_clusters"].empty


SPREAD, MODES, WARM, WAITS = "spread evenly", "two modes", "warm-up", "communication"


@pytest.mark.slow
@pytest.mark.parametrize("innocent", [SPREAD, MODES, WARM, WAITS])
def test_what_comes_together_by_nature_or_not_at_all_is_no_burst(innocent, tmp_path):
    name = "ncclDevKernel_AllReduce_Sum" if innocent == WAITS else "k"
    slow = {
        SPREAD: np.arange(30, 3_000, 75),
        MODES: 1_500 + np.arange(150),  # 5 %: prefill of a prompt, on every rank
        WARM: np.arange(2),
        WAITS: 1_500 + np.arange(20),
    }[innocent]
    for rank in range(3):
        durations = np.random.default_rng(rank).integers(9_900, 10_100, 3_000)
        durations[slow] = 40_000
        starts = 1_000_000 + 60_000 * np.arange(3_000)
        write(tmp_path / f"rank{rank}.sqlite", [name], starts * 0, durations, starts)
    frames = tables(tmp_path / "o", tmp_path, options=["--top", "1000"])
    assert frames["tails"]["outliers_n"].sum() == 3 * slow.size
    assert frames["outlier_clusters"].empty
