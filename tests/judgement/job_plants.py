"""Jobs whose hosts, copies, kernels or communication cost time, each for one reason."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from judgement.jobs import (
    FIXED,
    FLASH_3,
    Planted,
    Wanted,
    each_rank,
    is_reduction,
    job,
    layer,
    layers,
)
from machine import random_program
from machine.parts import (
    COMM_STREAM,
    COPY_STREAM,
    GEMM,
    POINTWISE,
    SEND_RECV,
    SIDE_STREAM,
    Maker,
    copy_work,
)
from machine.program import (
    Blocking,
    Enqueue,
    Instruction,
    LaunchGraph,
    Node,
    Pop,
    Program,
    Push,
    Rank,
    Spin,
    Sync,
    Work,
)

_HOST: Final = (Wanted("host"), Wanted("wait"))
_EAGER: Final = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float>>(int)"
)


def host_of_all(dice: Random, fault: bool) -> Planted:
    """All hosts load data before they launch a step, which they cannot do ahead."""
    late_ns = dice.choice((80_000, 250_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        loading = [Push("data"), make.host(late_ns), Pop()]
        # Whatever blocks at the end of the step, this one keeps the host from running ahead.
        return [Sync("stream"), *(loading if fault else ()), *layers(make)]

    return job(dice, body, ranks_n=2), _HOST


def launch_bound(dice: Random, fault: bool) -> Planted:
    """Launches take longer than the kernels they start; without the fault a graph has them all.

    What the kernels are is innocent, even where they could be fused.
    """
    name = dice.choice((POINTWISE, _EAGER))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        kernels = [make.kernel(name, 2500, call_ns=5500) for _ in range(100)]
        if fault:
            return [*kernels, make.reduce(9000)]
        nodes = (Node(launch.work, lag_ns=launch.lag_ns) for launch in kernels)
        return [LaunchGraph(tuple(nodes)), make.reduce(9000)]

    return job(dice, body, ranks_n=dice.choice((1, 2))), (Wanted("host"),)


def queued(dice: Random, fault: bool) -> Planted:
    """Many tiny kernels, whose launches are far ahead; without the fault half as many."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        kernels = [make.kernel(POINTWISE, 2500, call_ns=2000) for _ in range(150)]
        if fault:
            return [_alone(launch) for launch in kernels]
        lengths = [launch.work.ns for launch in kernels]
        return [
            _alone(replace(launch, work=replace(launch.work, ns=first_ns + second_ns)))
            for launch, first_ns, second_ns in zip(
                kernels[::2], lengths[::2], lengths[1::2], strict=True
            )
        ]

    return job(dice, body, ranks_n=1), (Wanted("queued"), Wanted("dependency"))


def sync_in_step(dice: Random, fault: bool) -> Planted:
    """Waits amid a step keep the hosts from running ahead."""
    waits_n = dice.choice((2, 4))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        for _ in range(waits_n):
            launches += [*layer(make), *((Sync("stream"),) if fault else ())]
            launches += [make.kernel(POINTWISE, 2500, call_ns=5000) for _ in range(12)]
        return [*launches, *layer(make)]

    return job(dice, body, ranks_n=2), (Wanted("wait"), Wanted("host"))


def spin_in_step(dice: Random, fault: bool) -> Planted:
    """The hosts wait amid a step for flags in memory, which is not recorded, and then launch."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        for _ in range(4):
            launches += [*layer(make), *((Spin(),) if fault else ())]
            launches += [make.host(20_000), make.kernel(POINTWISE, 2500)]
        return [*launches, *layer(make)]

    return job(dice, body, ranks_n=2), (Wanted("host"),)


def pageable(dice: Random, fault: bool) -> Planted:
    """A blocking copy from pageable memory in each step; else ahead on a stream of its own."""
    copy_ns = dice.choice((120_000, 300_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        work = copy_work("HtoD", make.ns(copy_ns), pageable=True)
        if fault:
            return [Blocking(work), *layers(make)]
        ahead = make.enqueue(replace(work, pageable=False, ns=work.ns // 2), COPY_STREAM)
        return [*make.join(COPY_STREAM, 7), *layers(make), ahead]

    return job(dice, body, ranks_n=2), (Wanted("copies"), Wanted("wait", detail="cudaMemcpy"))


def serial_copies(dice: Random, fault: bool) -> Planted:
    """Copies in, kernels and copies out one after the other; else on three streams at once."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        for _ in range(6):
            into, out = (40, 41) if not fault else (7, 7)
            launches.append(make.copy("HtoD", 60_000, stream=into))
            launches += [] if fault else make.join(into, 7)
            launches.append(make.kernel(GEMM, 15_000))
            launches += [] if fault else make.join(7, out)
            launches.append(make.copy("DtoH", 55_000, stream=out))
        return launches if fault else [*launches, *make.join(41, 7), make.kernel(POINTWISE, 2000)]

    return job(dice, body, ranks_n=1), (Wanted("copies"),)


def load_first(dice: Random, fault: bool) -> Planted:
    """The model is loaded before the work, in which the hosts are late in each step.

    What a library runs when it starts may come before the load.
    """
    program, wanted = host_of_all(dice, fault)
    copies_n, starts = dice.choice((30, 60)), dice.random() < 0.5
    first = [Enqueue(Work(POINTWISE, 2000))] if starts else []

    def loading(rank: Rank) -> tuple[Instruction, ...]:
        load = [
            Blocking(copy_work("HtoD", 400_000, pageable=number % 2 > 0), fault=FIXED)
            for number in range(copies_n)
        ]
        return (*first, *load, *rank.threads[0])

    ranks = (replace(rank, threads=(loading(rank),)) for rank in program.ranks)
    return Program(tuple(ranks)), wanted


def unfused(dice: Random, fault: bool) -> Planted:
    """Three pointwise kernels of eager PyTorch follow each other; else one does all."""
    pass_ns = dice.choice((8_000, 20_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        for _ in range(5):
            passes = [make.kernel(_EAGER, pass_ns) for _ in range(3)]
            fused = replace(passes[0], work=replace(passes[0].work, name=POINTWISE))
            launches += [*layer(make), *(passes if fault else (fused,))]
        return launches

    return job(dice, body, ranks_n=2), (Wanted("kernels", detail="pointwise"),)


def slow_launches(dice: Random, fault: bool) -> Planted:
    """Some launches of one kernel take far longer than its others in the same configuration."""
    share, name = dice.choice((0.08, 0.15)), "acme_step_tap_v2(const float *, long *)"

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        for _ in range(8):
            slow, times = make.rng.random() < share, make.rng.uniform(3, 12)
            usual = make.kernel(name, 30_000 * (times if fault and slow else 1))
            launches += [*layer(make), usual]
        return launches

    return job(dice, body, ranks_n=1), (Wanted("kernels", detail="acme"),)


def transfer(dice: Random, fault: bool) -> Planted:
    """Reductions that nothing overlaps; else twice as fast."""
    share = dice.choice((0.8, 1.6))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        return layers(make, reduce=share if fault else share / 2)

    return job(dice, body), (Wanted("transfer"),)


def graphs_and_prefill(dice: Random, fault: bool) -> Planted:
    """Decode in graphs, and now and then a prefill whose kernels take longer: nothing is wrong."""
    every = dice.choice((4, 7))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        if step % every == 1:
            text = "execute_context_1(512)_generation_0(0)"
            return [Push(text), *layers(make, 5, kernel_ns=200_000), Pop()]
        works = [launch.work for launch in layers(make, 5, kernel_ns=15_000) if _is_kernel(launch)]
        return [Push("execute_context_0(0)_generation_8(8)"), _graph(works), Pop()]

    return job(dice, body, ranks_n=1, steps_n=24, stepped=False), ()


def empty_server(dice: Random, fault: bool) -> Planted:
    """A server that has no request now and then; the fault is a host that schedules for long.

    Four requests come together, and generate in a step at least before the server is empty again.
    """
    late_ns = dice.choice((150_000, 300_000))
    empty = {place + number for number, place in enumerate(sorted(dice.sample(range(3, 36), 5)))}

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        pause, schedule = make.host(4_000_000, fault=FIXED), make.host(late_ns)
        works = [launch.work for launch in layers(make, 8, kernel_ns=40_000) if _is_kernel(launch)]
        new_n = 4 if step in empty or not step else 0
        text = f"execute_context_{new_n}({64 * new_n})_generation_{4 - new_n}({4 - new_n})"
        before = [Sync("stream"), *((pause,) if step in empty else ())]
        late = [Push("schedule"), schedule, Pop()] if fault else []
        return [*before, *late, Push(text), _graph(works), Pop()]

    return job(dice, body, ranks_n=1, steps_n=40, stepped=False), _HOST


def full_queue(dice: Random, fault: bool) -> Planted:
    """Launches wait for room in the queue, as the GPU has enough to do: nothing is wrong."""
    program, _ = equal_ranks(dice, fault)
    return each_rank(program, lambda rank: {"queue_depth": 8}), ()


def apart(dice: Random, fault: bool) -> Planted:
    """Ranks that do the same and never meet; nothing ties their clocks: nothing is wrong."""
    return job(
        dice, lambda make, rank, step: [each for each in layers(make) if not is_reduction(each)]
    ), ()


def prefill_apart(dice: Random, fault: bool) -> Planted:
    """One rank prefills and sends what it has to the other, which decodes: nothing is wrong."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        move = make.reduce(30_000, name=SEND_RECV, group=(0, 1), stream=COMM_STREAM)
        if rank:
            decodes = [make.kernel(FLASH_3, 12_000) for _ in range(40)]
            return [move, *decodes, *make.join(COMM_STREAM, 7), make.kernel(POINTWISE, 3000)]
        return [*(make.kernel(GEMM, 90_000) for _ in range(4)), *make.join(7, COMM_STREAM), move]

    return job(dice, body, ranks_n=2), ()


def equal_ranks(dice: Random, fault: bool) -> Planted:
    ranks_n, steps_n = dice.choice((2, 4, 8)), dice.choice((4, 14, 20))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        side = make.kernel(GEMM, 30_000, stream=SIDE_STREAM)
        return [*make.join(7, SIDE_STREAM), side, *layers(make), *make.join(SIDE_STREAM, 7)]

    return job(dice, body, ranks_n=ranks_n, steps_n=steps_n), ()


def _alone(launch: Enqueue) -> Enqueue:
    return replace(launch, lag_ns=launch.lag_ns * 5 // 4)


def random_equals(dice: Random, fault: bool) -> Planted:
    """Whatever the machine can do, on equal ranks whose hosts run ahead: nothing is wrong.

    All launch the same, each for a length of its own: a random program gives some more to compute.
    """
    program = random_program(dice.randrange(1 << 20), ahead=True)
    threads = program.ranks[0].threads
    return each_rank(
        program,
        lambda rank: {
            "gpu_pct": 100,
            "host_pct": 100,
            "threads": tuple(tuple(_varied(item, dice) for item in thread) for thread in threads),
        },
    ), ()


def _varied(instruction: Instruction, dice: Random) -> Instruction:
    if not _is_kernel(instruction):
        return instruction
    length_ns = max(1, round(instruction.work.ns * dice.uniform(0.8, 1.2)))
    return replace(instruction, work=replace(instruction.work, ns=length_ns))


def _is_kernel(instruction: Instruction) -> bool:
    return isinstance(instruction, Enqueue) and instruction.work.kind == "kernel"


def _graph(works: list[Work]) -> LaunchGraph:
    return LaunchGraph(tuple(Node(work, lag_ns=600) for work in works))
