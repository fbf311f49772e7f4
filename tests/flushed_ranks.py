"""Two ranks that a profiler's flushes and their own hosts make late, planted to the nanosecond."""

import numpy as np
from trace_builder import TraceBuilder

US = 1_000
COMPUTE, TRANSFER = 1_000 * US, 100 * US
N = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
MAIN, WORKER = 100, 190


def write_ranks(folder, held_ns, *, asleep_ns=None, steps_n=30, first=True):
    """Write two ranks that compute and then meet, each at its own pace.

    Args:
        folder: Where.
        held_ns: For each rank and step, for how long a flush holds the launch of its computation.
        asleep_ns: Likewise, for how long its host is in no CUDA call while a flush goes on.
        steps_n: How many.
        first: Whether there is work before all, so that the first pause lies between operations.
    """
    folder.mkdir()
    asleep_ns = np.zeros((2, steps_n), dtype=int) if asleep_ns is None else asleep_ns
    begins = [1_000 * US]
    traces = [TraceBuilder().process(pid=MAIN, name="python") for _ in range(2)]
    for trace in traces if first else ():
        trace.kernel("first", start_ns=900 * US, end_ns=901 * US, launch=(890 * US, 895 * US))
    for step in range(steps_n):
        begin = begins[-1]
        starts = []
        for rank, trace in enumerate(traces):
            held, asleep = int(held_ns[rank][step]), int(asleep_ns[rank][step])
            at = begin + 20 * US + asleep
            returns = at + 10 * US + held
            flushes = [(returns - 5 * US - held, returns - 5 * US)] if held else []
            flushes += [(begin + 15 * US, at - 2 * US)] if asleep else []
            for low, high in flushes:
                flush = {"start_ns": low, "end_ns": high, "overhead_type": 3, "tid": WORKER}
                trace.overhead("CUPTI Buffer flush", **flush)
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
