"""Compares what_if of step_budget with the simulated job run again with the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from machine import changes, oracle, simulate
from machine.outcome import Outcome
from machine.program import (
    Blocking,
    Enqueue,
    Instruction,
    LaunchGraph,
    Program,
    Rank,
    Sync,
)

Change = Callable[[Instruction], Instruction | None]

#: A change as --what-if has it, and the program with it.
Truth = tuple[str, Program]


def rewritten(program: Program, change: Change) -> Program:
    """Return a program with each instruction replaced; None leaves it out."""
    ranks: list[Rank] = []
    for rank in program.ranks:
        threads = [[change(instruction) for instruction in thread] for thread in rank.threads]
        kept = tuple(
            tuple(instruction for instruction in thread if instruction is not None)
            for thread in threads
        )
        ranks.append(replace(rank, threads=kept))
    return Program(tuple(ranks))


def steady(program: Program) -> Program:
    """Return a program whose lags of one kind are alike: a profile shows them wherever they bind.

    A lag that binds only after a change is nowhere in the profile; its usual length is what a
    replay has to take. Neither is when in its call a launch is submitted, nor how long a wait takes
    that never finds its work done: as long as it takes to wake up.
    """

    def alike(instruction: Instruction) -> Instruction:
        match instruction:
            case Enqueue():
                return replace(instruction, lag_ns=1000, latency_ns=1800, submit_ns=None)
            case Blocking():
                return replace(instruction, lag_ns=1000, wake_ns=3000, staging_ns=1800)
            case Sync():
                return replace(instruction, wake_ns=3000, least_ns=3000)
            case LaunchGraph():
                nodes = tuple(replace(node, lag_ns=600) for node in instruction.nodes)
                return replace(instruction, latency_ns=1800, nodes=nodes)
        return instruction

    return rewritten(program, alike)


def cheap_launches(program: Program, price_ns: int) -> Program:
    """Return a program whose launches cost no more; they load code and stage as before."""

    def cheaper(instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Enqueue) or instruction.work.pageable:
            return instruction
        return replace(
            instruction, call_ns=min(instruction.call_ns, price_ns + instruction.load_ns)
        )

    return rewritten(program, cheaper)


def without_waits(program: Program, what: str) -> Program:
    return rewritten(
        program,
        lambda instruction: (
            None if isinstance(instruction, Sync) and instruction.what == what else instruction
        ),
    )


def truths(program: Program, *, matched: bool) -> Iterator[Truth]:
    """Return changes, each with the program that has it.

    Args:
        program: The job.
        matched: Whether all of its communication is matched; else transfer is not told.
    """
    yield "kernel:nvjet=0.5", changes.with_scaled(program, "nvjet", 0.5)
    yield "kernel:nvjet=2", changes.with_scaled(program, "nvjet", 2)
    yield "kernel:flash=0", changes.with_scaled(program, "flash", 0)
    yield "copies=0", changes.with_free_copies(program)
    yield "host=0", changes.with_fast_host(program)
    yield "launches=500ns", cheap_launches(program, 500)
    for what in ("Device", "Stream", "Event"):
        yield f"wait:cuda{what}Synchronize", without_waits(program, what.lower())
    if matched:
        yield "device=0", changes.with_fast_device(program)
        yield "transfer=0.5", changes.with_transfers(program, 0.5)


def steps_ns(outcome: Outcome, recorded: Outcome) -> int:
    """Return how long all steps take, from where the first begins.

    Operations belong to the steps to which they belonged in the recorded run: where the host takes
    no time, all of its ranges begin at once.
    """
    begins = []
    for rank, operations in enumerate(outcome.operations):
        first = [span for span in outcome.ranges[rank] if span.step == 0]
        if not first:
            bounds = oracle.job_bounds(outcome)
            return bounds[-1] - bounds[0]
        inside = min(op.number for op in recorded.operations[rank] if op.step >= 0)
        for device in {op.device for op in operations}:
            earlier = [op for op in operations if op.device == device and op.number < inside]
            begins.append(max([first[0].start, *(op.end for op in earlier)]))
    return oracle.job_bounds(outcome)[-1] - min(begins)


def true_steps_ns(truth: Program, recorded: Outcome) -> int:
    """Return how long all steps of a changed program take."""
    return steps_ns(simulate(truth), recorded)
