"""Tails by kernel and launch configuration: numbers that are known by hand, on single digits."""

from __future__ import annotations

import numpy as np
import pytest
from results import plain, rows, spread, tables_of
from trace_builder import TraceBuilder

from nsys_llm.run.cli import main

RECIPE = "tail_stats"
WIDE = {"grid": (4, 2, 1), "block": (64, 1, 1), "dynamic_shared_bytes": 9}


def tables(output, *inputs, options=()):
    return tables_of(output, *inputs, options=options, recipe=RECIPE)


def trace(*launches, name="k", gap_ns=0, **config):
    """Kernels of these durations, one after the other from 100 ns on."""
    builder, at_ns = TraceBuilder(), 100
    for duration in launches:
        builder.kernel(name, start_ns=at_ns, duration_ns=duration, **config)
        at_ns += duration + gap_ns
    return builder


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """Two ranks with one kernel in two configurations, and another kernel on rank 0."""
    folder = tmp_path_factory.mktemp("ranks")
    first = trace(4, 4, 9).kernel("k", start_ns=200, duration_ns=40, **WIDE)
    first.kernel("other", start_ns=300, duration_ns=6)
    first.write_sqlite(folder / "rank0.sqlite")
    second = trace(3, 5).kernel("k", start_ns=200, duration_ns=41, **WIDE)
    second.write_sqlite(folder / "rank1.sqlite")
    return tables(folder / "out", folder)


def test_statistics_of_a_configuration_are_over_all_ranks_and_those_of_numpy(two_ranks):
    tails = two_ranks["tails"]
    # Median 4: 5 beyond in the 9, 1 in the 5. Wide: median 40.5, half a nanosecond, dropped.
    columns = "name config launches_n ranks_n total_ns excess_ns outliers_n outlier_excess_ns"
    assert rows(tails, f"{columns} outlier") == [
        ("k", "1x1x1 / 32x1x1", 5, 2, 25, 6, 1, 5, True),
        ("k", "4x2x1 / 64x1x1 / 9 B", 2, 2, 81, 0, 0, 0, False),
        ("other", "1x1x1 / 32x1x1", 1, 1, 6, 0, 0, 0, False),
    ]
    assert tails["label"].tolist()[1] == "k [4x2x1 / 64x1x1 / 9 B]"
    columns = "mean_ns min_ns q1_ns p50_ns q3_ns p99_ns max_ns"
    expected = spread([4, 4, 9, 3, 5], [40, 41], [6], form=columns)
    assert plain(tails[columns.split()]) == expected
    assert tails["total_pct"].tolist() == [100 * n / 112 for n in (25, 81, 6)]
    assert tails["max_p50"].tolist() == [9 / 4, 41 / 40.5, 1.0]


def test_a_rank_is_measured_by_the_median_of_all(two_ranks):
    columns = "rank name config launches_n p50_ns all_p50_ns p50_all_p50 excess_ns outliers_n"
    thin, wide = "1x1x1 / 32x1x1", "4x2x1 / 64x1x1 / 9 B"
    assert rows(two_ranks["rank_tails"], columns) == [
        (0, "k", thin, 3, 4.0, 4.0, 1.0, 5, 1),
        (0, "k", wide, 1, 40.0, 40.5, 40 / 40.5, 0, 0),
        (0, "other", thin, 1, 6.0, 6.0, 1.0, 0, 0),
        (1, "k", thin, 2, 4.0, 4.0, 1.0, 1, 0),
        (1, "k", wide, 1, 41.0, 40.5, 41 / 40.5, 0, 0),
    ]
    # On rank 0 4, 4 and 9 follow each other from 100 ns on.
    assert rows(two_ranks["rank_tails"], "first_ns longest_start_ns")[0] == (4, 108)
    columns = "rank device_id launches_n launches_pct total_ns outliers_n outliers_pct excess_ns"
    assert rows(two_ranks["tail_ranks"], columns) == [
        (0, 0, 5, 100 * 5 / 8, 63, 1, 100.0, 5),
        (1, 0, 3, 100 * 3 / 8, 49, 0, 0.0, 1),
    ]


def test_constant_kernels_are_never_flagged_however_high_their_score(tmp_path):
    starts = np.arange(200) * 2_000_000
    builder = TraceBuilder().kernels(
        ["healthy"], np.zeros(200, dtype=int), start_ns=starts, end_ns=starts + 1_000_000
    )
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    flags = "outlier systematic hidden shape_mix second_mode outliers_n excess_ns"
    assert rows(frames["tails"], flags) == [(False, False, False, False, False, 0, 0)]
    # 1000 us * log2(201), the number of the peer survey.
    assert round(frames["tails"]["tail_score"][0]) == 7651
    assert frames["outliers"].empty
    assert set(frames["findings"]["scope"]) <= {"rank"}  # no API calls are there, and no more


@pytest.mark.parametrize(
    ("slow_n", "all_n", "flags"),
    [
        # p99 is the 99th of 100 values, and a bit of the 100th: 4 + 0.01 * 5.
        (1, 100, (True, False)),
        (2, 100, (True, True)),
        (2, 99, (True, False)),
        (0, 100, (False, False)),
    ],
)
def test_flags_follow_their_definitions(tmp_path, slow_n, all_n, flags):
    builder = trace(*[4] * (all_n - slow_n), *[9] * slow_n)
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    assert rows(frames["tails"], "outlier systematic") == [flags]


@pytest.mark.parametrize(("other_ns", "hidden"), [(1_683, False), (1_684, True)])
def test_a_flagged_kernel_below_one_percent_of_the_time_is_hidden(tmp_path, other_ns, hidden):
    # 17 of 1,700 ns are 1 %: not hidden; of 1,701 they are.
    builder = trace(4, 4, 9).kernel("big", start_ns=500, duration_ns=other_ns)
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    assert rows(frames["tails"], "name hidden") == [("k", hidden), ("big", False)]


@pytest.mark.parametrize(("wide_n", "mix"), [(5, True), (4, False)])
def test_a_mix_of_shapes_is_seen_as_a_mix_where_each_has_enough_launches(tmp_path, wide_n, mix):
    builder = trace(*[4] * 6)
    for index in range(wide_n):
        builder.kernel("k", start_ns=1_000 + 100 * index, duration_ns=40, **WIDE)
    builder.kernel("other", start_ns=9_000, duration_ns=7)
    tails = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))["tails"]
    columns = "launches_n max_p50 shape_mix outlier"
    assert rows(tails, columns) == [
        (wide_n, 1.0, mix, False),
        (6, 1.0, mix, False),
        (1, 1.0, False, False),
    ]


def test_a_window_clips_the_time_and_counts_what_starts_in_it(tmp_path):
    builder = trace(10, 10, 30, 10)  # from 100, 110, 120 and 150 on
    path = builder.write_sqlite(tmp_path / "t.sqlite")
    frames = tables(tmp_path / "o", path, options=["--filter-time", "105/155"])
    # Inside: 5, 10, 30 and 5 ns; three start in it.
    columns = "launches_n total_ns max_ns p50_ns excess_ns outliers_n"
    assert rows(frames["tails"], columns) == [(3, 50, 30, 10.0, 20, 1)]
    # How many launches came before is that of the report, not of the window.
    columns = "start_ns launch config_launch"
    assert rows(frames["outliers"], columns) == [(120, 2, 2)]


def test_names_follow_the_option_and_communication_the_demangled_name(tmp_path):
    name = "ncclDevKernel_AllReduce_Sum(ncclArgs)"
    builder = trace(4, name=name).kernel("void plain<int>(int)", start_ns=300, duration_ns=4)
    path = builder.write_sqlite(tmp_path / "t.sqlite")
    tails = tables(tmp_path / "o", path, options=["--base"])["tails"]
    expected = [("ncclDevKernel_AllReduce_Sum", True), ("plain", False)]
    assert sorted(rows(tails, "name communication")) == expected


def test_a_rank_that_is_slow_throughout_has_excess_though_it_is_even(tmp_path):
    trace(4, 4, 4).write_sqlite(tmp_path / "rank0.sqlite")
    trace(9, 9).write_sqlite(tmp_path / "rank1.sqlite")
    frames = tables(tmp_path / "o", tmp_path)
    # The median of 4, 4, 4, 9 and 9 is 4: rank 1 is beyond it by 2 * 5 ns.
    columns = "rank p50_ns all_p50_ns excess_ns outliers_n outlier_excess_ns"
    assert rows(frames["rank_tails"], columns) == [(0, 4.0, 4.0, 0, 0, 0), (1, 9.0, 4.0, 10, 2, 10)]


def test_a_report_without_kernels_in_the_window_gives_empty_tables(tmp_path):
    path = trace(4).write_sqlite(tmp_path / "t.sqlite")
    frames = tables(tmp_path / "o", path, options=["--filter-time", "5000/6000"])
    assert all(frames[name].empty for name in ("tails", "rank_tails", "outliers"))
    assert main([RECIPE, "--input", str(path), "--output", str(tmp_path / "p"), "--quiet"]) == 0
