"""Which steps of a run make a figure, and how much each counts; figures and batches of any run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.analyses.steps.token_waits import (
    MOST_UNKNOWN_PCT,
    TokenWaits,
    token_waits,
    weighted_percentile,
)
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import Sample
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.step_names import engine_steps, holds_every_request

from ..per_rank.step_works import Work
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
    total,
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

    def sample(self, means_ns: FloatArray, scale: Callable[[FloatArray], FloatArray]) -> Sample:
        """Return the steps relative to some mean of each cell, on a scale."""
        cell = self.cell[self.kept]
        values = scale(self.program_ns[self.kept] / means_ns[cell])
        return Sample.of(values, self.weights(self.cell, self.kept)[self.kept], cell)

    def slow_count(self) -> tuple[int, int]:
        """Return how many steps are slow, and how many there are.

        Neighbors that are slow on different GPUs are one pause: the one waits for the other.
        """
        steps, slow = self.steps, self.slow & self.kept[:, None]
        is_slow: Mask = np.asarray(slow.any(axis=1))
        pairs = is_slow[1:] & is_slow[:-1] & ~np.asarray((slow[1:] & slow[:-1]).any(axis=1))
        pairs &= (np.diff(steps.number) == 1) & (steps.gpu[1:] == steps.gpu[:-1])
        return int(is_slow.sum() - pairs.sum()), int(self.kept.sum() - pairs.sum())

    def mean_ns(self, *, profiler: bool = False) -> float | None:
        """Return the mean step of the GPUs, with the profiler's own work or without; None: none."""
        splits = self.splits()
        if not splits:
            return None
        mean = mean_split(splits)
        return total(mean) if profiler else program_ns(mean)


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


Quantity = Callable[[RunSteps], float | None]


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if value > 0]
    return sum(known) / len(known) if known else None


def _of_work(of: Callable[[Work], int]) -> Quantity:
    return lambda steps: _mean(map(of, steps.work))


def _context_pct(steps: RunSteps) -> float | None:
    context = [max(work.ctx_reqs, work.ctx_tokens) for work in steps.work]
    context = [n for n in context if n >= 0]
    return 100 * sum(n > 0 for n in context) / len(context) if context else None


def _keys(steps: RunSteps) -> float | None:
    known = steps.keys_n[steps.keys_n > 0]
    return float(known.mean()) if known.size else None


def inter_token_ns(steps: RunSteps, percent: int) -> float | None:
    """Return a percentile of the time between two tokens of a request; None where not told.

    It is not told where more than 1 % of the intervals hold a step of which nobody knows whether it
    generates. See `token_waits`.
    """
    engine = next((kind.engine for kind in engine_steps() if kind.name == steps.name), None)
    together = engine is None or holds_every_request(engine)
    parts = [_waits(gpu, together) for gpu in steps.gpus.values()]
    every_n = sum(part.time_ns.size + part.left_out_n for part in parts)
    if 100 * sum(part.unknown_n for part in parts) > MOST_UNKNOWN_PCT * every_n:
        return None
    times_ns, tokens_n = (
        joined([getattr(part, name) for part in parts]) for name in ("time_ns", "tokens_n")
    )
    return weighted_percentile(times_ns, tokens_n, percent)


def _waits(gpu: GpuSteps, together: bool) -> TokenWaits:
    works = [gpu.walls.works[code] for code in gpu.steps.work.tolist()]
    reading = np.array([work.ctx_reqs for work in works], dtype=np.int64)
    return token_waits(
        gpu.steps.end_ns,
        np.array([work.gen_reqs for work in works], dtype=np.int64),
        reading,
        np.zeros_like(reading),
        # A step with tokens of prompts and without requests that generate only reads.
        np.array([max(work.gen_reqs, work.ctx_tokens) < 0 for work in works], dtype=bool),
        # Steps that are left out between two others leave nobody knows what out.
        np.diff(gpu.steps.number, prepend=gpu.steps.number[:1] - 1) != 1,
        together=together,
    )


_QUANTITIES: Final[tuple[tuple[str, str, Quantity], ...]] = (
    ("steps", "count", lambda steps: float(len(steps))),
    ("steps with context", "%", _context_pct),
    ("requests that generate, a step that does", "count", _of_work(lambda work: work.gen_reqs)),
    ("generated tokens, likewise", "count", _of_work(lambda work: work.gen_tokens)),
    ("requests with context, a step that has any", "count", _of_work(lambda work: work.ctx_reqs)),
    ("prompt tokens, likewise", "count", _of_work(lambda work: work.ctx_tokens)),
    ("tokens of no kind, a step", "count", _of_work(lambda work: work.tokens)),
    ("KV length, all requests", "count", _keys),
    ("between tokens, p50", "ns", lambda steps: inter_token_ns(steps, 50)),
    ("between tokens, p99", "ns", lambda steps: inter_token_ns(steps, 99)),
)


def composition_columns(before: RunSteps, after: RunSteps) -> Columns:
    """Return the table composition; without rows where the names of steps tell nothing."""
    is_told = any(work.is_told for work in (*before.work, *after.work))
    rows = [(name, unit, of(before), of(after)) for name, unit, of in _QUANTITIES if is_told]
    rows = [row for row in rows if row[2:] != (None, None)]
    names = ("quantity", "unit", "baseline", "input")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
