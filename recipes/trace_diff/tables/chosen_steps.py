"""Which steps of a run make a figure, and how much each counts; figures of any run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import Sample
from nsys_llm.taxonomy.wall_classes import PROFILER

from .comparability import Comparison
from .equal_work import TRIMMED, Cells, slow_steps
from .step_splits import (
    FloatArray,
    GpuSteps,
    Mask,
    Part,
    RunSteps,
    Series,
    Split,
    mean_split,
    total,
)


@dataclass(frozen=True)
class Chosen:
    """Which steps of a run make a figure, and how much each counts.

    Attributes:
        series: All of its steps.
        cell: Shape (steps,), -1 where it is not compared.
        slow: Shape (steps, GPUs), see `slow_steps`.
        kept: Shape (steps,), those that make the figure.
        shares: Weight of each cell.
        adjusted_ns: Shape (steps,), what each is longer than equal work.
        adjusted_part: See `Cells`.
    """

    series: Series
    cell: IntArray
    slow: Mask
    kept: Mask
    shares: FloatArray
    adjusted_ns: FloatArray
    adjusted_part: Part

    @property
    def weights(self) -> FloatArray:
        """Of each step; they add up to 1."""
        return _weights(self.cell, self.kept, self.shares)

    @property
    def program_ns(self) -> FloatArray:
        """Time of equal work without the profiler's, shape (steps,)."""
        return np.maximum(self.series.program_ns - self.adjusted_ns, 1.0)

    def split(self, steps: RunSteps) -> dict[tuple[int, int], Split]:
        """Return the split of each GPU."""
        splits = {}
        for place, (key, gpu) in enumerate(steps.gpus.items()):
            of_gpu = (self.series.gpu < 0) | (self.series.gpu == place)
            split = self._split(gpu, np.flatnonzero(of_gpu))
            if split is not None:
                splits[key] = split
        return splits

    def _split(self, gpu: GpuSteps, rows: IntArray) -> Split | None:
        left_out = set(self.series.number[rows[~self.kept[rows]]].tolist())
        numbers = gpu.steps.number.tolist()
        kept = np.array([number not in left_out for number in numbers], dtype=bool)
        cell_of = dict(zip(self.series.work, self.cell.tolist(), strict=True))
        by_work = np.array([cell_of.get(work, -1) for work in gpu.walls.works], dtype=np.int64)
        cell = by_work[gpu.steps.work]
        if not (kept & (cell >= 0)).any():
            return None
        weights = _weights(cell, kept & (cell >= 0), self.shares)
        adjusted = dict(zip(self.series.number[rows].tolist(), self.adjusted_ns[rows], strict=True))
        moved = np.array([adjusted.get(number, 0.0) for number in numbers])
        return gpu.split(weights, (self.adjusted_part, -float((weights * moved).sum())))

    def relative(self) -> Sample:
        """Return the steps relative to the means of their cells, whose own mean is 1."""
        rows = np.flatnonzero(self.kept)
        cell, values = self.cell[rows], self.program_ns[rows]
        means = np.bincount(cell, values) / np.maximum(np.bincount(cell), 1)
        return Sample.of(values / means[cell], self.weights[rows], cell)

    def logs(self, means_ns: FloatArray) -> Sample:
        """Return the logarithms of the steps, relative to some mean of each cell."""
        rows = np.flatnonzero(self.kept)
        values = np.log(self.program_ns[rows] / means_ns[self.cell[rows]])
        return Sample.of(values, self.weights[rows], self.cell[rows])


def _weights(cell: IntArray, kept: Mask, shares: FloatArray) -> FloatArray:
    counts = np.bincount(cell[kept], minlength=shares.size)
    weight = np.where(counts > 0, shares / np.maximum(counts, 1), 0.0)
    weights = np.where(kept, weight[np.maximum(cell, 0)], 0.0)
    return np.asarray(weights / (weights.sum() or 1.0))


def choices(comparison: Comparison) -> tuple[tuple[Chosen, Chosen], tuple[Chosen, Chosen]]:
    """Return the typical steps of both runs, without slow ones and the ends of cells; and all."""
    cells, sides = comparison.cells, []
    shares = np.ones(1) if cells.shares is None else np.array(list(cells.shares.values()))
    for place, steps in enumerate(comparison.steps):
        series = steps.series
        cell = cells.codes(series)
        slow = slow_steps(series, cell)
        adjusted = np.zeros(len(series)) if cells.adjusted_ns is None else cells.adjusted_ns[place]
        every = Chosen(series, cell, slow, cell >= 0, shares, adjusted, cells.adjusted_part)
        usual = replace(every, kept=every.kept & ~slow.any(axis=1))
        sides.append((_trimmed(usual) if cells.shares is not None else usual, every))
    (typical0, all0), (typical1, all1) = sides
    return (typical0, typical1), (all0, all1)


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


def slow_count(chosen: Chosen) -> tuple[int, int]:
    """Return how many steps are slow, and how many there are.

    Neighbors that are slow on different GPUs are one pause: the one waits for the other.
    """
    series, slow = chosen.series, chosen.slow & chosen.kept[:, None]
    is_slow: Mask = np.asarray(slow.any(axis=1))
    adjacent = (np.diff(series.number) == 1) & (series.gpu[1:] == series.gpu[:-1])
    joined = adjacent & is_slow[1:] & is_slow[:-1] & ~np.asarray((slow[1:] & slow[:-1]).any(axis=1))
    return int(is_slow.sum() - joined.sum()), int(chosen.kept.sum() - joined.sum())


def run_program_ns(
    comparison: Comparison, steps: RunSteps, *, typical: bool = True, profiler: bool = False
) -> float | None:
    """Return the mean step of a run on the scale of a comparison; None where it has none of it.

    Args:
        comparison: Of baseline and input.
        steps: Of any run.
        typical: Without slow steps and the ends of cells.
        profiler: With the profiler's own work.
    """
    some = replace(comparison, steps=(steps, steps), cells=_unmoved(comparison.cells))
    chosen = choices(some)[0 if typical else 1][0]
    splits = chosen.split(steps) if chosen.kept.any() else {}
    if not splits:
        return None
    mean = mean_split(splits)
    return total(mean) - (0.0 if profiler else total(mean, PROFILER))


def run_slow_pct(comparison: Comparison, steps: RunSteps) -> float | None:
    """Return the share of slow steps of a run, in percent; None where it has no steps."""
    some = replace(comparison, steps=(steps, steps))
    slow_n, steps_n = slow_count(choices(replace(some, cells=_unmoved(some.cells)))[1][0])
    return 100 * slow_n / steps_n if steps_n else None


def _unmoved(cells: Cells) -> Cells:
    """Return cells for other runs than those that were moved to the middle of them."""
    return replace(cells, adjusted_ns=None)
