"""Small valid reports of every kind of event, different for every seed."""

from __future__ import annotations

from random import Random

from rendered import HOSTILE_NAMES
from trace_builder import TraceBuilder

_SCHEMAS = ("3.7.2", "3.24.14", "3.25.0", "3.30.1")
_KERNELS = (
    "void gemvx::kernel<int, float>(float *)",
    "nvjet_hsh_128x64_64x6_2x1_v_bz_TNT",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void cross_device_reduce_1stage<__half, 4>(RankData *)",
    "flash_fwd_splitkv_kernel",
    "elementwise_kernel",
    *HOSTILE_NAMES[:4],
)
_RANGES = ("step", "decode", "prefill", "layer.0", "forward, seq = 12", "sampling", "x" * 300)
_SYNCS = ("cudaStreamSynchronize_v3020", "cudaDeviceSynchronize_v3020", "cudaMemcpy_v3020")
_MANY_NAMES = 5_000
_DEEP_NESTING = 2_000


def sample_report(random: Random, *, scale: int = 1) -> TraceBuilder:
    """Return a report of one or two processes.

    Args:
        scale: Multiplies the sizes of what a report has much of: names and nesting.
    """
    report = TraceBuilder(
        schema=random.choice(_SCHEMAS), lazy=random.random() < 0.5, hostname=random.choice("ab")
    )
    for pid in (100, 200)[: random.randint(1, 2)]:
        report.process(pid=pid)
        _add_process(report, pid, random)
    if random.random() < 0.03:
        names = [f"kernel_{number}" for number in range(_MANY_NAMES * scale)]
        starts = [9 * number for number in range(len(names))]
        ends = [start + 5 for start in starts]
        report.kernels(names, range(len(names)), start_ns=starts, end_ns=ends)
    if random.random() < 0.03:
        for depth in range(_DEEP_NESTING * scale):
            report.nvtx(f"deep {depth % 7}", depth, 10**6 - depth)
    return report


def _add_process(report: TraceBuilder, pid: int, random: Random) -> None:
    now_ns = random.choice((0, 5, 10**9, 2**52, 2**53 - 50_000))
    for step in range(random.randint(1, 6)):
        begin_ns = now_ns
        for _ in range(random.randint(0, 8)):
            now_ns = _add_launch(report, pid, now_ns, random)
        if random.random() < 0.7:
            report.nvtx(
                random.choice(_RANGES), begin_ns, now_ns + 3, domain=random.choice(["", "d"])
            )
        report.nvtx(f"step {step}" if pid == 100 else "step", begin_ns, now_ns + 5)
    if random.random() < 0.3:
        report.nvtx("open", now_ns, None, kind="start_end")
        report.overhead("CUPTI Buffer flush", start_ns=now_ns, duration_ns=20, overhead_type=3)
    if random.random() < 0.3:
        report.allocate(1 << 20, address=4096, at_ns=now_ns, call=(now_ns, now_ns + 2))
        report.free(1 << 20, address=4096, at_ns=now_ns + 9, call=(now_ns + 8, now_ns + 10))
    if random.random() < 0.3:
        values = [random.randint(0, 100) for _ in range(5)]
        times_ns = [now_ns - 10 * number for number in range(5)][::-1]
        report.gpu_metrics({"SM Active [Throughput %]": values}, times_ns=times_ns)


def _add_launch(report: TraceBuilder, pid: int, now_ns: int, random: Random) -> int:
    """Add one thing at some time, and return when the next may come."""
    length_ns = random.choice((0, 1, 7, 40, 900, 30_000))
    place = {"device_id": random.choice((0, 0, 1)), "stream_id": random.choice((7, 7, 13))}
    launch = (now_ns, now_ns + 4) if random.random() < 0.9 else None
    start_ns = now_ns + random.randint(1, 60)
    kind = random.random()
    if kind < 0.6:
        name = random.choice(_KERNELS)
        grid = (random.choice((1, 64)), 1, 1)
        report.kernel(
            name,
            start_ns=start_ns,
            duration_ns=length_ns,
            launch=launch,
            grid=grid,
            pid=pid,
            **place,
        )
    elif kind < 0.75:
        copy = random.choice(("HtoD", "DtoH", "DtoD"))
        report.memcpy(
            copy, start_ns=start_ns, duration_ns=length_ns, size_bytes=64, launch=launch, **place
        )
    elif kind < 0.8:
        report.memset(
            start_ns=start_ns, duration_ns=length_ns, size_bytes=64, launch=launch, **place
        )
    elif kind < 0.9:
        report.api(random.choice(_SYNCS), start_ns=now_ns, duration_ns=length_ns)
    elif kind < 0.95:
        report.osrt("poll", start_ns=now_ns, duration_ns=length_ns)
    else:
        nodes = [("node_a", start_ns, start_ns + 5), ("node_b", start_ns + 6, start_ns + 9)]
        mode = random.choice(("node", "graph"))
        report.graph_launch(nodes, launch=(now_ns, now_ns + 2), mode=mode, pid=pid)
    # Overlap is common, and so is a gap.
    return now_ns + random.choice((5, 20, length_ns + 70, 100_000))
