"""Weights that are copied in every step are found; inputs, loading and varying copies are not."""

from __future__ import annotations

import numpy as np
import pytest
from finding_numbers import unexplained_numbers
from quick_run import quick_run
from trace_builder import TraceBuilder

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import finding_record
from nsys_llm.report.run_findings import all_findings
from nsys_llm.report.run_tables import run_tables

US = 1_000
MIB = 1 << 20
WEIGHTS = [3 * MIB, 8 * MIB, 8 * MIB, 5 * MIB] * 3


def write(folder, *steps, kernel_us=100, copy_us=20):
    """Write steps: copies of given sizes, each before a kernel, launched ahead and waited for."""
    trace, at = TraceBuilder(), 1_000_000
    for number, sizes in enumerate(steps):
        begin = call = at
        at += 50 * US
        for size in [*sizes, 0]:
            if size:
                copied = {"start_ns": at, "duration_ns": copy_us * US, "size_bytes": size}
                trace.memcpy("HtoD", **copied, launch=(call, call + 500))
                at, call = at + copy_us * US, call + US
            trace.kernel("gemm", start_ns=at, duration_ns=kernel_us * US, launch=(call, call + 500))
            at, call = at + kernel_us * US, call + US
        trace.api("cudaStreamSynchronize_v3020", start_ns=call, end_ns=at + US)
        at += 2 * US
        trace.nvtx(f"execute_context_0(0)_generation_{number}({number})", begin, at)
    trace.write_sqlite(folder / "rank0.sqlite")
    return folder


def repeated(folder):
    """Return the finding, if there is one, and the row of the rank."""
    run = quick_run("step_budget", folder)
    tables = run_tables(run)
    listed = [finding for finding in all_findings(run, tables) if finding.rule == "repeated_copies"]
    assert all(unexplained_numbers(finding_record(finding)) == [] for finding in listed)
    return (listed or [None])[0], tables["rank_edges"].iloc[0]


def test_the_same_copies_in_every_step_gain_their_time_on_the_path(tmp_path):
    shuffled = [np.random.default_rng(seed).permutation(WEIGHTS).tolist() for seed in range(6)]
    finding, row = repeated(write(tmp_path, *shuffled))
    assert (row["repeated_copies_n"], row["repeated_bytes"]) == (12, 72 * MIB)
    assert row["repeated_ns"] == 6 * 12 * 20 * US
    assert finding.title.startswith("The same 12 copies to the device in every step: 75.5 MB")
    assert finding.cause == Cause("copies", detail="HtoD")


@pytest.mark.parametrize(
    "steps",
    [
        # Inputs: of one size in every step, and few.
        [[9 * MIB, 2 * MIB]] * 6,
        # Blocks of a cache that come back: more in one step than in another.
        [WEIGHTS[: 8 + number % 3] for number in range(6)],
        # As many, but other ones.
        [[size + number * MIB for size in WEIGHTS] for number in range(6)],
        # A model that is loaded once.
        [WEIGHTS * 3, [], [], [], [], []],
        # Too few steps to tell.
        [WEIGHTS] * 2,
    ],
)
def test_other_copies_are_not_called_the_same(tmp_path, steps):
    finding, row = repeated(write(tmp_path, *steps))
    assert finding is None
    assert row["repeated_copies_n"] == row["repeated_bytes"] == row["repeated_ns"] == 0


def test_copies_that_kernels_hide_gain_nothing(tmp_path):
    trace, at = TraceBuilder(), 1_000_000
    for number in range(6):
        begin = at
        for size in WEIGHTS:
            trace.kernel("gemm", start_ns=at + US, duration_ns=100 * US, launch=(at, at + 400))
            trace.memcpy(
                "HtoD", start_ns=at + 2 * US, duration_ns=20 * US, size_bytes=size, stream_id=9,
                launch=(at + 450, at + 900),
            )  # fmt: skip
            at += 101 * US
        trace.nvtx(f"execute_context_0(0)_generation_{number}({number})", begin, at)
    trace.write_sqlite(tmp_path / "rank0.sqlite")
    finding, row = repeated(tmp_path)
    assert row["repeated_copies_n"] == 12
    assert finding is None
