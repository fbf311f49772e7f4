"""Captures that start apart: waiting before all profiles record is left out, and said."""

from __future__ import annotations

from pathlib import Path

import pytest
from quick_run import quick
from trace_builder import TraceBuilder

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
US = 1_000
#: Rank 0 comes to the first collective here, and rank 1, whose profiler starts, much later.
EARLY_NS, RECORDED_NS, LATE_NS = 100 * US, 3_000 * US, 3_050 * US


def written(folder: Path, early: str | None) -> list[Path]:
    paths = []
    for rank in (0, 1):
        clock_ns = 5_000_000_000 + 40 * US * rank
        trace = TraceBuilder(system_clock_ns=clock_ns).environment(RANK=str(rank))
        shift_ns = -40 * US * rank
        if rank == 1:
            early_ns = EARLY_NS - 50 * US + shift_ns
            first_ns = early_ns if early == "call" else RECORDED_NS + shift_ns
            trace.api("cudaGetDevice", start_ns=first_ns, end_ns=first_ns + US)
            if early == "range":
                trace.nvtx("step", early_ns, early_ns + US)
        starts = [EARLY_NS if rank == 0 else LATE_NS]
        # Then every 200 us, rank 1 later by 1 to 4 us.
        starts += [LATE_NS + 200 * US * n + rank * (1 + n % 4) * US for n in range(1, 40)]
        for n, start_ns in enumerate(starts):
            end_ns = LATE_NS + 200 * US * n + 30 * US + (n * 7919) % 13
            trace.kernel(
                "gemm",
                start_ns=start_ns + shift_ns - 20 * US,
                duration_ns=10 * US,
                launch=(start_ns + shift_ns - 40 * US, start_ns + shift_ns - 38 * US),
            )
            trace.kernel(
                NCCL,
                start_ns=start_ns + shift_ns,
                end_ns=end_ns + shift_ns,
                stream_id=20,
                launch=(start_ns + shift_ns - 36 * US, start_ns + shift_ns - 34 * US),
            )
        paths.append(trace.write_sqlite(folder / f"rank{rank}.sqlite"))
    return paths


@pytest.mark.parametrize("early", [None, "call", "range"])
def test_waiting_before_all_profiles_record_is_left_out(tmp_path, early):
    tables = quick("tail_stats", *written(tmp_path, early))
    clocks = tables["rank_clocks"].set_index("rank")
    first = tables["collectives"].sort_values("last_start_ns").iloc[0]
    findings = tables["findings"].set_index("rule")
    if early is not None:
        assert clocks["left_out_ns"].tolist() == [0, 0]
        assert first["wait_ns"] == pytest.approx(LATE_NS - EARLY_NS, abs=100)
        assert "captures_apart" not in findings.index
        return
    left_out_ns = RECORDED_NS - EARLY_NS
    assert clocks["left_out_ns"].tolist() == [pytest.approx(left_out_ns, abs=100), 0]
    # Rank 0's first record is the launch before its first kernel.
    assert clocks.loc[1, "recorded_after_ns"] == pytest.approx(left_out_ns + 40 * US, abs=100)
    assert first["wait_ns"] == pytest.approx(LATE_NS - RECORDED_NS, abs=100)
    title = findings.loc["captures_apart", "title"]
    assert title == (
        "Rank 1 is recorded 2.94 ms after the first one: waiting before that is left out"
    )
