"""Simulated jobs along axes of parallelism, with what is true of them.

Ranks count along tp first, then cp, dp and pp. Hosts run ahead of their GPUs and block once a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from random import Random
from typing import Final

from judgement.jobs import each_rank
from machine import simulate
from machine.outcome import Operation, Outcome
from machine.parts import BLOCKS, GEMM, POINTWISE, SEND_RECV, Block, Maker, ranked
from machine.program import Instruction, Program
from pipeline_world import World, order_1f1b

AXES: Final = ("tp", "cp", "dp", "pp")
#: Streams of transfers: received and sent, of activations and of gradients.
_STREAMS: Final = {("F", "in"): 21, ("F", "out"): 22, ("B", "in"): 23, ("B", "out"): 24}
_DATA_STREAM: Final = 30


@dataclass(frozen=True)
class Plan:
    """A job.

    Attributes:
        sizes: Ranks along each axis; 1 where it is not there.
        schedule: `gpipe`, `1f1b` or `interleaved`.
        microbatches_n: Of a step.
        chunks_n: Parts of the model on each stage; above 1 where it is interleaved.
        paces: How long each stage computes, in shares of the usual time.
        closing: Whether all ranks reduce something at the end of a step.
        one_host: Whether all ranks are on one machine.
        one_stream: Whether messages of both directions share a stream.
        block: How hosts block, see `machine.parts`.
        late: A stage whose host does something else for so long before each of its computations.
        steps_n: Steps.
        seed: Of all that varies.
    """

    sizes: dict[str, int]
    schedule: str = "gpipe"
    microbatches_n: int = 4
    chunks_n: int = 1
    paces: tuple[float, ...] = ()
    closing: bool = False
    one_host: bool = True
    one_stream: bool = False
    block: Block = "sync"
    late: tuple[int, int] | None = None
    steps_n: int = 6
    seed: int = 0
    closing_after: int = field(default=6000)

    @property
    def ranks_n(self) -> int:
        count = 1
        for axis in AXES:
            count *= self.size(axis)
        return count

    def size(self, axis: str) -> int:
        return self.sizes.get(axis, 1)

    @property
    def messages_n(self) -> int:
        """Messages from a stage to the next in a step."""
        return self.microbatches_n * self.chunks_n

    def places(self, rank: int) -> dict[str, int]:
        places = {}
        for axis in AXES:
            rank, places[axis] = divmod(rank, self.size(axis))
        return places

    def number(self, places: dict[str, int]) -> int:
        number, width = 0, 1
        for axis in AXES:
            number += width * places[axis]
            width *= self.size(axis)
        return number

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """Return the ranks that differ from one along an axis alone."""
        places = self.places(rank)
        return tuple(self.number({**places, axis: at}) for at in range(self.size(axis)))

    def groups(self) -> dict[tuple[int, ...], set[str]]:
        """Return all groups that communicate, with their axes; stages in pairs."""
        groups: dict[tuple[int, ...], set[str]] = {}
        for axis, rank in product(AXES, range(self.ranks_n)):
            members = self.group(axis, rank)
            if axis == "pp":
                ring = self.chunks_n > 1 and len(members) > 2
                pairs = [*pairwise(members), *([(members[0], members[-1])] if ring else [])]
                for pair in pairs:
                    groups.setdefault(pair, set()).add(axis)
            elif len(members) > 1:
                groups.setdefault(members, set()).add(axis)
        if self.closing:
            groups.setdefault(tuple(range(self.ranks_n)), set()).add("world")
        return groups

    def order(self, stage: int) -> Iterator[tuple[str, int, int]]:
        """Return direction (F, B), microbatch and chunk of each computation of a stage."""
        if self.schedule == "gpipe":
            return iter([(way, at, 0) for way in "FB" for at in range(self.microbatches_n)])
        world = World(self.size("pp"), self.microbatches_n, chunks_n=self.chunks_n)
        return iter(order_1f1b(world, stage))

    @cached_property
    def program(self) -> Program:

        def body(make: Maker, rank: int, _step: int) -> list[Instruction]:
            make.spread = 0.03
            return [*_step_of(self, make, rank), *make.block(self.block)]

        program = ranked(self.ranks_n, self.steps_n, body, self.seed)
        clocks = Random(self.seed)
        return each_rank(
            program,
            lambda _: {
                "capture_ns": -clocks.randrange(2_000_000),
                "clock_error_ns": 0 if self.one_host else clocks.randrange(-20_000, 20_000),
                "host": "node" if self.one_host else "",
            },
        )

    @cached_property
    def outcome(self) -> Outcome:
        return simulate(self.program)


def random_pipeline(seed: int) -> Plan:
    """Return a pipeline of single ranks: any schedule, even or not."""
    dice = Random(seed)
    schedule = dice.choice(("gpipe", "1f1b", "interleaved"))
    # By time alone, four stages in lockstep are at times matched with others than their neighbors.
    stages_n = {"gpipe": dice.choice((2, 3)), "1f1b": dice.choice((2, 3, 4))}.get(schedule, 3)
    many = stages_n * dice.choice((1, 2)) if schedule == "interleaved" else dice.choice((4, 6))
    paces = [1.0] * stages_n
    if dice.random() < 0.5:
        paces[dice.randrange(stages_n)] = dice.choice((1.2, 1.5))
    one_host = dice.random() < 0.5
    return Plan(
        {"pp": stages_n},
        schedule,
        many,
        chunks_n=2 if schedule == "interleaved" else 1,
        paces=tuple(paces),
        closing=not one_host or dice.random() < 0.5,
        one_host=one_host,
        block=dice.choice(BLOCKS),
        seed=seed,
    )


def _step_of(plan: Plan, make: Maker, rank: int) -> list[Instruction]:
    places = plan.places(rank)
    stage, stages_n = places["pp"], plan.size("pp")
    last = stages_n * plan.chunks_n - 1
    pace = plan.paces[stage] if plan.paces else 1.0
    launches: list[Instruction] = []

    def message(way: str, virtual: int, side: str) -> list[Instruction]:
        """Receive from or send to the stage that is next in a direction, if there is one."""
        ahead = (way == "F") == (side == "out")
        other = virtual + (1 if ahead else -1)
        if not 0 <= other <= last or stages_n == 1:
            return []
        peer = plan.number({**places, "pp": other % stages_n})
        # What goes back is another sequence of messages than what goes on.
        source, goal = (rank, peer) if side == "out" else (peer, rank)
        group = tuple(sorted((rank, peer))) if plan.one_stream else (source, goal)
        stream = 20 if plan.one_stream else _STREAMS[way, side]
        # Stages are in step with each other; their links are not, by microseconds.
        length_ns = 20_000 * make.rng.uniform(0.4, 1.6)
        moved = make.reduce(length_ns, name=SEND_RECV, group=group, stream=stream)
        return [moved, *make.join(stream, 7)] if side == "in" else [*make.join(7, stream), moved]

    for way, _, chunk in plan.order(stage):
        virtual = chunk * stages_n + stage
        launches += message(way, virtual, "in")
        if plan.late is not None and plan.late[0] == stage:
            launches.append(make.host(plan.late[1]))
        for _ in range(2):
            length_ns = (50_000 if way == "F" else 100_000) * pace / plan.chunks_n
            launches.append(make.kernel(GEMM, length_ns))
            if plan.size("cp") > 1:
                launches.append(make.reduce(6000, name=SEND_RECV, group=plan.group("cp", rank)))
            if plan.size("tp") > 1:
                launches.append(make.reduce(6000, group=plan.group("tp", rank)))
        launches += message(way, virtual, "out")
    if plan.size("dp") > 1:
        launches += make.join(7, _DATA_STREAM)
        launches.append(make.reduce(12_000, group=plan.group("dp", rank), stream=_DATA_STREAM))
        launches += make.join(_DATA_STREAM, 7)
    if plan.closing:
        launches.append(make.reduce(plan.closing_after))
    return [*launches, make.kernel(POINTWISE, 7000)]


@dataclass(frozen=True)
class Bubble:
    """What is true of one step of one rank, ns, found by looking at each piece of time."""

    window_ns: int
    compute_ns: int
    transfer_ns: int
    wait_stage_ns: int
    wait_own_ns: int
    copy_ns: int
    idle_ns: int
    host_ns: int


def true_bubbles(plan: Plan) -> dict[tuple[int, int], Bubble]:
    """Return the bubble of each rank and step.

    All instants at which anything begins or ends cut the time into pieces; each is looked at.
    """
    outcome = plan.outcome
    edges = {rank: _edges(outcome.operations[rank], plan.steps_n) for rank in range(plan.ranks_n)}
    first = {
        (rank, step): min(max(op.start, low) for op in ops if op.end > low)
        for rank, ops in enumerate(outcome.operations)
        for step, low in enumerate(edges[rank][:-1])
    }
    working = [(rank, start_ns, edges[rank][step + 1]) for (rank, step), start_ns in first.items()]
    return {
        (rank, step): _bubble(plan, rank, (edges[rank][step], edges[rank][step + 1]), working)
        for rank, step in first
    }


_CLASSES: Final = ("compute", "transfer", "wait_stage", "wait_own", "copy", "idle", "host")


def _edges(ops: list[Operation], steps_n: int) -> list[int]:
    ends = [max(op.end for op in ops if op.step <= step) for step in range(steps_n)]
    return [min(op.start for op in ops), *ends]


def _bubble(
    plan: Plan, rank: int, window: tuple[int, int], working: list[tuple[int, int, int]]
) -> Bubble:
    ops = plan.outcome.operations[rank]
    stage = plan.places(rank)["pp"]
    near = [op for op in ops if op.start < window[1] and op.end > window[0]]
    first_ns = min(max(op.start, window[0]) for op in ops if op.end > window[0])
    others = [
        span
        for other, *span in working
        if plan.places(other)["pp"] != stage and span[0] < window[1]
    ]
    cuts = {*window, *(instant for span in others for instant in span)}
    for op in near:
        cuts |= {op.start, op.end, *([op.last_member.start] if op.members else [])}
    cut = sorted(at for at in cuts if window[0] <= at <= window[1])
    sums = dict.fromkeys(_CLASSES, 0)
    for low, high in pairwise(cut):
        now = [op for op in near if op.start <= low and op.end >= high]
        kind = _kind(plan, now, low, stage)
        sums[kind] += high - low
        if kind == "idle":
            ends_it = min((op for op in ops if op.start >= high), key=lambda op: op.start)
            begins = max([op.end for op in ops if op.end <= low], default=window[0])
            ahead = ends_it.call.end <= begins
            others_work = any(span[0] <= low and span[1] >= high for span in others)
            if not ahead and not (high <= first_ns and others_work):
                sums["host"] += high - low
    return Bubble(window[1] - window[0], *sums.values())


def _kind(plan: Plan, now: list[Operation], at_ns: int, stage: int) -> str:
    if any(op.work.kind == "kernel" for op in now):
        return "compute"
    met = [op for op in now if op.members]
    if any(op.last_member.start <= at_ns for op in met):
        return "transfer"
    lasts = [plan.places(op.last_member.rank)["pp"] for op in met]
    if any(other != stage for other in lasts):
        return "wait_stage"
    return "wait_own" if lasts else "copy" if now else "idle"
