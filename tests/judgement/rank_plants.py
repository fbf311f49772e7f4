"""Ranks that are slow or late, each for one reason, and ranks that only seem so."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from judgement.jobs import FLASH_3, Planted, Wanted, each_rank, is_reduction, job, layers, one_rank
from machine.parts import COMM_STREAM, GEMM, POINTWISE, SEND_RECV, SIDE_STREAM, Maker
from machine.program import Enqueue, Flush, Instruction, Pop, Program, Push, Sync


def _rank(rank: int) -> tuple[Wanted, ...]:
    return (Wanted("rank", rank),)


def _plain(make: Maker, rank: int, step: int) -> list[Instruction]:
    return layers(make)


def _slow(dice: Random, fault: bool) -> tuple[Program, int]:
    rank, pct = dice.randrange(4), dice.choice((107, 115, 130))
    return one_rank(job(dice, _plain), rank, gpu_pct=pct if fault else 100), rank


def slow_gpu(dice: Random, fault: bool) -> Planted:
    """All kernels of one rank take longer."""
    program, rank = _slow(dice, fault)
    return program, _rank(rank)


def more_work(dice: Random, fault: bool) -> Planted:
    """One rank has more to compute in one kernel; without the fault all have a share of it."""
    slow, more = dice.randrange(4), dice.choice((0.3, 0.6))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        here = more * (rank == slow) if fault else more / 4
        return layers(make, times={GEMM: 1 + here})

    return job(dice, body), _rank(slow)


def more_launches(dice: Random, fault: bool) -> Planted:
    """One rank launches four kernels that each of the ranks should launch one of."""
    slow, length_ns = dice.randrange(4), dice.choice((30_000, 60_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        more = [make.kernel(GEMM, length_ns) for _ in range(4)]
        here = 4 * (rank == slow) if fault else 1
        return [*more[:here], *layers(make, 10, kernel_ns=30_000)]

    return job(dice, body), _rank(slow)


def slow_machine(dice: Random, fault: bool) -> Planted:
    slow, pct = dice.randrange(2), dice.choice((112, 125))
    program = on_two_machines(job(dice, _plain))
    program = each_rank(
        program, lambda rank: {"gpu_pct": pct if fault and rank // 2 == slow else 100}
    )
    return program, (*_rank(2 * slow), *_rank(2 * slow + 1))


def late_host(dice: Random, fault: bool) -> Planted:
    """One rank's host loads data for longer than the others' before it launches a step."""
    slow, late_ns = dice.randrange(4), dice.choice((100_000, 250_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        late = make.host(late_ns)
        loading = [Push("data"), late, Pop()] if fault and rank == slow else []
        return [*loading, *layers(make)]

    return job(dice, body), (*_rank(slow), Wanted("host", slow))


def late_for_no_reason(dice: Random, fault: bool) -> Planted:
    """A kernel of one rank starts late in each step, though it was launched long before."""
    slow, late_ns = dice.randrange(4), dice.choice((100_000, 250_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches, lag_ns = layers(make), make.ns(late_ns)
        if not (fault and rank == slow):
            return launches
        first = launches[8]
        assert isinstance(first, Enqueue)
        return [*launches[:8], replace(first, lag_ns=lag_ns), *launches[9:]]

    return job(dice, body), _rank(slow)


def pauses(dice: Random, fault: bool) -> Planted:
    """One rank's host pauses in a few steps."""
    slow, at = dice.randrange(4), set(dice.sample(range(1, 14), 3))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        pause = make.host(900_000)
        paused = [Push("data"), pause, Pop()] if fault and rank == slow and step in at else []
        return [*paused, *layers(make)]

    return job(dice, body), (*_rank(slow), Wanted("host", slow))


def context_ring(dice: Random, fault: bool) -> Planted:
    """One of 8 context parallel ranks has more attention; each exchanges with both neighbors."""
    slow, more = dice.randrange(8), dice.choice((0.4, 0.59))
    rounds_n, kernel_ns = dice.choice((4, 8)), dice.choice((30_000, 60_000))
    moved_ns, hidden = dice.choice((15_000, 25_000)), dice.random() < 0.7

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        longer = 1 + (more * (rank == slow) if fault else more / 8)
        for _ in range(3):
            launches += [make.kernel(GEMM, 80_000), make.kernel(POINTWISE, 10_000)]
            for _ in range(rounds_n):
                moved = make.reduce(moved_ns, name=SEND_RECV, stream=COMM_STREAM)
                moved = replace(moved, work=replace(moved.work, ring=True))
                attention, waits = (
                    make.kernel(FLASH_3, kernel_ns * longer),
                    make.join(COMM_STREAM, 7),
                )
                beside = [attention, *waits] if hidden else [*waits, attention]
                launches += [*make.join(7, COMM_STREAM), moved, *beside]
        return launches

    return job(dice, body, ranks_n=8, steps_n=8), _rank(slow)


def pauses_of_gpu(dice: Random, fault: bool) -> Planted:
    """A kernel of one rank starts late in a few steps; its host loads a little in a few others.

    The pauses are not the host's, although it is late as well: these are two faults.
    """
    slow, steps = dice.randrange(4), dice.sample(range(1, 14), 6)

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches, lag_ns, late = layers(make), make.ns(900_000), make.host(100_000)
        first = launches[8]
        assert isinstance(first, Enqueue)
        here = fault and rank == slow
        if here and step in steps[:3]:
            return [*launches[:8], replace(first, lag_ns=lag_ns), *launches[9:]]
        # Whatever blocks at the end of the step, this one keeps the host from running ahead.
        loading = [Push("data"), late, Pop()] if here and step in steps[3:] else []
        return [Sync("stream"), *loading, *launches]

    return job(dice, body), _rank(slow)


def slow_aside(dice: Random, fault: bool) -> Planted:
    """Work of one rank takes longer, all of it beside other work: nobody waits for it."""
    slow = dice.randrange(4)

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        ns = 250_000 if fault and rank == slow else 120_000
        side = make.kernel("gemm_bf16_aside(int)", ns, stream=SIDE_STREAM)
        return [*make.join(7, SIDE_STREAM), side, *layers(make), *make.join(SIDE_STREAM, 7)]

    return job(dice, body), ()


def flushed(dice: Random, fault: bool) -> Planted:
    """The profiler holds one rank up in each step: nobody is to blame."""
    slow, held_ns = dice.randrange(4), dice.choice((100_000, 400_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        flush = Flush(make.ns(held_ns))
        return [*((flush,) if fault and step and rank == slow else ()), *layers(make)]

    return job(dice, body), ()


def late_in_grid(dice: Random, fault: bool) -> Planted:
    """Of 2 tensor parallel by 2 data parallel ranks one is late or slow, and its partner waits.

    The partner comes late to its own data parallel collective for that, and is innocent. As in
    backward, that one is launched amid the layers and joined at the end of the step.
    """
    slow, by_host = dice.randrange(4), dice.random() < 0.6
    late_ns, pct = dice.choice((100_000, 250_000)), dice.choice((115, 130))
    count, kernel_ns = dice.choice((1, 2)), dice.choice((30_000, 60_000, 120_000, 200_000))
    transfer_ns, last_ns = dice.choice((20_000, 100_000, 300_000)), dice.choice((5_000, 60_000))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        tensors = (rank // 2 * 2, rank // 2 * 2 + 1)
        late = make.host(late_ns)
        loading = [Push("data"), late, Pop()] if fault and by_host and rank == slow else []
        launches = [
            replace(item, work=replace(item.work, group=tensors)) if is_reduction(item) else item
            for item in layers(make, count, kernel_ns=kernel_ns)
        ]
        data = make.reduce(transfer_ns, group=(rank % 2, rank % 2 + 2), stream=COMM_STREAM)
        amid = len(launches) // 2
        launches[amid:amid] = [*make.join(7, COMM_STREAM), data]
        return [*loading, *launches, *make.join(COMM_STREAM, 7), make.kernel(POINTWISE, last_ns)]

    gpu_pct = pct if fault and not by_host else 100
    program = one_rank(job(dice, body), slow, gpu_pct=gpu_pct)
    return program, (*_rank(slow), *((Wanted("host", slow),) if by_host else ()))


def on_two_machines(program: Program) -> Program:
    """Return a job whose ranks share two machines, and so two clocks."""
    half = program.ranks_n // 2
    errors = [program.ranks[rank].clock_error_ns for rank in (0, half)]
    return each_rank(
        program,
        lambda rank: {"host": f"node-{rank // half}", "clock_error_ns": errors[rank // half]},
    )


def slewing_clocks(dice: Random, fault: bool) -> Planted:
    """One rank is slow, and the clocks of both machines change their rates in the middle."""
    program, rank = _slow(dice, fault)
    rates = [((0, dice.randrange(-40, 40)), (9_000_000, dice.randrange(-40, 40))) for _ in "ab"]
    program = on_two_machines(program)
    return each_rank(program, lambda number: {"rates": rates[number // 2]}), _rank(rank)


def cut_start(dice: Random, fault: bool) -> Planted:
    """One rank is slow, and all captures begin amid the first step."""
    program, rank = _slow(dice, fault)
    begins = [dice.randrange(200_000, 700_000) for _ in program.ranks]
    return each_rank(program, lambda number: {"capture_ns": begins[number]}), _rank(rank)


def rotating(dice: Random, fault: bool) -> Planted:
    """Another rank has the hot experts in each step and layer; grids follow tokens."""
    return _experts(dice, fault, pinned=False)


def pinned(dice: Random, fault: bool) -> Planted:
    """One rank has the hot experts; grids follow tokens."""
    return _experts(dice, fault, pinned=True)


MOE = "fused_moe_kernel"
DISPATCH = "void deep_ep::internode::dispatch<(bool)1, (int)4, (int)7168>(void *, float *, int *)"
COMBINE = "void deep_ep::internode::combine<(int)3, (int)4, (int)7168>(void *, void *, int *)"


def _experts(dice: Random, fault: bool, *, pinned: bool) -> Planted:
    hot, share = dice.randrange(4), dice.choice((0.4, 0.8))

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches: list[Instruction] = []
        for place in range(4):
            there = hot if pinned else Random(f"{hot} {step} {place}").randrange(4)
            more = 1 + share if rank == there else 1 - share / 3
            expert = make.kernel(MOE, 90_000 * (more if fault else 1))
            blocks = expert.work.ns // 500
            launches += [
                make.kernel(GEMM, 40_000),
                make.reduce(9_000, name=DISPATCH),
                replace(expert, work=replace(expert.work, blocks=blocks)),
                make.reduce(9_000, name=COMBINE),
                make.kernel(POINTWISE, 6_000),
            ]
        return launches

    one = _rank(hot) if pinned else ()
    return job(dice, body), (Wanted("experts"), *one)
