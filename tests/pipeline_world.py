"""Pipelines of stages that send to and receive from each other; the truth is known.

Each point-to-point kernel has one peer: it ends on both ranks, within a few us, some time after
the later of its two starts. Nothing of the peer is recorded, as in a profile of NCCL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from trace_builder import TraceBuilder

from nsys_llm.job.collectives.alignment import Executions
from nsys_llm.job.collectives.matching import Lane

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"


@dataclass
class Ran:
    """What one rank ran: transfers (key, stream, start, end), computations (start, end, kind)."""

    transfers: list[tuple[object, int, int, int]] = field(default_factory=list)
    computes: list[tuple[int, int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class World:
    """Knobs of a pipeline; times in us.

    Attributes:
        stages_n: Ranks.
        microbatches_n: Per step.
        steps_n: Steps.
        chunks_n: Model chunks a rank; above 1 the schedule is interleaved.
        forward_us: Of one microbatch and chunk; backward takes twice that.
        jitter: Relative standard deviation of a computation.
        slow: Pace of single ranks.
        late: For how long the host of single ranks launches nothing before each computation.
        seed: Of all that varies.
    """

    stages_n: int
    microbatches_n: int
    steps_n: int = 4
    chunks_n: int = 1
    forward_us: float = 1000.0
    transfer_us: float = 60.0
    jitter: float = 0.03
    slow: tuple[tuple[int, float], ...] = ()
    late: tuple[tuple[int, float], ...] = ()
    seed: int = 0


def order_1f1b(world: World, rank: int) -> list[tuple[str, int, int]]:
    """Return (direction, microbatch, chunk) of a rank's computations, as Megatron orders them."""
    stages, many, chunks = world.stages_n, world.microbatches_n, world.chunks_n
    total = many * chunks
    if chunks == 1:
        warm = min(stages - rank - 1, many)
    else:
        warm = min((stages - rank - 1) * 2 + (chunks - 1) * stages, total)

    def item(kind: str, number: int) -> tuple[str, int, int]:
        if chunks == 1:
            return kind, number, 0
        group, place = divmod(number, stages * chunks)
        chunk = place // stages
        return (kind, group * stages + place % stages, chunk if kind == "F" else chunks - 1 - chunk)

    order = [item("F", number) for number in range(warm)]
    for number in range(total - warm):
        order += [item("F", warm + number), item("B", number)]
    return order + [item("B", number) for number in range(total - warm, total)]


def run(world: World) -> list[Ran]:
    """Run asynchronous sends and receives, a stream for each peer and direction."""
    rng = np.random.default_rng(world.seed)
    ran = [Ran() for _ in range(world.stages_n)]
    free = [0.0] * world.stages_n
    streams: dict[tuple[int, object], float] = {}
    for step in range(world.steps_n):
        begun = [free_us + float(rng.uniform(0, 100)) for free_us in free]
        if step:
            begun = [max(free) + float(rng.uniform(0, 100))] * world.stages_n
        free = begun
        _run_step(world, step, ran, free, streams, rng)
    return ran


def _run_step(world, step, ran, free, streams, rng):
    """Run a step of all ranks; `free` is when each can begin, and then when it has ended."""
    stages, last = world.stages_n, world.stages_n * world.chunks_n - 1
    pace = [dict(world.slow).get(rank, 1.0) for rank in range(stages)]
    orders = [order_1f1b(world, rank) for rank in range(stages)]
    place, posted = [0] * stages, list(free)
    sent: dict[tuple[str, int, int], float] = {}

    def advance(rank: int) -> bool:
        """Compute once more, if what it takes was sent."""
        if place[rank] == len(orders[rank]):
            return False
        kind, micro, chunk = orders[rank][place[rank]]
        virtual = chunk * stages + rank
        source, goal = (virtual - 1, virtual + 1) if kind == "F" else (virtual + 1, virtual - 1)
        key, start = (kind, micro, virtual), free[rank]
        if 0 <= source <= last:
            if key not in sent:
                return False
            sender, receiver = (source % stages, sent.pop(key)), (rank, posted[rank])
            there = _transfer(ran, streams, rng, world, (step, *key), sender, receiver)
            start = max(start, there)
        start += dict(world.late).get(rank, 0.0)
        length = world.forward_us * pace[rank] / world.chunks_n
        length *= 2.0 if kind == "B" else 1.0
        length *= max(0.2, 1 + world.jitter * rng.standard_normal())
        posted[rank], free[rank] = free[rank], start + length
        ran[rank].computes.append((round(1000 * start), round(1000 * free[rank]), kind))
        if 0 <= goal <= last:
            sent[kind, micro, goal] = free[rank]
        place[rank] += 1
        return True

    while any(place[rank] < len(orders[rank]) for rank in range(stages)):
        moved = [rank for rank in range(stages) for _ in iter(partial(advance, rank), False)]
        assert moved, "deadlock"


def _transfer(ran, streams, rng, world, key, sender, receiver):
    """Send between two ranks (or within one, which is no transfer); return when it is there."""
    (source, ready), (goal, posted) = sender, receiver
    if source == goal:
        return ready
    begin = {}
    for rank, name, at in ((source, ("s", goal), ready), (goal, ("r", source), posted)):
        begin[rank] = max(at, streams.get((rank, name), 0.0)) + float(rng.uniform(1, 4))
    end = max(begin.values()) + world.transfer_us * (1 + 0.05 * rng.random())
    arrived = 0.0
    for rank, name, peer in ((source, ("s", goal), goal), (goal, ("r", source), source)):
        own_end = end + float(rng.uniform(0, 3))
        streams[rank, name] = own_end
        stream = 20 + 2 * peer + (name[0] == "r")
        ran[rank].transfers.append((key, stream, round(1000 * begin[rank]), round(1000 * own_end)))
        if rank == goal:
            arrived = own_end
    return arrived


def run_blocking(world: World) -> list[Ran]:
    """Run 1F1B where a rank does one thing at a time; opposite transfers of a pair are one kernel.

    As Megatron's send_forward_recv_backward does: the kernels of all peers share one stream.
    """
    rng = np.random.default_rng(world.seed)
    stages = world.stages_n
    pace = [dict(world.slow).get(rank, 1.0) for rank in range(stages)]
    ran = [Ran() for _ in range(stages)]
    free = [0.0] * stages
    for step in range(world.steps_n):
        free = [max(free) + float(rng.uniform(0, 100)) for _ in range(stages)]
        programs = [_program(world, rank) for rank in range(stages)]
        place = [0] * stages
        while any(place[rank] < len(programs[rank]) for rank in range(stages)):
            moved = False
            for rank in range(stages):
                if place[rank] == len(programs[rank]):
                    continue
                what, detail = programs[rank][place[rank]]
                if what == "C":
                    free[rank] += dict(world.late).get(rank, 0.0)
                    length = world.forward_us * detail * pace[rank]
                    length *= max(0.2, 1 + world.jitter * rng.standard_normal())
                    span = round(1000 * free[rank]), round(1000 * (free[rank] + length))
                    ran[rank].computes.append((*span, "B" if detail == 2.0 else "F"))
                    free[rank] += length
                    place[rank] += 1
                    moved = True
                    continue
                peer = detail[0] if detail[0] != rank else detail[1]
                if place[peer] == len(programs[peer]) or programs[peer][place[peer]] != (
                    what,
                    detail,
                ):
                    continue
                begin = {party: free[party] + float(rng.uniform(1, 4)) for party in (rank, peer)}
                end = max(begin.values()) + world.transfer_us * (1 + 0.05 * rng.random())
                for party in (rank, peer):
                    own_end = end + float(rng.uniform(0, 3))
                    ran[party].transfers.append(
                        ((step, *detail), 20, round(1000 * begin[party]), round(1000 * own_end))
                    )
                    free[party] = own_end
                    place[party] += 1
                moved = True
            assert moved, "deadlock"
    return ran


def _program(world: World, rank: int) -> list[tuple[str, object]]:
    """Return what a rank does: ("C", pace) or ("P", (low, high, kind, number))."""
    stages, many = world.stages_n, world.microbatches_n
    warm = min(stages - rank - 1, many)
    first, last = rank == 0, rank == stages - 1
    steady = many - warm

    def meet(low: int, forward: int | None, backward: int | None) -> list[tuple[str, object]]:
        return [("P", (low, low + 1, forward, backward))]

    program: list[tuple[str, object]] = []
    for microbatch in range(warm):
        program += [] if first else meet(rank - 1, microbatch, None)
        program += [("C", 1.0), *([] if last else meet(rank, microbatch, None))]
    if steady and not first:
        program += meet(rank - 1, warm, None)
    for microbatch in range(steady):
        program.append(("C", 1.0))
        program += [] if last else meet(rank, warm + microbatch, microbatch)
        program.append(("C", 2.0))
        if not first:
            more = warm + microbatch + 1 if microbatch + 1 < steady else None
            program += meet(rank - 1, more, microbatch)
    for microbatch in range(steady, many):
        program += [] if last else meet(rank, None, microbatch)
        program += [("C", 2.0), *([] if first else meet(rank - 1, None, microbatch))]
    return program


def lanes_of(
    ran: Sequence[Ran], *, ahead_ns: Sequence[int] | None = None, one_clock: bool = False
) -> tuple[list[Lane], dict[tuple[int, int, int], object]]:
    """Return lanes as profiles show them, and the true key of each (rank, start, end)."""
    lanes, truth = [], {}
    for rank, rank_run in enumerate(ran):
        ahead = 0 if ahead_ns is None else ahead_ns[rank]
        for stream in sorted({transfer[1] for transfer in rank_run.transfers}):
            of_stream = [transfer for transfer in rank_run.transfers if transfer[1] == stream]
            times = np.array([transfer[2:] for transfer in of_stream], dtype=np.int64) + ahead
            track = Executions.ordered(times[:, 0], times[:, 1])
            lanes.append(Lane(rank, 0 if one_clock else rank, SEND_RECV, stream, track))
            for transfer, (start, end) in zip(of_stream, times.tolist(), strict=True):
                truth[rank, start, end] = transfer[0]
    return lanes, truth


def waiting_ns(ran: Sequence[Ran]) -> int:
    """Return the true waiting: of each transfer, the later start minus the earlier one."""
    starts: dict[object, list[int]] = {}
    for rank_run in ran:
        for key, _, start, _ in rank_run.transfers:
            starts.setdefault(key, []).append(start)
    return sum(max(both) - min(both) for both in starts.values())


COMPUTE = {"F": "gemm_bf16_forward(int)", "B": "gemm_bf16_backward(int)"}
ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
)


def write_pipeline(folder: Path, ran: Sequence[Ran], *, gradients: bool = False) -> Path:
    """Write one profile a rank of one host: computations, transfers, each launched 20 us before.

    Args:
        folder: Is made.
        ran: See `run`.
        gradients: Whether all ranks reduce once all of them are done, as gradient norms are.
    """
    folder.mkdir()
    end_ns = max(span[1] for rank_run in ran for span in rank_run.computes) + 100_000
    for rank, rank_run in enumerate(ran):
        trace = TraceBuilder(hostname="node")
        works = [(COMPUTE[kind], 7, start, end) for start, end, kind in rank_run.computes]
        works += [(SEND_RECV, stream, *span) for _, stream, *span in rank_run.transfers]
        if gradients:
            works.append((ALL_REDUCE, 90, rank_run.computes[-1][1] + 20_000, end_ns + 300_000))
        for name, stream, start, end in sorted(works, key=lambda work: work[2]):
            launch = start + 1_000_000, start + 1_005_000
            trace.kernel(
                name,
                start_ns=start + 1_020_000,
                end_ns=end + 1_020_000,
                stream_id=stream,
                launch=launch,
            )
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder
