"""Kernels and copies of full steps, in the mean of steps and ranks: what explains a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray

from ..per_rank.operations import GEOMETRY_N, CopyKind, Key, WorkSums
from ..per_rank.step_walls import StepWalls
from .equal_work import Cells
from .step_splits import FloatArray, RunSteps


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
        size = np.array([_threads(key) for key in walls.keys], dtype=np.float64)[key]
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
    counts = np.max(
        [np.bincount(device.work, minlength=works_n) for device in walls.devices], axis=0
    ).astype(np.float64)
    if cells.shares is None:
        return np.full(works_n, 1 / max(counts.sum(), 1))
    cell = [cells.cell_of(work) for work in walls.works]
    in_cell: dict[object, float] = {}
    for name, n in zip(cell, counts.tolist(), strict=True):
        in_cell[name] = in_cell.get(name, 0.0) + n
    return np.array([cells.shares.get(name, 0.0) / max(in_cell[name], 1.0) for name in cell])


def _threads(key: Key) -> float:
    sizes = key[2 : 2 + GEOMETRY_N]
    return math.nan if NULL_INT in sizes else math.prod(map(float, sizes))
