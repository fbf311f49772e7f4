"""Pipelines of 2 to 4 stages, each a set of ranks with tensor and context parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from judgement.jobs import Planted, Wanted, job, one_rank
from machine.parts import GEMM, POINTWISE, SEND_RECV, Maker
from machine.program import Instruction, Program

#: Streams of transfers: received and sent, of activations and of gradients.
_STREAMS: Final = {("F", "in"): 21, ("F", "out"): 22, ("B", "in"): 23, ("B", "out"): 24}
_CLOSING_STREAM: Final = 25


@dataclass(frozen=True)
class _Shape:
    """A pipeline: its sizes, its schedule, and how long each stage computes."""

    stages_n: int
    tensor_n: int
    context_n: int
    microbatches_n: int
    one_f_one_b: bool
    closing: bool
    paces: tuple[float, ...]

    @property
    def width(self) -> int:
        return self.tensor_n * self.context_n

    def order(self, stage: int) -> list[str]:
        """Return the computations of a stage in a step, forward (F) and backward (B)."""
        count = self.microbatches_n
        if not self.one_f_one_b:
            return ["F"] * count + ["B"] * count
        warm = min(self.stages_n - stage - 1, count)
        return ["F"] * warm + ["F", "B"] * (count - warm) + ["B"] * warm


def _shape(dice: Random, microbatches: float = 1) -> _Shape:
    stages_n = dice.choice((2, 2, 3, 4))
    tensor_n = dice.choice((1, 2)) if stages_n in (2, 4) else 1
    context_n = dice.choice((1, 2)) if stages_n == 2 else 1
    count = round(dice.choice((4, 6)) * microbatches)
    flags = dice.random() < 0.5, dice.random() < 0.5
    return _Shape(stages_n, tensor_n, context_n, count, *flags, (1.0,) * stages_n)


def _body(shape: _Shape, make: Maker, rank: int, size: float) -> list[Instruction]:
    stage, place = divmod(rank, shape.width)
    first = stage * shape.width
    tensor = place // shape.tensor_n * shape.tensor_n + first
    tensors = tuple(range(tensor, tensor + shape.tensor_n))
    contexts = tuple(range(first + place % shape.tensor_n, first + shape.width, shape.tensor_n))

    def transfer(direction: str, way: str) -> list[Instruction]:
        """Receive from, or send to, the stage that is next in a direction, if there is one."""
        ahead = (direction == "F") == (way == "out")
        peer = rank + (shape.width if ahead else -shape.width)
        if not 0 <= peer < shape.stages_n * shape.width:
            return []
        # What goes back is another sequence of transfers than what goes on.
        group = tuple(sorted((rank, peer), reverse=direction == "B"))
        stream = _STREAMS[direction, way]
        # Ranks of a stage are in step with each other; their links are not, by microseconds.
        length_ns = 30_000 * size * make.rng.uniform(0.7, 1.3)
        moved = make.reduce(length_ns, name=SEND_RECV, group=group, stream=stream)
        return [moved, *make.join(stream, 7)] if way == "in" else [*make.join(7, stream), moved]

    launches: list[Instruction] = []
    for direction in shape.order(stage):
        length_ns = 100_000 * size * shape.paces[stage] * (1 if direction == "F" else 2)
        launches += transfer(direction, "in")
        for _ in range(2):
            launches.append(make.kernel(GEMM, length_ns))
            if shape.context_n > 1:
                launches.append(make.reduce(6000 * size, name=SEND_RECV, group=contexts))
            if shape.tensor_n > 1:
                launches.append(make.reduce(6000 * size, group=tensors))
        launches += transfer(direction, "out")
    if shape.closing:
        # Of all ranks, so of another communicator than the stages': PyTorch gives it a stream.
        closing = make.reduce(6000, stream=_CLOSING_STREAM)
        launches += [*make.join(7, _CLOSING_STREAM), closing, *make.join(_CLOSING_STREAM, 7)]
    return [*launches, make.kernel(POINTWISE, 7000)]


def _program(dice: Random, shape: _Shape, size: float = 1.0) -> Program:
    ranks_n = shape.stages_n * shape.width
    return job(
        dice, lambda make, rank, step: _body(shape, make, rank, size), ranks_n=ranks_n, steps_n=8
    )


def even_stages(dice: Random, fault: bool) -> Planted:
    """The bubble of a pipeline; with twice as many microbatches, half as large, there is less."""
    shape = _shape(dice, 1 if fault else 2)
    return _program(dice, shape, 1.0 if fault else 0.5), (Wanted("schedule"),)


def uneven_stages(dice: Random, fault: bool) -> Planted:
    """One stage computes longer; the mean stage is the same without the fault.

    There are so many microbatches that the bubble costs less.
    """
    shape = _shape(dice, 2)
    slow, more = dice.randrange(shape.stages_n), dice.choice((0.4, 0.7))
    paces = [1.0 + more * (stage == slow) for stage in range(shape.stages_n)]
    even = [1.0 + more / shape.stages_n] * shape.stages_n
    shape = _Shape(*list(vars(shape).values())[:-1], tuple(paces if fault else even))
    ranks = range(slow * shape.width, (slow + 1) * shape.width)
    return _program(dice, shape), tuple(Wanted("stage", rank) for rank in (None, *ranks))


def slow_in_stage(dice: Random, fault: bool) -> Planted:
    shape = _shape(dice, 2)
    while shape.width == 1:
        shape = _shape(dice, 2)
    slow, pct = dice.randrange(shape.stages_n * shape.width), dice.choice((125, 140))
    program = _program(dice, shape)
    return one_rank(program, slow, gpu_pct=pct if fault else 100), (Wanted("rank", slow),)
