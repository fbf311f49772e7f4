"""Random jobs that mix everything the machine can do; the same seed always gives the same job.

All ranks do the same things in the same order, each at its own pace, so that collectives meet.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from machine.parts import (
    ALL_GATHER,
    ATTENTION,
    BLOCKS,
    COMM_STREAM,
    COPY_STREAM,
    GEMM,
    POINTWISE,
    SIDE_STREAM,
    Maker,
    copy_work,
)
from machine.program import (
    Await,
    Blocking,
    Call,
    Flush,
    Instruction,
    LaunchGraph,
    Node,
    Pop,
    Program,
    Push,
    Rank,
    Record,
    Signal,
    Sync,
    Work,
)

_KERNELS: Final = (GEMM, ATTENTION, POINTWISE)


@dataclass(frozen=True)
class _Plan:
    """What all ranks share of a job: sizes, and the kinds of its blocks in their order."""

    ranks_n: int
    kernel_ns: int
    host_ns: int
    steps: tuple[tuple[str, ...], ...]
    stepped: bool
    blocking: bool


def random_program(
    seed: int, ranks_n: int | None = None, *, certain: bool = False, ahead: bool = False
) -> Program:
    """Return a job of 1 to 16 ranks.

    Args:
        certain: Whether to leave out what a reader can only infer even with rows of waits and
            events: hand-overs between threads, dependencies in graphs across streams, and full
            devices.
        ahead: Whether hosts run ahead of long kernels, and block once, at the end of each step.
    """
    rng = random.Random(seed)
    count = rng.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 8)) if ranks_n is None else ranks_n
    if ranks_n is None and rng.random() < 0.03:
        count = 16
    plan = _plan(rng, count, certain=certain)
    plan = _ahead(plan, seed) if ahead else plan
    faults_at = rng.randrange(count) if rng.random() < 0.5 else -1
    ranks: list[Rank] = []
    for rank in range(count):
        paces = random.Random(seed * 7919 + rank)
        threads = _threads(plan, Maker(seed * 7919 + rank, count, spread=0.3), certain=certain)
        ranks.append(
            Rank(
                threads,
                gpu_pct=paces.choice((98, 100, 103)) + 30 * (rank == faults_at),
                host_pct=paces.choice((95, 100, 110)),
                capture_ns=-paces.randrange(3_000_000),
                clock_error_ns=paces.randrange(-400_000, 400_000),
                blocking_streams=(SIDE_STREAM,) if plan.blocking else (),
                queue_depth=rng.choice((0, 0, 0, 24)) if rank == 0 else ranks[0].queue_depth,
            )
        )
    return Program(tuple(ranks))


def _plan(rng: random.Random, ranks_n: int, *, certain: bool) -> _Plan:
    unwanted = [*(_INFERRED if certain else ()), *(_RARE if rng.random() < 0.85 else ())]
    kinds = [kind for kind in _BLOCKS if kind not in unwanted]
    steps_n, blocks_n = rng.randint(2, 4), rng.randint(2, 7)
    pattern = [rng.choice(kinds) for _ in range(blocks_n)]
    steps = []
    for _ in range(steps_n):
        extra = [rng.choice(kinds)] if rng.random() < 0.3 else []
        steps.append(("reduce", *pattern, *extra, rng.choice(("stream_sync", "kernels"))))
    kernel_ns = rng.choice((2500, 8000, 30_000))
    graphs = any("graph" in kind for step in steps for kind in step)
    return _Plan(
        ranks_n,
        kernel_ns,
        host_ns=rng.choice((700, 3000)),
        steps=tuple(steps),
        stepped=rng.random() < 0.9,
        blocking=not graphs and rng.random() < 0.2,
    )


def _ahead(plan: _Plan, seed: int) -> _Plan:
    block = BLOCKS[seed % len(BLOCKS)]
    steps = (
        tuple(kind if kind not in _WAITING else "kernels" for kind in kinds) for kinds in plan.steps
    )
    return replace(
        plan, kernel_ns=40_000, host_ns=700, steps=tuple((*kinds, block) for kinds in steps)
    )


def _threads(plan: _Plan, make: Maker, *, certain: bool) -> tuple[tuple[Instruction, ...], ...]:
    main: list[Instruction] = [make.host(3000), make.kernel(POINTWISE, 2000), make.host(2000)]
    helper: list[Instruction] = []
    for number, kinds in enumerate(plan.steps):
        body: list[Instruction] = []
        for place, kind in enumerate(kinds):
            if kind == "handed_over":
                token = f"{number}.{place}"
                body += [Signal(f"go {token}"), Await(f"done {token}"), make.host(plan.host_ns)]
                body.append(make.kernel(POINTWISE, plan.kernel_ns))
                helper += [Await(f"go {token}"), make.host(plan.host_ns)]
                helper += [*_kernels(make, plan), Signal(f"done {token}")]
            elif kind in BLOCKS:
                body += make.block(kind)
            else:
                body += _BLOCKS[kind](make, plan)
        main += make.step(number, body) if plan.stepped else body
    return (tuple(main), tuple(helper)) if helper else (tuple(main),)


def _kernels(make: Maker, plan: _Plan) -> list[Instruction]:
    instruction: list[Instruction] = []
    for _ in range(make.rng.randint(2, 4)):
        instruction += [
            make.host(plan.host_ns),
            make.kernel(make.rng.choice(_KERNELS), plan.kernel_ns),
        ]
    return instruction


def _reduce(make: Maker, plan: _Plan) -> list[Instruction]:
    return [make.kernel(GEMM, plan.kernel_ns), make.reduce(plan.kernel_ns)]


def _side_stream(make: Maker, plan: _Plan) -> list[Instruction]:
    return [
        *make.join(7, SIDE_STREAM),
        make.kernel(ATTENTION, 2 * plan.kernel_ns, stream=SIDE_STREAM),
        *_kernels(make, plan),
        *make.join(SIDE_STREAM, 7),
        make.kernel(POINTWISE, plan.kernel_ns),
    ]


def _bucket(make: Maker, plan: _Plan) -> list[Instruction]:
    return [
        make.kernel(GEMM, plan.kernel_ns),
        *make.join(7, COMM_STREAM),
        make.reduce(2 * plan.kernel_ns, stream=COMM_STREAM, name=ALL_GATHER),
        *_kernels(make, plan),
        *make.join(COMM_STREAM, 7),
        make.kernel(POINTWISE, plan.kernel_ns),
    ]


def _copies(make: Maker, plan: _Plan) -> list[Instruction]:
    return [
        make.copy("HtoD", plan.kernel_ns * 2),
        make.kernel(GEMM, plan.kernel_ns),
        make.enqueue(copy_work("memset", make.ns(1500))),
        make.copy("DtoD", plan.kernel_ns, stream=7),
        *make.join(COPY_STREAM, 7),
        make.kernel(POINTWISE, plan.kernel_ns),
    ]


def _pageable(make: Maker, plan: _Plan) -> list[Instruction]:
    staged = make.copy("HtoD", plan.kernel_ns, stream=7, pageable=True)
    call_ns = make.ns(9000)
    return [replace(staged, call_ns=call_ns, submit_ns=call_ns // 2), *_kernels(make, plan)]


def _blocking(make: Maker, plan: _Plan) -> list[Instruction]:
    name = make.rng.choice(("cudaMemcpy_v3020", "cudaMemcpyAsync_v3020"))
    work = copy_work("DtoH", make.ns(plan.kernel_ns), pageable=True)
    copy = Blocking(work, 7, make.ns(4000), make.ns(3000), make.ns(1000), name)
    return [make.kernel(GEMM, plan.kernel_ns), copy]


def _stream_sync(make: Maker, plan: _Plan) -> list[Instruction]:
    return [*_kernels(make, plan), Sync("stream", 7, wake_ns=make.ns(3000))]


def _device_sync(make: Maker, plan: _Plan) -> list[Instruction]:
    return [*_kernels(make, plan), Sync("device", wake_ns=make.ns(3500))]


def _event_sync(make: Maker, plan: _Plan) -> list[Instruction]:
    return [
        make.kernel(GEMM, plan.kernel_ns),
        Record("done", call_ns=make.ns(1200)),
        *_kernels(make, plan),
        Sync("event", event="done", wake_ns=make.ns(2500)),
    ]


def _calls(make: Maker, plan: _Plan) -> list[Instruction]:
    poll = Call("cudaEventQuery_v3020", make.ns(900))
    return [
        Call("cudaMalloc_v3020", make.ns(15_000)),
        make.kernel(GEMM, plan.kernel_ns),
        poll,
        make.host(500),
        poll,
        Call("cudaGetDevice_v3020", make.ns(300)),
        make.kernel(POINTWISE, plan.kernel_ns),
    ]


def _first_launch(make: Maker, plan: _Plan) -> list[Instruction]:
    launch = make.kernel(ATTENTION, plan.kernel_ns)
    return [replace(launch, call_ns=make.ns(40_000), load_ns=make.ns(20_000))]


def _early_start(make: Maker, plan: _Plan) -> list[Instruction]:
    """Return a launch whose kernel begins before the call returns."""
    launch = make.kernel(GEMM, plan.kernel_ns)
    return [make.host(9000), replace(launch, call_ns=make.ns(9000), submit_ns=make.ns(3000))]


def _ranges(make: Maker, plan: _Plan) -> list[Instruction]:
    inner = [Push("attention"), *_kernels(make, plan), Pop()]
    return [Push("layer"), make.host(plan.host_ns), *inner, *_kernels(make, plan), Pop()]


def _flush(make: Maker, plan: _Plan) -> list[Instruction]:
    return [make.kernel(GEMM, plan.kernel_ns), Flush(make.ns(20_000)), *_kernels(make, plan)]


def _graph(make: Maker, plan: _Plan) -> list[Instruction]:
    works = [Work(make.rng.choice(_KERNELS), make.ns(plan.kernel_ns)) for _ in range(5)]
    streams = (7, 7, SIDE_STREAM, 7, SIDE_STREAM)
    nodes = [Node(*pair, lag_ns=make.ns(600)) for pair in zip(works, streams, strict=True)]
    return _around_graph(make, plan, tuple(nodes))


def _crossed_graph(make: Maker, plan: _Plan) -> list[Instruction]:
    works = [Work(make.rng.choice(_KERNELS), make.ns(plan.kernel_ns)) for _ in range(5)]
    nodes = (
        Node(works[0], 7),
        Node(works[1], SIDE_STREAM, after=(0,)),
        Node(works[2], 7),
        Node(works[3], 7, after=(1,)),
        Node(works[4], SIDE_STREAM),
    )
    return _around_graph(make, plan, nodes)


def _around_graph(make: Maker, plan: _Plan, nodes: tuple[Node, ...]) -> list[Instruction]:
    launch = LaunchGraph(nodes, call_ns=make.ns(9000), latency_ns=make.ns(2500))
    return [make.kernel(GEMM, plan.kernel_ns), launch, *_kernels(make, plan)]


def _full_device(make: Maker, plan: _Plan) -> list[Instruction]:
    side = make.kernel(ATTENTION, plan.kernel_ns, stream=SIDE_STREAM)
    return [
        make.kernel(GEMM, 4 * plan.kernel_ns),
        replace(side, room_after=7),
        *make.join(SIDE_STREAM, 7),
        make.kernel(POINTWISE, plan.kernel_ns),
    ]


def _second_device(make: Maker, plan: _Plan) -> list[Instruction]:
    other = make.kernel(GEMM, 3 * plan.kernel_ns)
    return [
        make.kernel(POINTWISE, plan.kernel_ns),
        replace(other, device=1),
        Sync("device", device=1, wake_ns=make.ns(3000)),
        *_kernels(make, plan),
    ]


def _nothing(make: Maker, plan: _Plan) -> list[Instruction]:
    raise AssertionError("the helper thread's blocks are made where both threads are known")


_BLOCKS: Final[dict[str, Callable[[Maker, _Plan], list[Instruction]]]] = {
    "kernels": _kernels,
    "reduce": _reduce,
    "side_stream": _side_stream,
    "bucket": _bucket,
    "copies": _copies,
    "pageable": _pageable,
    "blocking": _blocking,
    "stream_sync": _stream_sync,
    "device_sync": _device_sync,
    "event_sync": _event_sync,
    "calls": _calls,
    "first_launch": _first_launch,
    "early_start": _early_start,
    "ranges": _ranges,
    "flush": _flush,
    "graph": _graph,
    "crossed_graph": _crossed_graph,
    "handed_over": _nothing,
    "full_device": _full_device,
    "second_device": _second_device,
}
#: Blocks with edges that no row shows.
_INFERRED: Final = ("crossed_graph", "handed_over", "full_device")
#: Blocks in which the host waits for the device.
_WAITING: Final = ("blocking", "stream_sync", "device_sync", "event_sync", "second_device")
#: Blocks that only few jobs have.
_RARE: Final = ("second_device",)
