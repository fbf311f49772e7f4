"""What plants are made of: jobs of equal ranks whose hosts run ahead and block once a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from machine.parts import BLOCKS, GEMM, POINTWISE, Maker, ranked
from machine.program import Enqueue, Instruction, Program

#: A kernel of attention for which there is no faster one.
FLASH_3: Final = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<(int)2>, flash::CollectiveEpilogueFwd<>>>>(T1::Params)"
)
#: Length of the kernels of a layer, and of its reduction, in shares of its matrix product.
_LAYER: Final = ((GEMM, 1.0), (FLASH_3, 0.7), (POINTWISE, 0.2))
_REDUCE: Final = 0.15

#: Fault of instructions that no change makes faster: no request is there, or a model is loaded.
FIXED: Final = "fixed"

Body = Callable[[Maker, int, int], list[Instruction]]


@dataclass(frozen=True)
class Wanted:
    """A cause that is right: its kind, and its rank and a part of its detail where they matter."""

    kind: str
    rank: int | None = None
    detail: str = ""


#: A job, and the causes of which any is right; none for a job without a fault.
Planted = tuple[Program, tuple[Wanted, ...]]
#: Makes a job with the fault or without it, all else the same.
Builder = Callable[[Random, bool], Planted]


def layer(
    make: Maker, kernel_ns: float = 60_000, *, reduce: float = _REDUCE, times: Any = None
) -> list[Instruction]:
    """Return a layer: three kernels and a reduction over all ranks.

    Args:
        kernel_ns: Length of the matrix product.
        reduce: Length of the reduction, in shares of it.
        times: How many times as long kernels take on this rank, by name.
    """
    more = times or {}
    launches: list[Instruction] = []
    for name, share in _LAYER:
        launches += [make.host(700), make.kernel(name, kernel_ns * share * more.get(name, 1.0))]
    return [*launches, make.reduce(kernel_ns * reduce)]


def layers(make: Maker, count: int = 5, **options: Any) -> list[Instruction]:
    return [instruction for _ in range(count) for instruction in layer(make, **options)]


def job(
    dice: Random, body: Body, *, ranks_n: int = 4, steps_n: int = 14, stepped: bool = True
) -> Program:
    """Return a job of equal ranks, each on a machine of its own with a clock of its own.

    After its body each rank blocks once a step, all in the same way. The noise of kernels is 3 %.
    """
    block, seed = dice.choice(BLOCKS), dice.randrange(1 << 20)

    def step_of(make: Maker, rank: int, step: int) -> list[Instruction]:
        make.spread = 0.03
        return [*body(make, rank, step), *make.block(block)]

    program = ranked(ranks_n, steps_n, step_of, seed, stepped=stepped)
    clocks = Random(seed)
    return each_rank(
        program,
        lambda _: {
            "capture_ns": -clocks.randrange(2_000_000),
            "clock_error_ns": clocks.randrange(-400_000, 400_000),
        },
    )


def each_rank(program: Program, fields: Callable[[int], dict[str, Any]]) -> Program:
    ranks = (replace(rank, **fields(number)) for number, rank in enumerate(program.ranks))
    return Program(tuple(ranks))


def one_rank(program: Program, number: int, **fields: Any) -> Program:
    """Return a program of which one rank has other fields."""
    return each_rank(program, lambda rank: fields if rank == number else {})


def is_reduction(instruction: Instruction) -> bool:
    return isinstance(instruction, Enqueue) and instruction.work.kind == "collective"
