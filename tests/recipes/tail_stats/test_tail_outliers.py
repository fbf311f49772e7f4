"""Outliers: what is around each is true, and those that come together are found."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from results import rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.facts.tails import kernels
from nsys_llm.numeric.grouping import equals_before_n
from nsys_llm.recipes.tail_stats.tables import medians

RECIPE = "tail_stats"
WIDE = {"grid": (4, 2, 1)}


def tables(output, *inputs, options=()):
    return tables_of(output, *inputs, options=options, recipe=RECIPE)


def launches(*durations_ns):
    builder = TraceBuilder()
    for index, duration_ns in enumerate(durations_ns):
        builder.kernel("k", start_ns=100 * index, duration_ns=duration_ns)
    return builder


@pytest.fixture(scope="module")
def busy_rank(tmp_path_factory):
    """A rank on which three launches of `k` take 9 ns in place of 4, each for another reason."""
    folder = tmp_path_factory.mktemp("rank")
    builder = TraceBuilder()
    builder.kernel("k", start_ns=100, end_ns=109, launch=(50, 60))  # the first one
    for start_ns in (200, 300, 400, 500, 600, 700):
        builder.kernel("k", start_ns=start_ns, duration_ns=4, launch=(start_ns - 9, start_ns - 5))
    # Beside a copy for 6 of 9 ns, 90 ns after the last one on its stream.
    builder.kernel("k", start_ns=794, end_ns=803, launch=(750, 760))
    builder.memcpy("HtoD", start_ns=797, end_ns=810, size_bytes=5, stream_id=9)
    # Beside communication for 5 of 9 ns and another kernel for 2.
    builder.kernel("k", start_ns=900, end_ns=909, launch=(880, 890))
    builder.kernel("ncclDevKernel_AllReduce", start_ns=890, end_ns=905, stream_id=8)
    builder.kernel("big", start_ns=907, end_ns=999, stream_id=9)
    builder.nvtx_ranges(["serve", "decode"], start_ns=[40, 740], end_ns=[1000, 770])
    builder.nvtx_ranges(["step"] * 3, start_ns=[870, 872, 874], end_ns=[871, 873, 875])
    builder.write_sqlite(folder / "rank0.sqlite")
    return tables(folder / "out", folder / "rank0.sqlite", options=["--step", "step"])


def test_what_is_around_an_outlier_is_told(busy_rank):
    columns = "start_ns launch state range graph_node beside likely_cause"
    shared, reduced = "shared the device with", "ncclDevKernel_AllReduce"
    assert rows(busy_rank["outliers"], columns) == [
        (100, 0, "first", "serve", False, None, "first launch"),
        (794, 7, "warm-up", "decode", False, "memcpy HtoD", f"{shared} copies"),
        (900, 8, "steady", "serve", False, reduced, f"{shared} communication"),
    ]
    columns = "kernels_beside_ns communication_beside_ns copies_beside_ns beside_pct"
    assert rows(busy_rank["outliers"], columns) == [
        (0, 0, 0, 0.0),
        (0, 0, 6, 100 * 6 / 9),
        (2, 5, 0, 100 * 5 / 9),
    ]
    numbers = rows(busy_rank["outliers"], "duration_ns p50_ns duration_p50 excess_ns")
    assert numbers == [(9, 4.0, 2.25, 5)] * 3


@pytest.mark.parametrize(("launched_in_step_n", "steps_n"), [(3, 3), (1, None)])
def test_ranges_that_hold_little_of_the_work_are_no_steps(tmp_path, launched_in_step_n, steps_n):
    # Three ranges of 10 ns; of four equal launches three are in one, or a single one is.
    builder = TraceBuilder()
    builder.nvtx_ranges(["op"] * 3, start_ns=[0, 100, 200], end_ns=[10, 110, 210])
    for launch in range(4):
        call_ns = 100 * launch + (5 if launch < launched_in_step_n else 50)
        builder.kernel("k", start_ns=call_ns + 10, duration_ns=4, launch=(call_ns, call_ns + 2))
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    assert rows(frames["tail_ranks"], "steps_n") == [(steps_n,)]


def test_without_steps_the_first_two_launches_of_a_configuration_are_warm_up(tmp_path):
    builder = launches(4, 9, 9, 4, 4, 4)
    builder.kernel("k", start_ns=900, duration_ns=4, **WIDE)
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    assert rows(frames["outliers"], "config_launch state") == [(1, "warm-up"), (2, "steady")]


def test_one_report_needs_no_clock_to_be_told_on_its_own(tmp_path):
    path = launches(4, 4, 4, 9).write_sqlite(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE TARGET_INFO_SESSION_START_TIME")
        database.commit()
    frames = tables(tmp_path / "o", path)
    assert frames["outliers"]["aligned_start_ns"].tolist() == [300]


@pytest.mark.parametrize("marked", [False, True], ids=["graph nodes", "phases"])
def test_one_kernel_in_decoding_and_in_a_prefill_is_no_tail(marked, tmp_path):
    # 4 ns in 60 decoding steps, one of them 9, and 90 ns in 6 prefills.
    builder, words = TraceBuilder(), {"decode": "generation_8(8)", "prefill": "generation_0(0)"}
    for index in range(66):
        kind = "prefill" if index % 11 == 5 else "decode"
        took_ns, at_ns = (90 if kind == "prefill" else 9 if index == 40 else 4), 1_000 * index
        node = None if marked or kind == "prefill" else 5
        times_ns = {"start_ns": at_ns + 30, "launch": (at_ns + 10, at_ns + 20)}
        builder.kernel("k", duration_ns=took_ns, graph_node_id=node, **times_ns)
        context = int(kind == "prefill")
        name = f"execute_context_{context}({64 * context})_{words[kind]}" if marked else "x"
        builder.nvtx(name, start_ns=at_ns, end_ns=at_ns + 25)
    frames = tables(tmp_path / "o", builder.write_sqlite(tmp_path / "t.sqlite"))
    columns = "launches_n p50_ns max_ns outliers_n graph_node phase"
    assert rows(frames["tails"], columns) == [
        (60, 4.0, 9, 1, not marked, "decode" if marked else None),
        (6, 90.0, 90, 0, False, "prefill" if marked else None),
    ]
    assert rows(frames["outliers"], "start_ns excess_ns") == [(40_030, 5)]


def test_what_is_slow_stands_before_two_kinds_of_work_and_communication(tmp_path):
    # Ten of 60 launches of `two` take 90 ns and none lies between: another kind of work.
    builder = TraceBuilder()
    for index in range(60):
        builder.kernel("two", start_ns=1_000 * index, duration_ns=90 if index % 6 == 5 else 4)
        for name, at_ns, long_ns in (("k", 400, 9), ("ncclDevKernel_AllReduce", 700, 120)):
            length_ns = long_ns if index == 30 else 4
            builder.kernel(name, start_ns=1_000 * index + at_ns, duration_ns=length_ns)
    path = builder.write_sqlite(tmp_path / "t.sqlite")
    outliers = tables(tmp_path / "o", path, options=["--top", "12"])["outliers"]
    assert rows(outliers, "name excess_ns likely_cause") == [
        ("k", 5, "ran alone"),
        *[("two", 86, "another kind of work")] * 10,
        ("ncclDevKernel_AllReduce", 116, "waits for other ranks"),
    ]


def test_top_bounds_the_list_and_not_the_counts(tmp_path):
    path = launches(*[4] * 8 + [9, 10, 11]).write_sqlite(tmp_path / "t.sqlite")
    frames = tables(tmp_path / "o", path, options=["--top", "2"])
    assert frames["outliers"]["duration_ns"].tolist() == [11, 10]
    assert frames["tails"]["outliers_n"].tolist() == [3]


@pytest.mark.parametrize("seed", range(20))
def test_what_began_before_is_counted_though_many_begin_at_once(seed):
    random = np.random.default_rng(seed)
    starts_ns = np.sort(random.integers(0, [3, 30, 1_000][seed % 3], 60))
    codes, rows = random.integers(0, [4, 40][seed % 2], 60), random.permutation(60)[:25]
    until = np.searchsorted(starts_ns, starts_ns[rows])
    assert equals_before_n(codes, codes[rows], until).tolist() == [
        int(((starts_ns < starts_ns[row]) & (codes == codes[row])).sum()) for row in rows
    ]


@pytest.mark.slow
def test_of_very_many_configurations_small_ones_are_one_row(tmp_path, monkeypatch):
    rng, folder = np.random.default_rng(5), tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        lengths = rng.integers(50, 100, (200, 4)) * np.where(rng.random((200, 4)) < 0.1, 9, 1)
        lengths[7, 0], lengths[9, 1 + rank] = 30_000, 20_000  # a first launch leads the list
        lengths[11, : 2 - 2 * rank] = 700  # much in outliers, none of which is listed
        lengths[13] = 1_000  # 2 % of a rank, half of it on each of its devices
        builder = TraceBuilder().kernel("ncclDevKernel_AllReduce", start_ns=1, duration_ns=2)
        for row, length_ns in enumerate(lengths.ravel().tolist()):
            place = {"start_ns": 40_000 * row + 1_000, "device_id": row // 2 % 2 * (row // 4 != 9)}
            builder.kernel(f"k{row // 4}", duration_ns=length_ns, **place)
        builder.write_sqlite(folder / f"rank{rank}.sqlite")
    every = tables(tmp_path / "all", folder, options=["--top", "6"])
    monkeypatch.setattr(kernels, "MOST_CANDIDATES", 200)
    for name, limit in (("MANY", 100), ("MOST_SLOW", 6), ("LEAST_PCT", 2)):
        monkeypatch.setattr(medians, name, limit)
    some = tables(tmp_path / "some", folder, options=["--top", "6"])
    for name in ("outliers", "tail_ranks", "findings"):
        assert some[name].equals(every[name])
    ranks = every["rank_tails"].groupby(["name", "rank"])["total_ns"].sum()
    large = ranks[ranks >= 0.02 * ranks.groupby("rank").transform("sum")].reset_index()
    slow = every["rank_tails"].nlargest(6, "outlier_excess_ns")["name"]
    names = {*large["name"], *slow, *every["outliers"]["name"], *every["tails"]["name"][:6]}
    for name in ("tails", "rank_tails"):
        kept = every[name][every[name]["name"].isin({*names, "ncclDevKernel_AllReduce"})]
        # Of fewer launches known fewer are in bursts.
        kept = kept.reset_index(drop=True).assign(burst_pct=0)
        assert some[name][: len(kept)].assign(burst_pct=0).equals(kept)
    assert len(some["rank_tails"]) == len(kept)
    rest, sums = some["tails"].iloc[-1], ["launches_n", "total_ns", "excess_ns", "outliers_n"]
    assert rest["label"] == f"(other kernels) [{202 - len(some['tails'])} configurations]"
    assert some["tails"][sums].sum().equals(every["tails"][sums].sum())


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_first_launches_are_compared_with_later_ones_and_are_no_tail(seed, tmp_path):
    first_ns = np.random.default_rng(seed).integers(300_000, 500_000, 4)
    for rank, one_ns in enumerate(first_ns.tolist()):
        # Two launches a rank: the median of all is in the middle of first and later ones.
        trace = TraceBuilder(hostname="node")
        trace.kernel("k", start_ns=1_000, duration_ns=one_ns)
        trace.kernel("k", start_ns=1_000_000, duration_ns=10_000)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    found = tables(tmp_path / "o", tmp_path)["findings"]
    assert set(found["kind"]) <= {"capture"}
