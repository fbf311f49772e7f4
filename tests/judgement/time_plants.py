"""Jobs whose fault comes at some time: from a step on, growing, once, every few steps, in turns.

Each makes a job of some ranks and steps, with its fault or without it, all else the same, and says
what is planted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from judgement.jobs import FLASH_3, job, layers
from machine.parts import ALL_REDUCE, GEMM, POINTWISE, Maker, copy_work
from machine.program import Blocking, Compute, Instruction, Pop, Program, Push, Work


@dataclass(frozen=True)
class Truth:
    """What is planted.

    Attributes:
        kind: As the table `when` calls it; "steady" where it says nothing.
        ranks: Whose it is; none where that is all of them.
        first: The first step of it.
    """

    kind: str
    ranks: tuple[int, ...] = ()
    first: int | None = None


Body = Callable[[Maker, int, int], list[Instruction]]
Plant = tuple[Program, Truth]


def _job(dice: Random, body: Body, ranks_n: int, steps_n: int) -> Program:
    return job(dice, body, ranks_n=ranks_n, steps_n=steps_n)


def _slow(make: Maker, pct: int) -> list[Instruction]:
    return layers(make, times=dict.fromkeys((GEMM, FLASH_3, POINTWISE), pct / 100))


def _in(name: str, ns: float) -> list[Instruction]:
    return [Push(name), Compute(round(ns)), Pop()]


def _slow_steps(
    dice: Random, ranks_n: int, steps_n: int, pcts: dict[tuple[int, int], int], *, fault: bool
) -> Program:
    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        return _slow(make, pcts.get((rank, step), 100) if fault else 100)

    return _job(dice, body, ranks_n, steps_n)


def throttling(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """One rank's kernels take longer from a step on."""
    rank, at = dice.randrange(ranks_n), dice.randrange(steps_n // 3, 2 * steps_n // 3)
    pct = dice.choice((120, 132, 150))
    pcts = {(rank, step): pct for step in range(at, steps_n)}
    return _slow_steps(dice, ranks_n, steps_n, pcts, fault=fault), Truth("from", (rank,), at)


def all_slower(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """The kernels of all ranks take longer from a step on."""
    at = dice.randrange(steps_n // 3, 2 * steps_n // 3)
    pcts = {(rank, step): 130 for rank in range(ranks_n) for step in range(at, steps_n)}
    return _slow_steps(dice, ranks_n, steps_n, pcts, fault=fault), Truth("from", (), at)


def larger_batches(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """From a step on, kernels of all ranks have more blocks, and take longer for it."""
    at = dice.randrange(steps_n // 3, 2 * steps_n // 3)

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        if not fault or step < at:
            return layers(make)
        return [
            replace(item, work=replace(item.work, blocks=13 * item.work.blocks // 10 + 1))
            if isinstance(work := getattr(item, "work", None), Work) and work.kind == "kernel"
            else item
            for item in _slow(make, 130)
        ]

    return _job(dice, body, ranks_n, steps_n), Truth("steady")


def one_after_other(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """Two ranks are slow, one after the other."""
    ranks, part = tuple(dice.sample(range(ranks_n), 2)), steps_n // 3
    at = max(steps_n // 6, 1)
    pcts = {(ranks[0], step): 132 for step in range(at, at + part)}
    pcts |= {(ranks[1], step): 132 for step in range(at + part, at + 2 * part)}
    return _slow_steps(dice, ranks_n, steps_n, pcts, fault=fault), Truth("between", ranks, at)


def _paused(
    dice: Random,
    ranks_n: int,
    steps_n: int,
    pauses_ns: dict[tuple[int, int], float],
    name: str,
    *,
    fault: bool,
) -> Program:
    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        pause_ns = pauses_ns.get((rank, step), 0) if fault else 0
        return [*(_in(name, pause_ns) if pause_ns else _in(name, 3_000)), *layers(make)]

    return _job(dice, body, ranks_n, steps_n)


def growing_loader(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """The loader of all ranks takes longer and longer."""
    most_ns = dice.choice((500_000, 730_000))
    pauses = {
        (rank, step): most_ns * step / steps_n for rank in range(ranks_n) for step in range(steps_n)
    }
    return _paused(dice, ranks_n, steps_n, pauses, "load", fault=fault), Truth("grows")


def recompiled(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """All ranks compile in one step, one a little longer than the others."""
    at, worst = dice.randrange(steps_n // 3, steps_n - 2), dice.randrange(ranks_n)
    pauses = {(rank, at): 7e6 + 1e5 * (rank == worst) for rank in range(ranks_n)}
    program = _paused(dice, ranks_n, steps_n, pauses, "convert_frame", fault=fault)
    return program, Truth("once", (), at)


def one_pause(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """One rank's host pauses in one step."""
    at, rank = dice.randrange(steps_n // 3, steps_n - 2), dice.randrange(ranks_n)
    program = _paused(dice, ranks_n, steps_n, {(rank, at): 5e6}, "data", fault=fault)
    return program, Truth("once", (rank,), at)


def slow_reduction(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """One reduction takes 7 ms."""
    at = dice.randrange(steps_n // 3, steps_n - 2)

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        launches = layers(make)
        if fault and step == at:
            slow = make.reduce(10_000)
            launches[3] = replace(
                slow, work=Work(ALL_REDUCE, 7_000_000, "collective", group=slow.work.group)
            )
        return launches

    return _job(dice, body, ranks_n, steps_n), Truth("once", (), at)


def random_pauses(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """One rank's host pauses in some steps."""
    rank = dice.randrange(ranks_n)
    steps = sorted(dice.sample(range(2, steps_n), max(steps_n // 8, 4)))
    program = _paused(
        dice, ranks_n, steps_n, {(rank, at): 1.5e6 for at in steps}, "data", fault=fault
    )
    return program, Truth("times", (rank,), steps[0])


def checkpoints(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """Every few steps all ranks copy their state to the host."""
    every = steps_n // 3

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        saved = Blocking(copy_work("DtoH", make.ns(3_000_000), pageable=True))
        here = fault and step % every == every - 1
        return [*layers(make), *([Push("save_checkpoint"), saved, Pop()] if here else [])]

    return _job(dice, body, ranks_n, steps_n), Truth("every", (), every - 1)


def collections_in_turns(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """In each step another rank collects garbage."""
    pauses = {(step % ranks_n, step): 550_000.0 for step in range(steps_n)}
    program = _paused(dice, ranks_n, steps_n, pauses, "prepare", fault=fault)
    return program, Truth("turns", tuple(range(ranks_n)), 0)


def warm_up(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """The first steps take longer, each less."""
    pauses = {(rank, step): 4e5 * 0.6**step for rank in range(ranks_n) for step in range(steps_n)}
    return _paused(dice, ranks_n, steps_n, pauses, "load", fault=fault), Truth("steady")


def drift(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """Kernels of one rank take 2 % longer by the end."""
    rank = dice.randrange(ranks_n)
    pcts = {(rank, step): 100 + 2 * step // steps_n for step in range(steps_n)}
    return _slow_steps(dice, ranks_n, steps_n, pcts, fault=fault), Truth("steady")


def even(dice: Random, ranks_n: int, steps_n: int, *, fault: bool) -> Plant:
    """Nothing."""
    return _slow_steps(dice, ranks_n, steps_n, {}, fault=fault), Truth("steady")


PLANTS: Final = {
    plant.__name__: plant
    for plant in (
        throttling,
        all_slower,
        larger_batches,
        one_after_other,
        growing_loader,
        recompiled,
        one_pause,
        slow_reduction,
        random_pauses,
        checkpoints,
        collections_in_turns,
        warm_up,
        drift,
        even,
    )
}
