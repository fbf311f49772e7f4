"""Kernels and copies of full steps, in the mean of steps and ranks: what explains a change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys_llm.core.nulls import NULL_INT

from ..per_rank.launches import Key
from ..per_rank.step_walls import StepWalls
from .equal_work import Cells
from .runs import Run
from .step_splits import FloatArray, RunSteps

#: Grid and block are the first values of a launch configuration.
_GEOMETRY_N = 6
#: Kind of copy: packed code, and whether its call returns only when it is done.
CopyKind = tuple[int, bool]


@dataclass(frozen=True)
class StepKernels:
    """Kernels of full steps by name, in the mean of steps and ranks; of shape (names,), float64.

    Attributes:
        launches_n: How many.
        threads: That they launch; NaN where grids are not recorded.
        spent_ns: How long they ran.
    """

    launches_n: FloatArray
    threads: FloatArray
    spent_ns: FloatArray


def step_kernels(steps: RunSteps, names: Sequence[str], cells: Cells) -> StepKernels:
    """Return the kernels of full steps.

    Args:
        steps: Of one run.
        names: Of kernels; all that the run has.
        cells: What steps are compared by.
    """
    place = {name: index for index, name in enumerate(names)}
    calls, threads, spent_ns = np.zeros((3, len(names)))
    walls_of = _walls(steps)
    for walls in walls_of:
        if not walls.keys:
            continue
        factors = _factors(walls, cells) / len(walls_of)
        name = np.array([place[key[0]] for key in walls.keys], dtype=np.int64)
        size = np.array([_threads(key) for key in walls.keys], dtype=np.float64)
        weight = factors[walls.launches.row] * walls.launches.total
        np.add.at(calls, name[walls.launches.column], weight)
        np.add.at(threads, name[walls.launches.column], weight * size[walls.launches.column])
        spent = factors[walls.spent.row] * walls.spent.total
        np.add.at(spent_ns, name[walls.spent.column], spent)
    return StepKernels(calls, threads, spent_ns)


def step_copies(steps: RunSteps, cells: Cells) -> dict[CopyKind, tuple[float, float, float]]:
    """Return the number, time in ns and bytes of each kind of copy in a step and rank."""
    sums: dict[CopyKind, FloatArray] = {}
    walls_of = _walls(steps)
    for walls in walls_of:
        factors = _factors(walls, cells) / len(walls_of)
        parts = (walls.copies.moves_n, walls.copies.total_ns, walls.copies.size_bytes)
        for column, part in enumerate(parts):
            for row, kind, value in zip(
                part.row.tolist(), part.column.tolist(), part.total.tolist(), strict=True
            ):
                amounts = sums.setdefault(walls.copies.kinds[kind], np.zeros(len(parts)))
                amounts[column] += factors[row] * value
    return {kind: (float(n), float(ns), float(size)) for kind, (n, ns, size) in sums.items()}


def common_pct(before: Run, after: Run) -> float:
    """Return the share of kernel time in launches that both runs have, of the run with less.

    Compared are numbers of launches of each kernel, grid and block, over all ranks.
    """
    sides = [_by_geometry(run) for run in (before, after)]
    held = []
    for side, other in (sides, sides[::-1]):
        whole = sum(ns for _, ns in side.values())
        common = sum(
            ns * min(1.0, other.get(key, (0, 0))[0] / n) if n else 0.0
            for key, (n, ns) in side.items()
        )
        held.append(100 * common / whole if whole else 0.0)
    return min(held)


def _by_geometry(run: Run) -> dict[Key, tuple[int, int]]:
    launches_n = run.part.counts.moments(len(run.part.keys)).n.tolist()
    sums: dict[Key, tuple[int, int]] = {}
    for key, n, ns in zip(run.part.keys, launches_n, run.part.total_ns.tolist(), strict=True):
        short = (key[0], *key[2 : 2 + _GEOMETRY_N])
        before = sums.get(short, (0, 0))
        sums[short] = before[0] + n, before[1] + ns
    return sums


def _walls(steps: RunSteps) -> list[StepWalls]:
    """Return the walls of each rank once."""
    return list({id(gpu.walls): gpu.walls for gpu in steps.gpus.values()}.values())


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
    sizes = key[2 : 2 + _GEOMETRY_N]
    return math.nan if NULL_INT in sizes else math.prod(map(float, sizes))
