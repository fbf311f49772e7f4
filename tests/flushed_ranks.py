"""Two ranks that a profiler's flushes and their own hosts make late, planted to the nanosecond."""

from __future__ import annotations

import numpy as np
from trace_builder import TraceBuilder

US = 1_000
COMPUTE, TRANSFER = 1_000 * US, 100 * US
N = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
MAIN, WORKER = 100, 190


def write_ranks(folder, held_ns, *, asleep_ns=None, steps_n=30, first=True, early_ns=(0, 0)):
    """Write two ranks that compute and then meet, each at its own pace.

    Args:
        folder: Where.
        held_ns: For each rank and step, for how long a flush holds the launch of its computation.
        asleep_ns: Likewise, for how long its host is in no CUDA call while a flush goes on.
        steps_n: How many.
        first: Whether there is work before all, so that the first pause lies between operations.
        early_ns: For each rank, for how long a flush holds a call long before its first work,
            which all ranks begin together.
    """
    folder.mkdir()
    asleep_ns = np.zeros((2, steps_n), dtype=int) if asleep_ns is None else asleep_ns
    begins = [1_000 * US + max(early_ns)]
    traces = [TraceBuilder().process(pid=MAIN, name="python") for _ in range(2)]
    for trace in traces if first else ():
        trace.kernel("first", start_ns=900 * US, end_ns=901 * US, launch=(890 * US, 895 * US))
    for trace, early in zip(traces, early_ns, strict=True):
        if early:
            trace.api("cudaMalloc_v3020", start_ns=50 * US, end_ns=110 * US + early)
            trace.overhead(
                "CUPTI Buffer flush",
                start_ns=100 * US,
                end_ns=100 * US + early,
                overhead_type=3,
                tid=WORKER,
            )
    for step in range(steps_n):
        begin = begins[-1]
        starts = []
        for rank, trace in enumerate(traces):
            held, asleep = int(held_ns[rank][step]), int(asleep_ns[rank][step])
            at = begin + 20 * US + asleep
            returns = at + 10 * US + held
            if held:
                flush = returns - 5 * US - held, returns - 5 * US
                trace.overhead(
                    "CUPTI Buffer flush",
                    start_ns=flush[0],
                    end_ns=flush[1],
                    overhead_type=3,
                    tid=WORKER,
                )
            if asleep:
                trace.overhead(
                    "CUPTI Buffer flush",
                    start_ns=begin + 15 * US,
                    end_ns=at - 2 * US,
                    overhead_type=3,
                    tid=WORKER,
                )
            gemm = returns + 5 * US
            trace.kernel("gemm", start_ns=gemm, duration_ns=COMPUTE, launch=(at, returns))
            starts.append(gemm + COMPUTE + 10 * US)
        end = max(starts) + TRANSFER
        for start, trace in zip(starts, traces, strict=True):
            trace.kernel(N, start_ns=start, end_ns=end, launch=(start - 9 * US, start - 4 * US))
        begins.append(end)
    for rank, trace in enumerate(traces):
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder
