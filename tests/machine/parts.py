"""What programs of LLM jobs are made of: usual kernels, and steps with varied lengths."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, get_args

from machine.program import (
    Blocking,
    Compute,
    Enqueue,
    Instruction,
    Pop,
    Program,
    Push,
    Rank,
    Record,
    Spin,
    Sync,
    Thread,
    WaitEvent,
    Work,
)

GEMM: Final = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"
ATTENTION: Final = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128>>(Flash_params)"
POINTWISE: Final = "triton_poi_fused_add_mul_0"
_NCCL: Final = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ALL_REDUCE: Final = f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{_NCCL}"
ALL_GATHER: Final = f"ncclDevKernel_AllGather_RING_LL{_NCCL}"
SEND_RECV: Final = f"ncclDevKernel_SendRecv{_NCCL}"

#: Streams besides the main one.
COPY_STREAM: Final = 13
SIDE_STREAM: Final = 14
COMM_STREAM: Final = 20

#: How a host that runs ahead blocks once a step: a wait, a copy of a result, a wait for the step
#: before alone, or for a flag in memory, which is not recorded.
Block = Literal["sync", "item", "event", "spin"]
BLOCKS: Final[tuple[Block, ...]] = get_args(Block)


class Maker:
    """Makes instructions whose lengths vary by a seed: the same calls give the same program."""

    def __init__(self, seed: int, ranks_n: int, spread: float = 0.1) -> None:
        self.rng = random.Random(seed)
        self.everyone = tuple(range(ranks_n))
        self.spread = spread
        self.events_n = 0

    def ns(self, typical_ns: float) -> int:
        """Return a length near a typical one."""
        low, high = 1 - self.spread, 1 + self.spread
        return max(1, round(typical_ns * self.rng.uniform(low, high)))

    def host(self, typical_ns: float, *, fault: str = "") -> Compute:
        """Work outside of CUDA."""
        return Compute(self.ns(typical_ns), fault=fault)

    def kernel(
        self, name: str, typical_ns: float, *, stream: int = 7, call_ns: float = 4000
    ) -> Enqueue:
        return self.enqueue(Work(name, self.ns(typical_ns)), stream, call_ns)

    def enqueue(self, work: Work, stream: int = 7, call_ns: float = 4000) -> Enqueue:
        lengths = self.ns(call_ns), self.ns(1800)
        return Enqueue(work, stream, *lengths, lag_ns=self.ns(1000))

    def reduce(
        self,
        transfer_ns: float,
        *,
        stream: int = 7,
        name: str = ALL_REDUCE,
        group: tuple[int, ...] | None = None,
    ) -> Enqueue:
        members = self.everyone if group is None else group
        return self.enqueue(Work(name, self.ns(transfer_ns), "collective", group=members), stream)

    def copy(
        self, kind: str, typical_ns: float, *, stream: int = COPY_STREAM, pageable: bool = False
    ) -> Enqueue:
        """Start a copy that the host does not wait for."""
        return self.enqueue(copy_work(kind, self.ns(typical_ns), pageable=pageable), stream)

    def join(self, source: int, target: int) -> list[Instruction]:
        """Let a stream wait for all that another one was given so far."""
        self.events_n += 1
        # Events are reused, as a pool of them does.
        event = f"event {self.events_n % 5}"
        return [Record(event, source, self.ns(1200)), WaitEvent(event, target, self.ns(1300))]

    def block(self, kind: Block) -> list[Instruction]:
        """Block once, at the end of a step that the host launched ahead."""
        if kind == "item":
            work = replace(copy_work("DtoH", 1000, pageable=True), size_bytes=4)
            return [Blocking(work, name="cudaMemcpyAsync_v3020")]
        if kind == "event":
            self.events_n += 1
            steps = [f"step {(self.events_n + more) % 2}" for more in (0, 1)]
            return [Record(steps[0], 7, self.ns(1200)), Sync("event", event=steps[1])]
        return [Spin() if kind == "spin" else Sync("stream")]

    def step(self, number: int, body: list[Instruction]) -> list[Instruction]:
        return [Push(f"ProfilerStep#{number}", step=True), *body, Pop(), self.host(900)]


def copy_work(kind: str, length_ns: int, *, pageable: bool = False) -> Work:
    """Return a copy or fill at about 20 GB/s."""
    name = f"[CUDA {kind}]"
    if kind == "memset":
        return Work(name, length_ns, "memset", length_ns * 20)
    if kind == "HtoD":
        return Work(name, length_ns, "HtoD", length_ns * 20, pageable)
    if kind == "DtoH":
        return Work(name, length_ns, "DtoH", length_ns * 20, pageable)
    return Work(name, length_ns, "DtoD", length_ns * 20)


def ranked(
    ranks_n: int,
    steps_n: int,
    body: Callable[[Maker, int, int], list[Instruction]],
    seed: int,
    *,
    stepped: bool = True,
) -> Program:
    """Return a job whose ranks do the same steps, each with its own variation.

    Args:
        body: Instructions of a step, by a maker, the rank and the step.
        stepped: Whether there are ranges of steps.
    """
    return Program(
        tuple(
            Rank((_main(Maker(seed * 1009 + rank, ranks_n), rank, steps_n, body, stepped),))
            for rank in range(ranks_n)
        )
    )


def _main(
    make: Maker,
    rank: int,
    steps_n: int,
    body: Callable[[Maker, int, int], list[Instruction]],
    stepped: bool,
) -> Thread:
    instruction: list[Instruction] = [make.host(5000)]
    for step in range(steps_n):
        instructions = body(make, rank, step)
        instruction += make.step(step, instructions) if stepped else instructions
    return tuple(instruction)
