"""The steps of an LLM server: schedule, forward pass, sampling, with what holds the GPU up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nsys_llm.testing.demo_model import KernelKind, RankSet
from nsys_llm.testing.demo_workload import UNKNOWN_KERNEL, Workload, forward, gather, sampling

#: Size of the synchronous copies; no other copy has it.
SYNC_COPY_BYTES: Final = 2_097_152


def has_sync_copy(step: int) -> bool:
    """Return whether the host copies from pageable memory in this step and waits for it."""
    return step % 10 == 5


def has_late_sync(step: int) -> bool:
    """Return whether the last synchronization of this step returns late."""
    return step % 8 == 7


def run_step(ranks: RankSet, workload: Workload, step: int, steps: int) -> None:
    """Run one step of the server: schedule, forward pass, sampling.

    Step 0 is the prefill. Every third step launches its kernels one by one, the others a graph.
    """
    prefill = step == 0
    with ranks.range(f"engine_step, seq = {step}"):
        with ranks.range("schedule"):
            _schedule(ranks, step, steps)
        rows = workload.prompt_tokens if prefill else workload.batch
        counts = (1, rows, 0, 0) if prefill else (0, 0, workload.batch, rows)
        text = "execute_context_{}({})_generation_{}({})".format(*counts)
        with ranks.range("prefill" if prefill else "decode"), ranks.range(text):
            ranks.copy("HtoD", 8 * rows, 1_400)
            for _ in range(_due(workload.memsets, step, steps)):
                ranks.copy("memset", 4096, 1_100)
            _forward(ranks, forward(workload, prefill=prefill), eager=step % 3 == 0)
            count, size_bytes = workload.device_copies
            for _ in range(_due(count, step, steps)):
                ranks.copy("DtoD", size_bytes, 3_200)
        with ranks.range("sample"):
            _sample(ranks, workload, step)


def _due(total: int, step: int, steps: int) -> int:
    return total * (step + 1) // steps - total * step // steps


def _schedule(ranks: RankSet, step: int, steps: int) -> None:
    ranks.work_on_host(290_000)
    if has_sync_copy(step):
        ranks.copy("HtoD", SYNC_COPY_BYTES, 46_000, staging_ns=430_000)
    if step == steps // 2:
        ranks.call("cudaMalloc_v3020", 810_000)


def _forward(ranks: RankSet, kinds: Sequence[KernelKind], *, eager: bool) -> None:
    if not eager:
        ranks.launch_graph(kinds, graph_exec_id=3)
        return
    for kind in kinds:
        if kind.name.startswith("nccl"):
            with ranks.range("ncclAllReduce", domain="NCCL"):
                ranks.launch(kind)
        else:
            ranks.launch(kind)


def _sample(ranks: RankSet, workload: Workload, step: int) -> None:
    with ranks.range("ncclAllGather", domain="NCCL"):
        ranks.launch(gather())
    ranks.launch(KernelKind(UNKNOWN_KERNEL, 1_900, (1, 1, 1)))
    ranks.synchronize(wake_up_ns=14_000)
    if step % 6 == 3:
        for _ in range(24):
            ranks.call("cudaMallocAsync_v11020", 1_900)
            ranks.call("cudaFreeAsync_v11020", 1_500)
    # The stream is empty here, so each of these small kernels waits for its launch.
    for kind in sampling(workload):
        ranks.launch(kind)
    ranks.copy("DtoH", 8 * workload.batch, 1_500)
    ranks.synchronize(wake_up_ns=900_000 if has_late_sync(step) else 14_000)
