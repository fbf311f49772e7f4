"""Which steps of a run make a figure, how much each counts, and what they launch.

And the time between two tokens of a request.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.compared.operations import GEOMETRY_N, CopyKind, WorkSums
from nsys_llm.facts.compared.step_walls import StepWalls
from nsys_llm.facts.steps.token_waits import (
    MOST_UNKNOWN_PCT,
    TokenWaits,
    read_on,
    token_waits,
    weighted_percentile,
)
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import Sample
from nsys_llm.taxonomy.step_names import engine_steps, holds_every_request

from .equal_work import TRIMMED, Cells, slow_steps
from .step_splits import (
    FloatArray,
    Gpu,
    GpuSteps,
    Mask,
    RunSteps,
    Split,
    mean_split,
    program_ns,
)


@dataclass(frozen=True)
class Chosen:
    """Which steps of a run make a figure, and how much each counts.

    Attributes:
        cell: Shape (steps,), position among the cells, -1 where a step is not compared.
        slow: Shape (steps, GPUs), see `slow_steps`.
        kept: Shape (steps,), those that make the figure.
        adjusted_ns: Shape (steps,), what each is longer than equal work.
    """

    steps: RunSteps
    cells: Cells
    cell: IntArray
    slow: Mask
    kept: Mask
    adjusted_ns: FloatArray

    @property
    def program_ns(self) -> FloatArray:
        """Time of equal work without the profiler's, shape (steps,)."""
        return np.maximum(self.steps.program_ns - self.adjusted_ns, 1.0)

    @property
    def steps_n(self) -> int:
        """Full steps of a GPU that are compared."""
        if self.cells.shares is None:
            return self.steps.steps_n
        return int((self.cell >= 0).sum()) // max(np.unique(self.steps.gpu).size, 1)

    def weights(self, cell: IntArray, kept: Mask) -> FloatArray:
        """Return what each of some steps counts for by its cell; together 1 or nothing."""
        shares = self.cells.weights
        counts = np.bincount(cell[kept], minlength=shares.size)
        weight = np.where(counts > 0, shares / np.maximum(counts, 1), 0.0)
        weights = np.where(kept, weight[np.maximum(cell, 0)], 0.0)
        return np.asarray(weights / (weights.sum() or 1.0))

    def gpus(self) -> Iterator[tuple[Gpu, GpuSteps, IntArray]]:
        """Yield each GPU, and the row of each of its steps, -1 for none."""
        for place, (key, gpu) in enumerate(self.steps.gpus.items()):
            yield key, gpu, self.steps.rows_of(place, gpu)

    def splits(self) -> dict[Gpu, Split]:
        """Return the split of each GPU; empty where no step is kept."""
        splits: dict[Gpu, Split] = {}
        if not self.kept.any():
            return splits
        cell_of = dict(zip(self.steps.work, self.cell.tolist(), strict=True))
        for key, gpu, row in self.gpus():
            by_work = np.array([cell_of.get(work, -1) for work in gpu.walls.works], dtype=np.int64)
            cell = by_work[gpu.steps.work]
            kept = ((row < 0) | self.kept[row]) & (cell >= 0)
            if not kept.any():
                continue
            weights = self.weights(cell, kept)
            splits[key] = gpu.split(weights)
            moved_ns = float((weights * np.where(row < 0, 0.0, self.adjusted_ns[row])).sum())
            if moved_ns:
                splits[key][self.cells.adjusted_part] = -moved_ns
        return splits

    def cell_means_ns(self) -> FloatArray:
        """Return the mean of each cell; 1 of those without a step."""
        means = np.ones(self.cells.weights.size)
        for code in np.unique(self.cell[self.kept]).tolist():
            means[code] = self.program_ns[self.kept & (self.cell == code)].mean()
        return means

    def relative(self, means_ns: FloatArray) -> FloatArray:
        """Return the steps that make the figure, in shares of some mean of each cell."""
        return np.asarray(self.program_ns[self.kept] / means_ns[self.cell[self.kept]])

    def sample(self, values: FloatArray) -> Sample:
        """Return the sample of what these steps are."""
        weights = self.weights(self.cell, self.kept)[self.kept]
        return Sample.of(values, weights, self.cell[self.kept])

    def slow_count(self) -> tuple[int, int]:
        """Return how many steps are slow, and how many there are.

        Neighbors that are slow on different GPUs are one pause: the one waits for the other.
        """
        steps, slow = self.steps, self.slow & self.kept[:, None]
        is_slow: Mask = np.asarray(slow.any(axis=1))
        pairs = is_slow[1:] & is_slow[:-1] & ~np.asarray((slow[1:] & slow[:-1]).any(axis=1))
        pairs &= (np.diff(steps.number) == 1) & (steps.gpu[1:] == steps.gpu[:-1])
        return int(is_slow.sum() - pairs.sum()), int(self.kept.sum() - pairs.sum())

    def mean_ns(self) -> float | None:
        """Return the mean step of the GPUs without the profiler's own work; None: none."""
        splits = self.splits()
        return program_ns(mean_split(splits)) if splits else None


def choices(steps: RunSteps, cells: Cells, adjusted_ns: FloatArray | None) -> tuple[Chosen, Chosen]:
    """Return the typical steps of a run, without slow ones and the ends of cells; and all.

    Args:
        adjusted_ns: Shape (steps,), what each is longer than equal work; None: nothing.
    """
    cell = cells.codes(steps)
    slow = slow_steps(steps, cell)
    adjusted = np.zeros(len(steps)) if adjusted_ns is None else adjusted_ns
    every = Chosen(steps, cells, cell, slow, cell >= 0, adjusted)
    typical = replace(every, kept=every.kept & ~slow.any(axis=1))
    return (typical if cells.shares is None else _trimmed(typical)), every


def _trimmed(chosen: Chosen) -> Chosen:
    """Leave out a tenth of the steps at each end of each cell."""
    kept, program_ns = chosen.kept.copy(), chosen.program_ns
    for code in np.unique(chosen.cell[chosen.kept]).tolist():
        rows = np.flatnonzero(chosen.kept & (chosen.cell == code))
        cut = math.ceil(rows.size * TRIMMED)
        if rows.size > 2 * cut:
            order = rows[np.argsort(program_ns[rows], kind="stable")]
            kept[np.concatenate((order[:cut], order[-cut:]))] = False
    return replace(chosen, kept=kept)


@dataclass(frozen=True)
class StepKernels:
    """Kernels of full steps by name, in the mean of steps and ranks; of shape (names,), float64.

    Attributes:
        threads: That they launch; NaN where grids are not recorded.
    """

    launches_n: FloatArray
    threads: FloatArray
    spent_ns: FloatArray


def step_kernels(steps: RunSteps, names: Sequence[str], cells: Cells) -> StepKernels:
    """Return the kernels of full steps of a run, which has no other names."""
    place = {name: index for index, name in enumerate(names)}
    calls, threads, spent_ns = np.zeros((3, len(names)))
    for walls, key, (n, ns) in _means(steps, cells, lambda walls: walls.launches):
        name = np.array([place[key[0]] for key in walls.keys], dtype=np.int64)[key]
        sizes = [key[2 : 2 + GEOMETRY_N] for key in walls.keys]
        threads_n = [math.nan if NULL_INT in some else math.prod(some) for some in sizes]
        size = np.array(threads_n, dtype=np.float64)[key]
        np.add.at(calls, name, n)
        np.add.at(threads, name, n * size)
        np.add.at(spent_ns, name, ns)
    return StepKernels(calls, threads, spent_ns)


def step_copies(steps: RunSteps, cells: Cells) -> dict[CopyKind, FloatArray]:
    """Return number, time in ns and bytes of each kind of copy in a step and rank."""
    sums: dict[CopyKind, FloatArray] = {}
    for walls, key, columns in _means(steps, cells, lambda walls: walls.copies):
        for kind, values in zip(key.tolist(), columns.T, strict=True):
            sums.setdefault(walls.copy_kinds[kind], np.zeros(len(columns)))[:] += values
    return sums


def _means(
    steps: RunSteps, cells: Cells, of: Callable[[StepWalls], WorkSums]
) -> Iterator[tuple[StepWalls, IntArray, FloatArray]]:
    """Yield each rank once with its keys, and columns of sums in the mean of steps and ranks."""
    walls_of = {id(gpu.walls): gpu.walls for gpu in steps.gpus.values()}
    for walls in walls_of.values():
        sums = of(walls)
        if sums.work.size:
            factors = _factors(walls, cells) / len(walls_of)
            yield walls, sums.key, factors[sums.work] * sums.sums.T


def _factors(walls: StepWalls, cells: Cells) -> FloatArray:
    """Return what a launch in a step of each work counts for."""
    works_n = len(walls.works)
    counts = np.max([np.bincount(item.work, minlength=works_n) for item in walls.devices], axis=0)
    if cells.shares is None:
        return np.full(works_n, 1 / max(counts.sum(), 1))
    cell = [cells.cell_of(work) for work in walls.works]
    in_cell = Counter[object]()
    for name, n in zip(cell, counts.tolist(), strict=True):
        in_cell[name] += n
    return np.array([cells.shares.get(name, 0.0) / max(in_cell[name], 1) for name in cell])


def inter_token_ns(steps: RunSteps, percent: int) -> float | None:
    """Return a percentile of the time between two tokens of a request; None where not told.

    It is not told where more than 1 % of the intervals hold a step of which nobody knows whether it
    generates, or where who waited is so little certain that it may be 1 % more. See `token_waits`.
    """
    engine = next((kind.engine for kind in engine_steps() if kind.name == steps.name), None)
    together = engine is None or holds_every_request(engine)
    parts = [_waits(gpu, together) for gpu in steps.gpus.values()]
    every_n = sum(part.time_ns.size + part.left_out_n for part in parts)
    if 100 * sum(part.unknown_n for part in parts) > MOST_UNKNOWN_PCT * every_n:
        return None
    times_ns, least_n, most_n = (
        joined([getattr(part, name) for part in parts])
        for name in ("time_ns", "tokens_n", "most_n")
    )
    least_ns, most_ns = weighted_percentile(times_ns, least_n, most_n, percent) or (0.0, 1.0)
    return least_ns if 100 * most_ns <= (100 + MOST_UNKNOWN_PCT) * least_ns else None


def _waits(gpu: GpuSteps, together: bool) -> TokenWaits:
    works = [gpu.walls.works[code] for code in gpu.steps.work.tolist()]
    names = ("gen_reqs", "ctx_reqs", "ctx_tokens")
    generating, reading, tokens = np.array(
        [[getattr(work, name) for work in works] for name in names], dtype=np.int64
    )
    return token_waits(
        gpu.steps.end_ns,
        generating,
        reading,
        read_on(reading, tokens, gpu.steps.keys_n),  # of steps that only read, keys are theirs
        # A step with tokens of prompts and without requests that generate only reads.
        np.array([max(work.gen_reqs, work.ctx_tokens) < 0 for work in works], dtype=bool),
        # Steps that are left out between two others leave nobody knows what out.
        np.diff(gpu.steps.number, prepend=gpu.steps.number[:1] - 1) != 1,
        together=together,
    )
