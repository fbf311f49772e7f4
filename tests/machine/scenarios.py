"""Jobs with one thing planted each, whose cause is known. Every function returns a program.

Faults can be taken away again, by their names or the rank (see `changes`), for the true gain.
"""

from __future__ import annotations

from dataclasses import replace

from machine.parts import (
    ATTENTION,
    COMM_STREAM,
    COPY_STREAM,
    GEMM,
    POINTWISE,
    SEND_RECV,
    SIDE_STREAM,
    Block,
    Maker,
    copy_work,
    ranked,
)
from machine.program import (
    Await,
    Blocking,
    Instruction,
    LaunchGraph,
    Node,
    Pop,
    Program,
    Push,
    Signal,
    Sync,
    Work,
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


def pageable_copies(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Copies from and to pageable memory, blocking and with Async in their names."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        upload = Blocking(copy_work("HtoD", make.ns(40_000), pageable=True), 7, make.ns(30_000))
        staged = make.copy("HtoD", 8000, stream=7, pageable=True)
        staged = replace(staged, call_ns=make.ns(25_000), submit_ns=make.ns(12_000))
        download = Blocking(
            copy_work("DtoH", make.ns(12_000), pageable=True),
            name="cudaMemcpyAsync_v3020",
            staging_ns=make.ns(6000),
        )
        return [
            upload,
            *_layers(make, 2, 15_000, 800),
            staged,
            *_layers(make, 1, 15_000, 800),
            download,
        ]

    return ranked(ranks_n, steps_n, body, seed)


def graph_replays(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """A graph over two streams in each step, between kernels that are launched singly."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        nodes = (
            Node(Work(GEMM, make.ns(20_000)), 7),
            Node(Work(ATTENTION, make.ns(35_000)), SIDE_STREAM, after=(0,)),
            Node(Work(POINTWISE, make.ns(8000)), 7),
            Node(Work(GEMM, make.ns(12_000)), 7, after=(1,)),
            Node(Work(POINTWISE, make.ns(9000)), SIDE_STREAM),
        )
        return [
            make.kernel(POINTWISE, 4000),
            LaunchGraph(nodes, call_ns=make.ns(12_000)),
            make.kernel(POINTWISE, 4000),
            make.reduce(9000),
            Sync("stream"),
        ]

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


def prefetched_copies(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """Each step's input is copied on a stream of its own while the step before computes."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        return [
            *make.join(COPY_STREAM, 7),
            *_layers(make, 3, 25_000, 800),
            make.copy("HtoD", 70_000),
            Sync("stream"),
        ]

    return ranked(ranks_n, steps_n, body, seed)


def backward_thread(ranks_n: int = 2, steps_n: int = 6, seed: int = 0) -> Program:
    """A second thread launches the backward half of each step, as PyTorch's autograd does."""
    program = ranked(
        ranks_n,
        steps_n,
        lambda make, rank, step: [
            *_layers(make, 2, 8000, 2000),
            Signal(f"backward {step}"),
            Await(f"forward {step}"),
            make.host(2000),
            make.kernel(POINTWISE, 4000),
            Sync("stream"),
        ],
        seed,
    )
    ranks = []
    for rank, instruction in enumerate(program.ranks):
        make = Maker(seed * 1009 + 500 + rank, ranks_n)
        backward: list[Instruction] = []
        for step in range(steps_n):
            backward += [Await(f"backward {step}"), Push("backward"), make.host(2500)]
            backward += [*_layers(make, 2, 9000, 2500), Pop(), Signal(f"forward {step}")]
        ranks.append(replace(instruction, threads=(*instruction.threads, tuple(backward))))
    return Program(tuple(ranks))


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
        pageable_copies,
        graph_replays,
        two_faults,
        pipeline,
        prefetched_copies,
        backward_thread,
    )
}
