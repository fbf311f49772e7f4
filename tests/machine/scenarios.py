"""Jobs with one thing planted each, whose cause is known. Every function returns a program.

Faults can be taken away again, by their names or the rank (see `changes`), for the true gain.
"""

from __future__ import annotations

from dataclasses import replace

from machine.parts import (
    ATTENTION,
    COMM_STREAM,
    GEMM,
    POINTWISE,
    SEND_RECV,
    SIDE_STREAM,
    Block,
    Maker,
    ranked,
)
from machine.program import (
    Instruction,
    Program,
    Sync,
)


def _layers(make: Maker, layers_n: int, kernel_ns: float, host_ns: float) -> list[Instruction]:
    """Return layers of three kernels each, with a reduction after each layer."""
    instruction: list[Instruction] = []
    for _ in range(layers_n):
        for name, share in ((GEMM, 1.0), (ATTENTION, 0.7), (POINTWISE, 0.2)):
            instruction += [make.host(host_ns), make.kernel(name, kernel_ns * share)]
        instruction.append(make.reduce(kernel_ns * 0.3))
    return instruction


def host_bound_decode(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Kernels far shorter than their launches: the host is the limit."""
    return ranked(
        ranks_n,
        steps_n,
        lambda make, rank, step: [*_layers(make, 5, 2000, 3000), Sync("stream")],
        seed,
    )


def gpu_bound(
    ranks_n: int = 2,
    steps_n: int = 6,
    seed: int = 0,
    *,
    stepped: bool = True,
    block: Block = "sync",
) -> Program:
    """Kernels far longer than their launches; the host blocks at the end of each step."""
    return ranked(
        ranks_n,
        steps_n,
        lambda make, rank, step: [*_layers(make, 5, 60_000, 800), *make.block(block)],
        seed,
        stepped=stepped,
    )


def no_nvtx(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    return gpu_bound(ranks_n, steps_n, seed, stepped=False)


def slow_gpu(
    ranks_n: int = 4, steps_n: int = 6, seed: int = 0, *, rank: int = 1, gpu_pct: int = 130
) -> Program:
    """One rank's kernels take longer; `changes.without_slow_rank` heals it."""
    program = gpu_bound(ranks_n, steps_n, seed)
    ranks = list(program.ranks)
    ranks[rank] = replace(ranks[rank], gpu_pct=gpu_pct)
    return Program(tuple(ranks))


def late_host(
    ranks_n: int = 4, steps_n: int = 6, seed: int = 0, *, rank: int = 2, late_ns: int = 150_000
) -> Program:
    """One rank's host does something else before it launches; the fault `late_host`."""

    def body(make: Maker, at: int, step: int) -> list[Instruction]:
        late = [make.host(late_ns, fault="late_host")] if at == rank else []
        return [*late, *_layers(make, 4, 30_000, 800), Sync("stream")]

    return ranked(ranks_n, steps_n, body, seed)


def sync_in_step(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """A wait for the device amid short kernels holds back their launches; the fault `sync`."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        instruction: list[Instruction] = []
        for _ in range(3):
            instruction += [make.kernel(GEMM, 120_000), Sync("device", fault="sync")]
            instruction += [make.kernel(POINTWISE, 2500) for _ in range(12)]
        return [*instruction, make.reduce(20_000), Sync("stream")]

    return ranked(ranks_n, steps_n, body, seed)


def balanced_launches(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Launches that take a little longer than the kernels they start: the host is the limit.

    Each kernel ends after the next one's launch has returned, but before that can start: what
    finished last is not what determined the start.
    """

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        make.spread = 0.02
        kernels = [make.kernel(POINTWISE, 2600, call_ns=4000) for _ in range(60)]
        return [*kernels, make.reduce(9000), Sync("stream")]

    return ranked(ranks_n, steps_n, body, seed)


def two_devices(ranks_n: int = 1, steps_n: int = 6, seed: int = 0) -> Program:
    """A process with two devices waits for the second one before it launches on the first."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        other = replace(make.kernel(GEMM, 60_000), device=1)
        return [
            make.kernel(GEMM, 20_000),
            other,
            Sync("device", device=1),
            make.kernel(ATTENTION, 15_000),
            Sync("device"),
        ]

    return ranked(ranks_n, steps_n, body, seed)


def blocking_streams(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Work in a blocking stream, which the legacy default stream waits for and the reverse."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        side = [make.kernel(ATTENTION, 30_000, stream=SIDE_STREAM) for _ in range(2)]
        first, last = make.kernel(GEMM, 25_000), make.kernel(POINTWISE, 5000)
        return [first, *side, last, make.reduce(9000), Sync("stream")]

    program = ranked(ranks_n, steps_n, body, seed)
    return Program(tuple(replace(rank, blocking_streams=(SIDE_STREAM,)) for rank in program.ranks))


def full_device(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Kernels of a second stream that find no room beside those of the first."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        instruction: list[Instruction] = []
        for _ in range(3):
            side = make.kernel(ATTENTION, 20_000, stream=SIDE_STREAM)
            instruction += [make.kernel(GEMM, 40_000), replace(side, room_after=7)]
        return [*instruction, *make.join(SIDE_STREAM, 7), make.reduce(9000), Sync("stream")]

    return ranked(ranks_n, steps_n, body, seed)


def overlap(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Reductions on a stream of their own, waited for at the step's end."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        instruction: list[Instruction] = []
        for _ in range(4):
            instruction += [make.kernel(GEMM, 60_000), *make.join(7, COMM_STREAM)]
            instruction.append(make.reduce(40_000, stream=COMM_STREAM))
        instruction += [*make.join(COMM_STREAM, 7), make.kernel(POINTWISE, 4000)]
        return [*instruction, Sync("stream")]

    return ranked(ranks_n, steps_n, body, seed)


def two_faults(ranks_n: int = 4, steps_n: int = 6, seed: int = 0) -> Program:
    """Rank 1's host is late (fault `late_host`), and every rank waits amid a step (`sync`)."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        instruction: list[Instruction] = []
        if rank == 1:
            instruction.append(make.host(60_000, fault="late_host"))
        for _ in range(3):
            instruction += [make.kernel(GEMM, 60_000), Sync("device", fault="sync")]
            instruction += [make.kernel(POINTWISE, 2000) for _ in range(10)]
        return [*instruction, make.reduce(15_000), Sync("stream")]

    return ranked(ranks_n, steps_n, body, seed)


def pipeline(stages_n: int = 4, steps_n: int = 6, seed: int = 0) -> Program:
    """Stages that receive, compute and send, forward and then backward (GPipe)."""

    def transfer(make: Maker, stage: int) -> list[Instruction]:
        """Return what stages `stage` and `stage + 1` exchange; nothing beyond the ends."""
        inside = 0 <= stage < stages_n - 1
        group = (stage, stage + 1)
        return [make.reduce(9000, name=SEND_RECV, group=group)] if inside else []

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        instruction: list[Instruction] = []
        for _ in range(4):
            instruction += [
                *transfer(make, rank - 1),
                make.kernel(GEMM, 50_000),
                *transfer(make, rank),
            ]
        for _ in range(4):
            instruction += [
                *transfer(make, rank),
                make.kernel(GEMM, 100_000),
                *transfer(make, rank - 1),
            ]
        return [*instruction, make.kernel(POINTWISE, 7000), Sync("stream")]

    return ranked(stages_n, steps_n, body, seed)


#: All of them, by name.
SCENARIOS = {
    function.__name__: function
    for function in (
        host_bound_decode,
        gpu_bound,
        no_nvtx,
        slow_gpu,
        late_host,
        sync_in_step,
        balanced_launches,
        two_devices,
        blocking_streams,
        full_device,
        overlap,
        two_faults,
        pipeline,
    )
}
