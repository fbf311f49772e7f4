"""The wall-clock time of a step on each GPU, split into classes that add up to it; exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives
from nsys_llm.analyses.wall.communication_split import waiting_and_transfer
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import (
    IntArray,
    intersect_intervals,
    subtract_intervals,
)
from nsys_llm.report.wall import idle_details
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

from ..partials import RankSums
from ..per_rank.step_walls import DeviceSteps, StepWalls
from .runs import Run

#: Class and detail; the detail is None where none is known.
Part = tuple[str, str | None]
#: Rank number (or position) and CUDA device id.
Gpu = tuple[int, int]
#: Time of each part, ns; a GPU's add up to its step.
Split = dict[Part, Fraction]

STEP: Final = "step"
TOKEN: Final = "token"
SPAN: Final = "window"


@dataclass(frozen=True)
class StepBasis:
    """What time is compared by.

    Attributes:
        kind: `STEP`, `TOKEN` or `SPAN`.
        unit: What people call it: layer, token, ...
        weights: By what a step does, its share in the steps compared; None for all steps alike.
    """

    kind: str
    unit: str
    weights: Mapping[str, Fraction] | None = None


@dataclass(frozen=True)
class GpuSteps:
    """The full steps of one GPU of one run.

    Attributes:
        works: What steps do, by their names.
        steps: The steps.
        parts: By part its time in the steps of each work, shape (works,); they add up to the walls.
    """

    works: tuple[str, ...]
    steps: DeviceSteps
    parts: Mapping[Part, IntArray]

    @property
    def steps_n(self) -> IntArray:
        """Shape (works,), steps of each work."""
        return np.bincount(self.steps.work, minlength=len(self.works))

    @property
    def tokens_n(self) -> int | None:
        """Tokens of all steps; None where a name does not tell them, or tells none."""
        tokens = self.steps.tokens_n
        known = tokens.size and not (tokens == NULL_INT).any() and int(tokens.sum())
        return int(tokens.sum()) if known else None

    def split(self, basis: StepBasis) -> Split | None:
        """Return the time of each part on a basis; None where the GPU has nothing of it."""
        if basis.kind == TOKEN:
            tokens_n = self.tokens_n
            factors = [None if tokens_n is None else Fraction(1, tokens_n)] * len(self.works)
        else:
            factors = self._factors(basis.weights)
        known = [(place, factor) for place, factor in enumerate(factors) if factor is not None]
        if not known:
            return None
        return {
            part: sum((int(ns[place]) * factor for place, factor in known), Fraction(0))
            for part, ns in self.parts.items()
        }

    def _factors(self, weights: Mapping[str, Fraction] | None) -> list[Fraction | None]:
        counts = self.steps_n.tolist()
        if weights is None:
            whole = sum(counts)
            return [Fraction(1, whole) if whole else None] * len(counts)
        weight = [
            weights.get(work, Fraction(0)) if n else Fraction(0)
            for work, n in zip(self.works, counts, strict=True)
        ]
        whole_weight = sum(weight)
        return [
            share / whole_weight / n if share else None
            for share, n in zip(weight, counts, strict=True)
        ]


@dataclass(frozen=True)
class RunSteps:
    """The full steps of one run.

    Attributes:
        name: What most ranks call a step; None without steps.
        unit: Likewise step, layer, graph, period, or window without steps.
        gpus: The GPUs of the ranks that have such steps.
    """

    name: str | None
    unit: str
    gpus: Mapping[Gpu, GpuSteps]

    def work_counts(self) -> Counter[str]:
        """Return how many steps do what, all GPUs together."""
        counts: Counter[str] = Counter()
        for gpu in self.gpus.values():
            counts.update(dict(zip(gpu.works, gpu.steps_n.tolist(), strict=True)))
        return +counts

    @property
    def steps_n(self) -> int:
        """Full steps of the GPU that has most."""
        return max((int(gpu.steps_n.sum()) for gpu in self.gpus.values()), default=0)

    def splits(self, basis: StepBasis) -> dict[Gpu, Split]:
        """Return the split of each GPU that has one on a basis."""
        split_of = {key: gpu.split(basis) for key, gpu in self.gpus.items()}
        return {key: split for key, split in split_of.items() if split is not None}


def run_steps(
    run: Run, category: Callable[[str], str], collectives: MatchedCollectives
) -> RunSteps:
    """Return the full steps of a run.

    Args:
        run: One side.
        category: Of a kernel, by its full name.
        collectives: Its collectives.
    """
    ranks = {rank.key: sums.walls for rank, sums in run.ranks}
    votes = Counter((walls.name, walls.unit) for walls in ranks.values() if walls.devices)
    if not votes:
        return RunSteps(None, SPAN, {})
    name, unit = min(votes, key=lambda vote: (-votes[vote], vote[0] is None, str(vote)))
    owners = {
        (device.rank.key, device.device_id): place
        for place, device in enumerate(collectives.devices)
    }
    gpus: dict[Gpu, GpuSteps] = {}
    for place, (rank, sums) in enumerate(run.ranks):
        walls = sums.walls
        if (walls.name, walls.unit) != (name, unit):
            continue
        for device in walls.devices:
            owner = owners.get((rank.key, device.device_id))
            parts = dict(_parts(sums, device, category, collectives, owner))
            number = place if rank.number is None else rank.number
            gpus[number, device.device_id] = GpuSteps(walls.works, device, parts)
    return RunSteps(name, unit, gpus)


def mean_split(splits: Mapping[Gpu, Split]) -> Split:
    """Return the mean of all GPUs."""
    parts = dict.fromkeys(part for split in splits.values() for part in split)
    return {
        part: sum((split.get(part, Fraction(0)) for split in splits.values()), Fraction(0))
        / len(splits)
        for part in parts
    }


def total(split: Split, *wall_classes: str) -> Fraction:
    """Return the time of some classes, of all without any."""
    return sum(
        (ns for (name, _), ns in split.items() if not wall_classes or name in wall_classes),
        Fraction(0),
    )


def _parts(
    sums: RankSums,
    device: DeviceSteps,
    category: Callable[[str], str],
    collectives: MatchedCollectives,
    owner: int | None,
) -> Iterator[tuple[Part, IntArray]]:
    """Yield the parts of one GPU, time by work; they add up to the walls."""
    communication, copies, profiler, idle = device.sums_ns.T
    yield from _compute(sums.walls, device, category).items()
    yield from _communication(device, communication, collectives, owner)
    yield (COPIES, None), copies
    yield (PROFILER, None), profiler
    known = sums.devices and all(item.idle_ns is not None for item in sums.devices)
    yield from _idle(device, idle, known=bool(known))


def _compute(
    walls: StepWalls, device: DeviceSteps, category: Callable[[str], str]
) -> dict[Part, IntArray]:
    labels = [*(category(name) for name in walls.names), WHOLE_GRAPH]
    parts: dict[Part, IntArray] = {}
    compute = device.compute
    for row, column, ns in zip(
        compute.row.tolist(), compute.column.tolist(), compute.total.tolist(), strict=True
    ):
        empty = np.zeros(len(walls.works), dtype=np.int64)
        parts.setdefault((COMPUTE, labels[column]), empty)[row] += ns
    return parts


def _communication(
    device: DeviceSteps, whole: IntArray, collectives: MatchedCollectives, owner: int | None
) -> Iterator[tuple[Part, IntArray]]:
    if owner is None or not whole.any():
        yield (COMMUNICATION, None), whole
        return
    waiting, transfer = waiting_and_transfer(collectives.sequences, owner)
    if not len(transfer):
        yield (COMMUNICATION, None), whole
        return
    moved = _by_work(device, intersect_intervals(transfer, device.exposed), len(whole))
    only = subtract_intervals(waiting, transfer)
    waited = _by_work(device, intersect_intervals(only, device.exposed), len(whole))
    yield (COMMUNICATION, WAITING), waited
    yield (COMMUNICATION, TRANSFER), moved
    yield (COMMUNICATION, NOT_MATCHED), whole - moved - waited


def _idle(device: DeviceSteps, whole: IntArray, *, known: bool) -> Iterator[tuple[Part, IntArray]]:
    if device.idle_ns is None or not known:
        yield (IDLE, None), whole
        return
    rest = whole.copy()
    by_work = [idle_details(device.idle_ns[place])[IDLE] for place in range(len(whole))]
    for cause in dict.fromkeys(cause for item in by_work for cause in item):
        ns = np.array([item.get(cause, 0) for item in by_work], dtype=np.int64)
        rest -= ns
        yield (IDLE, cause), ns
    yield (IDLE, None), rest


def _by_work(device: DeviceSteps, spans: IntArray, works_n: int) -> IntArray:
    """Return the length of spans by the work of the step that they lie in; none crosses a step."""
    # Windows of a rank without steps are one step.
    place = np.searchsorted(device.start_ns, spans[:, 0], side="right") - 1
    lengths = spans[:, 1] - spans[:, 0]
    return exact_sums(device.work[place], lengths, works_n)
