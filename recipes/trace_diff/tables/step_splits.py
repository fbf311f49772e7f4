"""The wall-clock time of the steps of each GPU, split into classes that add up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.compared.rank import RankSums
from nsys_llm.facts.compared.step_walls import DeviceStepWalls, StepWalls
from nsys_llm.facts.compared.step_works import Work
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.communication_split import exposed_ns, waiting_and_transfer
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, IDLE_CAUSES_N
from nsys_llm.taxonomy.wall_classes import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    IDLE,
    NOT_MATCHED,
    PROFILER,
    TRANSFER,
    WAITING,
    WHOLE_GRAPH,
)

from .runs import RunSums

FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Class and detail; the detail is None where none is known.
Part = tuple[str, str | None]
#: Rank number (or position), and position among the devices of the rank: GPUs are paired by it.
Gpu = tuple[int, int]
#: Time of each part, ns; a GPU's add up to its step.
Split = dict[Part, float]

SPAN: Final = "window"
#: Part of computation: what equal work would have taken more or less.
ADJUSTED: Final[Part] = (COMPUTE, "adjusted to equal work")
#: Detail of idle time that is no part of the cost of a step.
BETWEEN: Final[Part] = (IDLE, "between steps")


@dataclass(frozen=True)
class GpuSteps:
    """The full steps of one GPU of one run.

    Attributes:
        parts: Shape (steps,), time of each part but computation.
        compute: Shape (works,), by category of kernels.
    """

    walls: StepWalls
    steps: DeviceStepWalls
    parts: Mapping[Part, IntArray]
    compute: Mapping[str, IntArray]

    @property
    def compute_ns(self) -> IntArray:
        """Computation of each step, shape (steps,)."""
        return np.asarray(self.steps.wall_ns - self.steps.sums_ns.sum(axis=1))

    def split(self, weights: FloatArray) -> Split:
        """Return the weighted sum of the steps, part by part; weights of shape (steps,).

        Categories of computation are those of all steps of the same work, scaled to these steps.
        """
        split = {part: float((ns * weights).sum()) for part, ns in self.parts.items()}
        whole_ns = float((self.compute_ns * weights).sum())
        work, works_n = self.steps.work, len(self.walls.works)
        shares = np.bincount(work, weights, works_n) / np.maximum(
            np.bincount(work, minlength=works_n), 1
        )
        by_category = {name: float((ns * shares).sum()) for name, ns in self.compute.items()}
        scale = whole_ns / (sum(by_category.values()) or 1.0)
        split |= {(COMPUTE, name): ns * scale for name, ns in by_category.items()}
        if not by_category:
            split[COMPUTE, None] = whole_ns
        return split


@dataclass(frozen=True)
class RunSteps:
    """The full steps of a run in order of time, each one value; arrays of shape (steps,).

    GPUs wait for each other, so a step is the mean of those that all have it; where they do other
    work in steps of one number, they do not, and their steps stand one after the other.

    Attributes:
        name: What most ranks call a step; None without steps.
        unit: Likewise step, layer, graph, period, or window without steps.
        left_n: Steps of a rank that the filters leave, cut ones and the warm-up among them.
        unparsed_n: Steps of an engine of which the name tells nothing.
        gpu: Position of the GPU; -1 where a step is that of all.
        keys_n: Keys of context; -1 where not told.
        program_ns: Without the profiler's own work.
        between_ns: Part of it before the step began on the host.
        by_gpu: Shape (steps, GPUs), program_ns of each GPU; one column where they stand one after
            the other.
    """

    name: str | None
    unit: str
    left_n: int
    unparsed_n: int
    gpus: Mapping[Gpu, GpuSteps]
    gpu: IntArray
    number: IntArray
    work: tuple[Work, ...]
    keys_n: IntArray
    wall_ns: FloatArray
    program_ns: FloatArray
    between_ns: FloatArray
    by_gpu: FloatArray

    def __len__(self) -> int:
        return len(self.work)

    @classmethod
    def of(
        cls,
        name: str | None,
        unit: str,
        gpus: Mapping[Gpu, GpuSteps],
        left_n: int = 0,
        unparsed_n: int = 0,
    ) -> RunSteps:
        """Line up the steps of some GPUs."""
        every = list(gpus.values())
        numbers = [gpu.steps.number for gpu in every] or [np.empty(0, dtype=np.int64)]
        common = reduce(np.intersect1d, numbers)
        shared = [np.searchsorted(number, common) for number in numbers]
        works = {_works(gpu, row) for gpu, row in zip(every, shared, strict=False)}
        if len(works) == 1:
            parts = [_lined_up(-1, every, shared)]
        else:
            alone = zip(every, numbers, strict=False)
            parts = [_lined_up(i, [gpu], [np.arange(n.size)]) for i, (gpu, n) in enumerate(alone)]
        work = tuple(work for part in parts for work in part.pop("work"))
        columns = {column: joined([part[column] for part in parts]) for column in _LINED_UP}
        return cls(name, unit, left_n, unparsed_n, gpus, work=work, **columns)

    @property
    def steps_n(self) -> int:
        """Full steps of the GPU that has most."""
        return max((gpu.steps.number.size for gpu in self.gpus.values()), default=0)

    def rows_of(self, place: int, gpu: GpuSteps) -> IntArray:
        """Return the row of each step of the GPU at a place, -1 for none."""
        rows = np.flatnonzero((self.gpu < 0) | (self.gpu == place))
        row_of = dict(zip(self.number[rows].tolist(), rows.tolist(), strict=True))
        return np.array([row_of.get(number, -1) for number in gpu.steps.number.tolist()], np.int64)


_LINED_UP: Final = (
    "gpu", "number", "keys_n", "wall_ns", "program_ns", "between_ns", "by_gpu",
)  # fmt: skip


def _lined_up(place: int, gpus: Sequence[GpuSteps], rows: Sequence[IntArray]) -> dict[str, Any]:
    """Return the columns of `RunSteps` for some rows of GPUs that do each step together."""
    walls, profiler, between = (
        np.array([getattr(gpu.steps, name)[row] for gpu, row in zip(gpus, rows, strict=True)])
        for name in ("wall_ns", "profiler_ns", "between_ns")
    )
    steps, program = gpus[0].steps, (walls - profiler).astype(np.float64)
    return {
        "gpu": np.full(rows[0].size, place),
        "number": steps.number[rows[0]],
        "work": _works(gpus[0], rows[0]),
        "keys_n": steps.keys_n[rows[0]],
        "wall_ns": walls.mean(axis=0),
        "program_ns": program.mean(axis=0),
        "between_ns": between.mean(axis=0),
        "by_gpu": program.T,
    }


def _works(gpu: GpuSteps, rows: IntArray) -> tuple[Work, ...]:
    return tuple(gpu.walls.works[code] for code in gpu.steps.work[rows].tolist())


def run_steps(
    run: RunSums,
    ranks: frozenset[int],
    category: Callable[[str], str],
    collectives: MatchedCollectives,
    walls: Callable[[RankSums], StepWalls],
) -> RunSteps:
    """Return the full steps of some ranks of a run.

    Args:
        ranks: Numbers of the ranks; places, where they have none.
        walls: Returns the steps of a rank that are meant, or its window as a whole.
    """
    walls_of = {rank.key: walls(sums) for rank, sums in run.ranks}
    votes = Counter((some.name, some.unit) for some in walls_of.values() if some.devices)
    if not votes:
        return RunSteps.of(None, SPAN, {})
    name, unit = min(votes, key=lambda vote: (-votes[vote], vote[0] is None, str(vote)))
    gpus: dict[Gpu, GpuSteps] = {}
    left_n = unparsed_n = 0
    for place, (rank, sums) in enumerate(run.ranks):
        of_rank, number = walls_of[rank.key], place if rank.number is None else rank.number
        if (of_rank.name, of_rank.unit) != (name, unit):
            continue
        left_n = max(left_n, of_rank.left_n)
        unparsed_n = max(unparsed_n, of_rank.unparsed_n)
        for position, device in enumerate(of_rank.devices if number in ranks else ()):
            owner = collectives.owners.get((rank.key, device.device_id))
            parts = dict(_parts(sums, device, collectives, owner))
            compute = _compute(of_rank, device, category)
            gpus[number, position] = GpuSteps(of_rank, device, parts, compute)
    return RunSteps.of(name, unit, gpus, left_n, unparsed_n)


def mean_split(splits: Mapping[Gpu, Split]) -> Split:
    """Return the mean of all GPUs."""
    parts = dict.fromkeys(part for split in splits.values() for part in split)
    return {
        part: sum(split.get(part, 0.0) for split in splits.values()) / len(splits) for part in parts
    }


def total(split: Split, *wall_classes: str) -> float:
    """Return the time of some classes, of all without any."""
    return sum(ns for (name, _), ns in split.items() if not wall_classes or name in wall_classes)


def program_ns(split: Split) -> float:
    """Return the time without the profiler's own work."""
    return total(split) - total(split, PROFILER)


def _parts(
    sums: RankSums, device: DeviceStepWalls, collectives: MatchedCollectives, owner: int | None
) -> Iterator[tuple[Part, IntArray]]:
    """Yield the parts of one GPU but computation, time by step."""
    communication, copies, profiler, idle = device.sums_ns.T
    yield from _communication(device, communication, collectives, owner)
    yield (COPIES, None), copies
    yield (PROFILER, None), profiler
    is_known = bool(sums.devices) and all(item.idle_ns is not None for item in sums.devices)
    if device.idle_ns is not None and is_known:
        for code, cause in enumerate(CAUSE_NAMES[:IDLE_CAUSES_N]):
            ns = device.idle_ns[:, code]
            if ns.any():
                idle = idle - ns
                yield (IDLE, cause), ns
    yield (IDLE, None), idle


def _compute(
    walls: StepWalls, device: DeviceStepWalls, category: Callable[[str], str]
) -> dict[str, IntArray]:
    labels = [*(category(name) for name in walls.names), WHOLE_GRAPH]
    parts: dict[str, IntArray] = {}
    columns = (device.compute.work, device.compute.key, device.compute.sums[:, 0])
    for work, name, ns in zip(*(column.tolist() for column in columns), strict=True):
        if (label := labels[name]) not in parts:
            parts[label] = np.zeros(len(walls.works), dtype=np.int64)
        parts[label][work] += ns
    return parts


def _communication(
    device: DeviceStepWalls, whole: IntArray, collectives: MatchedCollectives, owner: int | None
) -> Iterator[tuple[Part, IntArray]]:
    spans = None
    if owner is not None and whole.any():
        spans = waiting_and_transfer(collectives.sequences, owner)
    if spans is None or not len(spans[1]):
        yield (COMMUNICATION, None), whole
        return
    # Windows of a rank without steps are one step.
    waited, moved = exposed_ns(*spans, device.exposed, device.start_ns)
    yield (COMMUNICATION, WAITING), waited
    yield (COMMUNICATION, TRANSFER), moved
    yield (COMMUNICATION, NOT_MATCHED), whole - moved - waited
