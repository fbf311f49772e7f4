"""What captures and clocks do to collectives: cuts, windows, noise, limits, and the demo set."""

from __future__ import annotations

import numpy as np
import pytest
from pipeline_world import SEND_RECV
from quick_run import quick
from results import rows
from tail_ranks import ENDS, N, tail_tables, write_ranks
from trace_builder import TraceBuilder

from nsys_llm.facts import lanes as collective_lanes
from nsys_llm.run.worker import load_analysis

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


def test_more_collectives_than_are_sent_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(collective_lanes, "MOST_COLLECTIVES", 12)
    tables = tail_tables(write_ranks(tmp_path / "ranks", [[9_000], [4_000]]), tmp_path / "o")
    assert len(tables["collectives"]) == 12
    columns = "kernels_n matched_n cut_n unmatched_n over_limit_n"
    assert rows(tables["collective_coverage"], columns) == [(15, 12, 0, 0, 3)] * 2


@pytest.mark.slow
def test_transfers_that_cannot_be_told_apart_are_said_and_have_no_sum(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(0)
    first = np.cumsum(rng.integers(400_000, 900_000, 200))
    for rank in range(6):
        rank_ends = np.sort(np.concatenate([first, first + 200_000])) if rank in (2, 3) else first
        rank_ends = first + 200_000 if rank > 3 else rank_ends
        trace = TraceBuilder(hostname="node")
        for end in rank_ends.tolist():
            late = int(rng.integers(0, 2_000))
            trace.kernel("gemm(int)", start_ns=end - 150_000, end_ns=end - 120_000)
            trace.kernel(SEND_RECV, start_ns=end - 90_000, end_ns=end + late, stream_id=9)
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    tables = quick("tail_stats", folder)
    assert tables["communicators"]["class"].tolist() == ["inconclusive"]
    assert tables["communicators"]["wait_ns"].tolist() == [0]
    assert tables["communicators"]["communicator"].tolist() == ["0-5"]
    said = tables["findings"].set_index("rule").loc["unmatched_collectives"]
    assert said["kind"] == "capture"
    assert said["details"].startswith("1,600 of 1,600;")
    assert "waits" not in load_analysis("tail_stats").answer(tables)
