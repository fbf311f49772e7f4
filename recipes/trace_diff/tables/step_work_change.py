"""Whether the steps of two runs do other work, by their launches: where names tell nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.view.text import format_percent

from ..per_rank.launches import Key
from ..per_rank.step_walls import StepWalls
from .runs import Run
from .workload_match import SAME_WORK_PCT

#: Share of launches, or of kernel time, at other sizes from which steps do other work; ours.
_MOST_PCT: Final = 50.0
#: Launches are split or merged, not more or fewer, where total grids stay within this; ours.
_SAME_GRID_PCT: Final = 1.0
#: Grid and block are the first values of a launch configuration.
_GEOMETRY_N: Final = 6
#: Launches of all names together that differ, in percent, without steps.
_SAME_LAUNCHES_PCT: Final = 2.0

FloatArray = npt.NDArray[np.float64]


def other_sizes(before: Run, after: Run, weights: Mapping[str, Fraction] | None) -> str | None:
    """Return what says that a step does other work, of kernels of both runs; None if nothing does.

    A kernel that is split into smaller launches of the same total grid does the same work. Other
    kernels may do the same work, too, so that kernels of one run alone say nothing.

    Args:
        before: The baseline.
        after: The input.
        weights: See `StepBasis`.
    """
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    first, second = (step_kernels(run, names, weights) for run in (before, after))
    n0, n1, threads0, threads1 = first.launches_n, second.launches_n, first.threads, second.threads
    t0 = before.kernels(names).total_ns.astype(np.float64)
    both = (n0 > 0) & (n1 > 0) & ~np.isnan(threads0 + threads1)
    talks = {key[0] for run in (before, after) for key in run.part.keys if is_communication(key[1])}
    both &= np.array([name not in talks for name in names], dtype=bool)
    n0, n1, threads0, threads1, t0 = (item[both] for item in (n0, n1, threads0, threads1, t0))
    if not t0.sum():
        return None
    more_calls = _apart_pct(n0, n1) > SAME_WORK_PCT
    split = more_calls & (_apart_pct(threads0, threads1) <= _SAME_GRID_PCT)
    resized = (_apart_pct(threads0 / n0, threads1 / n1) > SAME_WORK_PCT) & ~more_calls
    sizes_pct, of = max((_share(n0, resized), "launches"), (_share(t0, resized), "kernel time"))
    if sizes_pct >= _MOST_PCT:
        return f"problem sizes changed: {format_percent(sizes_pct)} of {of} on other grids"
    calls_pct = _share(t0, more_calls & ~split)
    if calls_pct >= _MOST_PCT:
        return f"launches a step changed: kernels with {format_percent(calls_pct)} of the time"
    return None


def common_pct(before: Run, after: Run) -> float:
    """Return the share of the kernel time in kernels of both runs, of the run with less of it."""
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    sides = [run.kernels(names) for run in (before, after)]
    both = (sides[0].total_ns > 0) & (sides[1].total_ns > 0)
    return min(_share(side.total_ns.astype(np.float64), both) for side in sides)


def same_launches(before: Run, after: Run) -> bool:
    """Tell whether two runs without steps launch the same kernels as often, within 2 %."""
    if len(before.devices) != len(after.devices) or not before.launches_n:
        return False
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    first, second = (run.kernels(names).launches_n for run in (before, after))
    apart_n = int(np.abs(second - first).sum())
    return 100 * apart_n <= _SAME_LAUNCHES_PCT * before.launches_n


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


def step_kernels(
    run: Run, names: Sequence[str], weights: Mapping[str, Fraction] | None
) -> StepKernels:
    """Return the kernels of full steps.

    Args:
        run: One run.
        names: Of kernels; all that the run has.
        weights: See `StepBasis`.
    """
    place = {name: index for index, name in enumerate(names)}
    calls, threads, spent_ns = np.zeros((3, len(names)))
    for _, sums in run.ranks:
        walls = sums.walls
        if not walls.keys or not walls.devices:
            continue
        factors = _factors(walls, weights) / len(run.ranks)
        name = np.array([place[key[0]] for key in walls.keys], dtype=np.int64)
        size = np.array([_threads(key) for key in walls.keys], dtype=np.float64)
        weight = factors[walls.launches.row] * walls.launches.total
        np.add.at(calls, name[walls.launches.column], weight)
        np.add.at(threads, name[walls.launches.column], weight * size[walls.launches.column])
        spent = factors[walls.spent.row] * walls.spent.total
        np.add.at(spent_ns, name[walls.spent.column], spent)
    return StepKernels(calls, threads, spent_ns)


def _factors(walls: StepWalls, weights: Mapping[str, Fraction] | None) -> FloatArray:
    """Return what a launch in a step of each work counts for."""
    works_n = len(walls.works)
    counts = np.max(
        [np.bincount(device.work, minlength=works_n) for device in walls.devices], axis=0
    ).astype(np.float64)
    if weights is None:
        return np.full(works_n, 1 / max(counts.sum(), 1))
    shares = np.array([float(weights.get(work, 0)) for work in walls.works])
    return shares / np.maximum(counts, 1) / max(shares.sum(), 1e-9)


def _threads(key: Key) -> float:
    sizes = key[2 : 2 + _GEOMETRY_N]
    return math.nan if NULL_INT in sizes else math.prod(map(float, sizes))


def _apart_pct(first: FloatArray, second: FloatArray) -> FloatArray:
    return 100 * np.abs(second - first) / np.maximum(np.maximum(first, second), 1e-9)


def _share(values: FloatArray, chosen: npt.NDArray[np.bool_]) -> float:
    return float(100 * values[chosen].sum() / max(values.sum(), 1e-9))
