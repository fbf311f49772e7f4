"""Jobs of which a profile lacks work: hosts that launch into one stream, and what is deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from trace_builder import TraceBuilder

US, MS = 1_000, 1_000_000
#: A text as Nsight Systems writes it.
OLD_BUILD = (
    "Installed CUDA driver version (13.1) is not supported by this build of Nsight Systems. "
    "CUDA trace will be collected using libraries for driver version 12.8"
)


def steps(
    trace: TraceBuilder, steps_n: int, *, pid: int = 100, lost: Sequence[int] = (), kernels_n=20
) -> TraceBuilder:
    """Add steps of 20 kernels of 40 us each, waited for; the kernels of some leave no row."""
    at = MS
    for step in range(steps_n):
        begin = free = at
        for number in range(kernels_n):
            call = (at, at + 4 * US)
            at += 5 * US
            start_ns = max(call[1] + 3 * US, free)
            free = start_ns + 40 * US
            name = "flash_fwd_kernel" if number % 5 == 0 else "nvjet_tst_a"
            if step in lost:
                trace.api("cudaLaunchKernel_v7000", start_ns=call[0], end_ns=call[1], pid=pid)
            else:
                trace.kernel(name, start_ns=start_ns, end_ns=free, launch=call, pid=pid)
        trace.api("cudaStreamSynchronize_v3020", start_ns=at, end_ns=free + 2 * US, pid=pid)
        at = free + 3 * US
        trace.nvtx(f"step {step}", begin - 1, at, pid=pid)
    return trace


def say(path: Path, *messages: str, severity: int = 2, process: int | None = None) -> Path:
    """Let Nsight Systems say something in a profile, of all of it or of one process."""
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType"
            " INTEGER NOT NULL, source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT "
            "NULL, globalPid INTEGER)"
        )
        rows = [(0, 2, 2, severity, text, process) for text in messages]
        db.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?, ?, ?, ?, ?)", rows)
    db.close()
    return path
