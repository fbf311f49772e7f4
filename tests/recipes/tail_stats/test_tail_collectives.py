"""Collectives and stragglers of tail_stats through the public run; the truth is planted by hand."""

from __future__ import annotations

import pytest
from results import rows
from tail_ranks import ENDS, V, tail_tables, write_ranks
from trace_builder import TraceBuilder


def test_tables_hold_one_collective_of_three_ranks(tmp_path):
    # One report. Device 0 [10, 30), device 1 [14, 29), device 2 [20, 32): the last comes at 20, the
    # first leaves at 29. Waiting 10 + 6 + 0, transfer 9 each, the rest 1 + 0 + 3.
    trace = TraceBuilder().process(pid=100, gpu_ids=(0, 1, 2))
    for device, (start, end) in enumerate([(10, 30), (14, 29), (20, 32)]):
        trace.kernel(V, start_ns=start, end_ns=end, device_id=device)
    trace.write_sqlite(tmp_path / "t.sqlite")
    tables = tail_tables(tmp_path / "t.sqlite", tmp_path / "o")
    place, columns = (0, "0/0, 0/1, 0/2", "all_reduce"), "sequence_id communicator operation "
    every = f"{columns} ordinal ranks_n overlap class first_start_ns last_start_ns first_end_ns"
    assert rows(tables["collectives"], f"{every} last_end_ns") == [
        (*place, 0, 3, True, "transfer", 10, 20, 29, 32)  # 16 of 47
    ]
    every = "total_ns wait_ns profiler_ns late_by_ns transfer_ns transfer_rank_ns end_skew_ns"
    assert rows(tables["collectives"], f"{every} late_rank late_device_id late_start_ns") == [
        (20 + 15 + 12, 16, 0, 20 - 14, 9, 27, 4, 0, 2, 20)
    ]
    every = f"{columns} kernel ranks_n collectives_n overlap_n confidence class"
    assert rows(tables["communicators"], f"{every} residual_ns staged") == [
        (*place, V, 3, 1, 1, "low", "transfer", 0, False)
    ]
    every = "total_ns wait_ns wait_pct transfer_ns transfer_rank_ns end_skew_ns"
    assert rows(tables["communicators"], every) == [(47, 16, 100 * 16 / 47, 9, 27, 4)]
    columns = "device_id late_n unclear_n caused_wait_ns suffered_wait_ns"
    assert rows(tables["stragglers"], columns) == [
        (2, 0, 1, 16, 0),
        (0, 0, 0, 0, 10),
        (1, 0, 0, 0, 6),
    ]
    columns = "device_id operation kernels_n total_ns matched_n cut_n unmatched_n over_limit_n"
    assert rows(tables["collective_coverage"], columns) == [
        (0, "all_reduce", 1, 20, 1, 0, 0, 0),
        (1, "all_reduce", 1, 15, 1, 0, 0, 0),
        (2, "all_reduce", 1, 12, 1, 0, 0, 0),
    ]
    assert rows(tables["rank_clocks"], "rank source reference_rank ahead_ns") == [
        (0, "reference", 0, 0)
    ]


@pytest.mark.nightly("64")
@pytest.mark.slow
@pytest.mark.parametrize("ranks_n", [2, 3, 8, 64])
def test_the_late_rank_is_named_and_never_the_one_that_waits(ranks_n, tmp_path):
    # All come 9 us before the end, the last but one rank 2 us before it: the others wait 7 us.
    late = ranks_n - 2
    lengths = [[2_000 if rank == late else 9_000] for rank in range(ranks_n)]
    ahead_ns = {rank: (rank * 37) % 5 * 1_000_000 + rank for rank in range(ranks_n)}
    folder = write_ranks(tmp_path / "ranks", lengths, ahead_ns=ahead_ns)
    tables = tail_tables(folder, tmp_path / "o")
    worst = tables["stragglers"].iloc[0]
    assert (worst["rank"], worst["late_n"]) == (late, len(ENDS))
    assert worst["caused_wait_ns"] == 7_000 * (ranks_n - 1) * len(ENDS)
    others = tables["stragglers"].iloc[1:]
    assert set(others["suffered_wait_ns"]) == {7_000 * len(ENDS)}
    verdicts = tables["rank_verdicts"].set_index("rank")["verdict"].dropna()
    assert set(verdicts.index) <= {late}
    assert set(tables["collectives"]["late_rank"]) == {late}
    assert tables["communicators"]["communicator"].tolist() == [f"0-{ranks_n - 1}"]
    clocks = rows(tables["rank_clocks"], "rank ahead_ns residual_ns")
    assert clocks == [(rank, ahead_ns[rank] - ahead_ns[0], 0) for rank in range(ranks_n)]
    # Where it was late is in its own clock.
    late_ns = tables["collectives"]["late_start_ns"] - ahead_ns[late]
    assert set(late_ns + 2_000) == set(ENDS)
