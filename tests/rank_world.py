"""Small jobs whose ranks have more or less to do, with every time known.

    world = RankWorld(4)
    for step in range(20):
        world.begin(lambda rank: f"step {step}")
        for rank in range(4):
            world.run(rank, GEMM, 100_000)
        world.meet(range(4), ALL_REDUCE, 20_000)
        world.end()
    world.write(folder)

Each rank has a host thread, which launches ahead and waits for its GPU at the end of a step, and
one stream. A collective ends on all of its members at once, some time after the last of them came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from trace_builder import TraceBuilder

GEMM = "sm90_xmma_gemm_bf16_tn_n"
ATTENTION = "flash_fwd_splitkv_kernel"
DISPATCH = "void deep_ep::intranode::dispatch<(int)4, (int)768, (int)8192>(int4 *, float *)"
COMBINE = "void deep_ep::intranode::combine<__nv_bfloat16, (int)4, (int)768>(T1 *, float *)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_LAUNCH_NS = 3_000


class RankWorld:
    """A job; times in ns.

    Args:
        ranks_n: Its GPUs, each a process and file of its own.
        hosts: Machine of each, where there are several.
        one_process: Whether all GPUs are devices of one process instead.
    """

    def __init__(
        self, ranks_n: int, *, hosts: Iterable[str] = (), one_process: bool = False
    ) -> None:
        names = list(hosts) or ["node1"] * ranks_n
        self.one_process = one_process
        self.builders = [
            TraceBuilder(hostname=name, utc_epoch_ns=10**18, system_clock_ns=10**12)
            for name in names[: 1 if one_process else ranks_n]
        ]
        for rank, builder in enumerate(self.builders):
            gpus = tuple(range(ranks_n)) if one_process else (rank,)
            builder.process(pid=100 + rank, gpu_ids=gpus).environment(RANK=str(rank))
        self.host_ns, self.free_ns = [1_000_000] * ranks_n, [0] * ranks_n
        self.opened: list[tuple[str, int]] = []

    def begin(self, name: Callable[[int], str]) -> None:
        """Open a step, of each rank by its own name."""
        if self.one_process:
            self.host_ns = [max(self.host_ns)] * len(self.host_ns)
        self.opened = [(name(rank), at) for rank, at in enumerate(self.host_ns)]

    def run(self, rank: int, name: str, ns: float, blocks: int = 132) -> None:
        """Launch a kernel on a rank's stream."""
        self._launch(rank, name, max(self.host_ns[rank] + 6_000, self.free_ns[rank]), ns, blocks)

    def meet(self, ranks: Iterable[int], name: str, ns: float) -> None:
        """Launch a collective, which takes so long once the last of some ranks is in it."""
        members = list(ranks)
        came = [max(self.host_ns[rank] + 6_000, self.free_ns[rank]) for rank in members]
        for rank, at in zip(members, came, strict=True):
            self._launch(rank, name, at, max(came) + ns - at, 24)

    def busy(self, rank: int, ns: int) -> None:
        """Let a rank's host do something else."""
        self.host_ns[rank] += ns

    def end(self) -> None:
        """Let each host wait for its GPU, and close the step."""
        for rank, (name, start_ns) in enumerate(self.opened):
            pid, at = self._place(rank)
            end_ns = max(self.host_ns[rank], self.free_ns[rank]) + 2_000
            self._builder(rank).api(
                "cudaStreamSynchronize_v3020",
                start_ns=self.host_ns[rank],
                end_ns=end_ns,
                pid=pid,
                tid=pid + at,
            )
            self.host_ns[rank] = end_ns + 5_000
            if not self.one_process:
                self._builder(rank).nvtx(name, start_ns, end_ns, pid=pid)
        if self.one_process:
            name, start_ns = self.opened[0]
            self._builder(0).nvtx(name, start_ns, max(self.host_ns), pid=100)

    def write(self, folder: Path) -> Path:
        """Write one file a process."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, builder in enumerate(self.builders):
            builder.write_sqlite(folder / f"rank{number}.sqlite")
        return folder

    def _place(self, rank: int) -> tuple[int, int]:
        return (100, rank) if self.one_process else (100 + rank, 0)

    def _builder(self, rank: int) -> TraceBuilder:
        return self.builders[0 if self.one_process else rank]

    def _launch(self, rank: int, name: str, at: float, ns: float, blocks: int) -> None:
        pid, device = self._place(rank)
        call = (self.host_ns[rank], self.host_ns[rank] + _LAUNCH_NS)
        start_ns = round(max(at, call[1]))
        self._builder(rank).kernel(
            name,
            start_ns=start_ns,
            end_ns=start_ns + round(ns),
            launch=call,
            grid=(blocks, 1, 1),
            block=(256, 1, 1),
            pid=pid,
            tid=pid,
            device_id=device if self.one_process else 0,
            stream_id=7 + (device if self.one_process else 0),
        )
        self.host_ns[rank] = call[1]
        self.free_ns[rank] = start_ns + round(ns)
