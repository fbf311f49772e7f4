"""What captures and clocks do to collectives: cuts, windows, noise, limits, and the demo set."""

from __future__ import annotations

import numpy as np
from results import rows
from tail_ranks import ENDS, RECIPE, N, tail_tables, write_ranks

from nsys_llm.analyses.collectives import lanes as collective_lanes
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.testing.demo import write_demo
from nsys_llm.testing.trace_builder import TraceBuilder

LENGTHS = [[9_001, 4_000], [5_000, 8_000, 3_000], [7_000, 2_000, 2_000, 6_000]]


def test_windows_and_captures_that_cut_are_counted_apart(tmp_path):
    without = {0: {0, 1}, 1: {13, 14}, 2: {7}}
    tables = tail_tables(write_ranks(tmp_path / "ranks", LENGTHS, without=without), tmp_path / "o")
    # All ranks have 2 to 12 but 7. Rank 0 has 13 and 14 beyond, rank 1 has 0 and 1, rank 2 both.
    columns = "rank kernels_n matched_n cut_n unmatched_n"
    assert rows(tables["collective_coverage"], columns) == [
        (0, 13, 10, 2, 1),
        (1, 13, 10, 2, 1),
        (2, 14, 10, 4, 0),
    ]
    assert tables["collectives"]["last_end_ns"].tolist() == [
        end for number, end in enumerate(ENDS) if 2 <= number <= 12 and number != 7
    ]


def test_a_time_window_counts_what_starts_in_it_on_every_rank(tmp_path):
    # In [79, 400) us: rank 0 comes to the third at 75, before it, and rank 1 at 80. To the tenth
    # both come inside, at 371 and 376, to the next outside.
    folder = write_ranks(tmp_path / "ranks", [[9_000], [4_000]])
    tables = tail_tables(folder, tmp_path / "o", "--filter-time", "79000/400000")
    assert tables["collectives"]["last_end_ns"].tolist() == ENDS[3:10]
    columns = "rank kernels_n matched_n cut_n unmatched_n"
    assert rows(tables["collective_coverage"], columns) == [(0, 8, 7, 1, 0), (1, 8, 7, 1, 0)]


def test_without_alignment_the_times_are_taken_as_they_are(tmp_path):
    folder = write_ranks(tmp_path / "ranks", [[9_000], [4_000]], ahead_ns={1: 2_000})
    plain_run = tail_tables(folder, tmp_path / "a")
    raw = tail_tables(folder, tmp_path / "b", "--disable-alignment")
    assert set(plain_run["collectives"]["wait_ns"]) == {5_000}
    # 2 us later by the clock: 9 - 4 + 2.
    assert set(raw["collectives"]["wait_ns"]) == {7_000}
    assert rows(raw["rank_clocks"], "source ahead_ns") == [("off", 0), ("off", 0)]


def test_lateness_within_what_clocks_can_tell_names_nobody(tmp_path):
    # Ends differ by 0, 3 or 6 us from one to the next, and rank 1 comes 1 us later: noise.
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        trace = TraceBuilder(hostname=f"node{rank}")
        for number, end in enumerate(ENDS):
            own_end = end + (3_000 * (number % 3) if rank else 0)
            trace.kernel(N, start_ns=end - 9_000 + 1_000 * rank + 3_000, end_ns=own_end)
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    tables = tail_tables(folder, tmp_path / "o")
    # Differences 0, 3, 6: the median is 3, and two thirds lie 3 us from it.
    assert rows(tables["rank_clocks"], "ahead_ns residual_ns")[1] == (3_000, 3_000)
    assert tables["rank_verdicts"]["verdict"].isna().all()
    assert tables["stragglers"]["late_n"].sum() == 0
    assert "clocks_too_uncertain" in set(tables["findings"]["rule"])


def test_a_rank_without_collectives_takes_no_part(tmp_path):
    folder = write_ranks(tmp_path / "ranks", [[9_000], [4_000]])
    TraceBuilder().kernel("gemm", start_ns=0, end_ns=9).write_sqlite(folder / "rank2.sqlite")
    tables = tail_tables(folder, tmp_path / "o")
    assert tables["communicators"]["communicator"].tolist() == ["0-1"]
    assert set(tables["collective_coverage"]["rank"]) == {0, 1}
    assert len(tables["files"]) == 3


def test_ranks_without_any_collective_give_typed_empty_tables(rank_set, tmp_path):
    tables = tail_tables(rank_set, tmp_path / "o")
    for name in ("communicators", "collectives", "stragglers", "wait_map", "rank_clocks"):
        assert len(tables[name]) == 0
        columns = load_manifest(RECIPE).table(name).columns
        assert list(tables[name].columns) == [column.name for column in columns]


def test_more_collectives_than_are_sent_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(collective_lanes, "MOST_COLLECTIVES", 12)
    tables = tail_tables(write_ranks(tmp_path / "ranks", [[9_000], [4_000]]), tmp_path / "o")
    assert len(tables["collectives"]) == 12
    columns = "kernels_n matched_n cut_n unmatched_n over_limit_n"
    assert rows(tables["collective_coverage"], columns) == [(15, 12, 0, 0, 3)] * 2


def test_the_demo_s_slow_rank_is_named_in_both_runs(tmp_path):
    demo = write_demo(tmp_path / "demo", scale=0.1)
    for name in ("baseline", "after"):
        tables = tail_tables(tmp_path / "demo" / name, tmp_path / name)
        worst = tables["stragglers"].iloc[0]
        assert worst["rank"] == demo.planted.slow_rank
        assert worst["caused_pct"] > 90
        high = tables["findings"].iloc[0]
        assert (high["rule"], high["rank"]) == ("slow_gpu", demo.planted.slow_rank)
        # Captures began 1.31, 0.42 and 2.05 ms later; wall clocks are wrong by up to 700 ns.
        ahead = tables["rank_clocks"]["ahead_ns"].to_numpy()
        assert np.abs(ahead - [0, -1_310_000, -420_000, -2_050_000]).max() < 700
        counts = tables["collective_coverage"]
        assert (counts["matched_n"] == counts["kernels_n"]).all()
        assert int(tables["stragglers"]["caused_wait_ns"].sum()) == int(
            tables["collectives"]["wait_ns"].sum()
        )
