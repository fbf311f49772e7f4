"""Other jobs made of one: with a fault left out, or with lengths changed. For true gains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from machine.program import (
    Await,
    Blocking,
    Call,
    Compute,
    Enqueue,
    Instruction,
    LaunchGraph,
    Pop,
    Program,
    Push,
    Record,
    Signal,
    Sync,
    WaitEvent,
    Work,
)

_Change = Callable[[Instruction], Instruction | None]


def _changed(program: Program, change: _Change, rank: int | None = None) -> Program:
    """Return a program with each instruction of one or all ranks replaced; None leaves it out."""
    ranks = []
    for number, rank_program in enumerate(program.ranks):
        if rank in (None, number):
            made = [
                [change(instruction) for instruction in thread] for thread in rank_program.threads
            ]
            rank_program = replace(
                rank_program,
                threads=tuple(tuple(each for each in thread if each) for thread in made),
            )
        ranks.append(rank_program)
    return Program(tuple(ranks))


def _with_works(
    program: Program, change: Callable[[Work], Work], rank: int | None = None
) -> Program:

    def changed(instruction: Instruction) -> Instruction:
        if isinstance(instruction, Enqueue | Blocking):
            return replace(instruction, work=change(instruction.work))
        if isinstance(instruction, LaunchGraph):
            nodes = (replace(node, work=change(node.work)) for node in instruction.nodes)
            return replace(instruction, nodes=tuple(nodes))
        return instruction

    return _changed(program, changed, rank)


def with_scaled(program: Program, name: str, factor: float, *, rank: int | None = None) -> Program:
    """Scale the operations whose name contains `name`, on one or all ranks."""

    def scaled(work: Work) -> Work:
        return replace(work, ns=round(work.ns * factor)) if name in work.name else work

    return _with_works(program, scaled, rank)


def with_transfers(program: Program, factor: float) -> Program:
    """Scale what collectives take from their last member's start on."""

    def scaled(work: Work) -> Work:
        return replace(work, ns=round(work.ns * factor)) if work.kind == "collective" else work

    return _with_works(program, scaled)


def with_free_copies(program: Program) -> Program:
    """Let copies and fills take no time on the device."""
    return _with_works(
        program, lambda work: work if work.kind in ("kernel", "collective") else replace(work, ns=0)
    )


def with_lags(program: Program, factor: float) -> Program:
    """Scale what streams take from the end of an operation to the start of the next."""

    def scaled(instruction: Instruction) -> Instruction:
        match instruction:
            case Enqueue() | Blocking():
                return replace(instruction, lag_ns=round(instruction.lag_ns * factor))
            case LaunchGraph():
                nodes = (
                    replace(node, lag_ns=round(node.lag_ns * factor)) for node in instruction.nodes
                )
                return replace(instruction, nodes=tuple(nodes))
        return instruction

    return _changed(program, scaled)


def with_fast_device(program: Program) -> Program:
    return _with_works(program, lambda work: replace(work, ns=0))


def with_fast_host(program: Program) -> Program:
    """Let calls, waking up and work outside of CUDA take no time; launch latencies stay."""
    return _changed(program, _instant)


def _instant(instruction: Instruction) -> Instruction:
    match instruction:
        case Compute() | Push() | Pop() | Call() | Signal():
            return replace(instruction, ns=0)
        case Enqueue():
            submit_ns = None if instruction.submit_ns is None else 0
            return replace(instruction, call_ns=0, load_ns=0, submit_ns=submit_ns)
        case LaunchGraph() | Record() | WaitEvent():
            return replace(instruction, call_ns=0)
        case Sync():
            return replace(instruction, least_ns=0, wake_ns=0)
        case Blocking():
            return replace(instruction, staging_ns=0, wake_ns=0)
        case Await():
            return replace(instruction, wake_ns=0)
        case _:
            return instruction


def without_waits(program: Program, fault: str | None = None) -> Program:
    """Leave the waits of the host out: all of them, or those of a fault.

    A copy that blocks is queued instead: its call returns as soon as the device may begin.
    """

    def free(instruction: Instruction) -> Instruction | None:
        if fault not in (None, instruction.fault):
            return instruction
        if isinstance(instruction, Blocking) and not instruction.fault:
            return Enqueue(
                instruction.work,
                instruction.stream,
                call_ns=instruction.staging_ns,
                latency_ns=0,
                lag_ns=instruction.lag_ns,
                device=instruction.device,
            )
        return None if isinstance(instruction, Sync) else instruction

    return _changed(program, free)


def without_fault(program: Program, fault: str) -> Program:
    """Leave all instructions of a fault out."""
    return _changed(
        program, lambda instruction: None if instruction.fault == fault else instruction
    )


def without_slow_rank(program: Program, rank: int) -> Program:
    """Let a rank's kernels and host work be as fast as told."""
    ranks = list(program.ranks)
    ranks[rank] = replace(ranks[rank], gpu_pct=100, host_pct=100)
    return Program(tuple(ranks))
