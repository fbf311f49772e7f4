"""What is in the batches of both runs, and how long generated tokens come after each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from nsys_llm.numeric.grouping import joined
from nsys_llm.report.columns import Columns

from ..per_rank.step_works import Work
from .comparability import Comparison
from .step_splits import FloatArray, GpuSteps, RunSteps

Quantity = Callable[[RunSteps], float | None]


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if value > 0]
    return sum(known) / len(known) if known else None


def _of_work(of: Callable[[Work], int]) -> Quantity:
    return lambda steps: _mean(map(of, steps.series.work))


def _context_pct(steps: RunSteps) -> float | None:
    told = [max(work.ctx_reqs, work.ctx_tokens) for work in steps.series.work]
    told = [n for n in told if n >= 0]
    return 100 * sum(n > 0 for n in told) / len(told) if told else None


def _keys(steps: RunSteps) -> float | None:
    known = steps.series.keys_n[steps.series.keys_n > 0]
    return float(known.mean()) if known.size else None


def inter_token_ns(steps: RunSteps, percent: int) -> float | None:
    """Return a percentile of the time between two tokens of a request; None where not told.

    It is from the end of a step that generates to the end of the next, and counts once for each
    request that was in both: those that generate in the second, but for those whose prompt was read
    in between. A lower bound of what a client sees.
    """
    parts = [_intervals(gpu) for gpu in steps.gpus.values()]
    times, counts = (joined([part[i] for part in parts]) for i in (0, 1))
    if not counts.sum():
        return None
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(counts[order])
    return float(times[order][np.searchsorted(reached, percent / 100 * reached[-1])])


def _intervals(gpu: GpuSteps) -> tuple[FloatArray, FloatArray]:
    works = [gpu.walls.works[code] for code in gpu.steps.work.tolist()]
    gen = np.array([work.gen_reqs for work in works], dtype=np.int64)
    read = np.cumsum(np.maximum([work.ctx_reqs for work in works], 0))
    rows = np.flatnonzero(gen > 0)
    # Steps that are left out between two others leave nobody knows what out.
    broken = np.concatenate(([0], np.cumsum(np.diff(gpu.steps.number) != 1)))
    between = read[rows[1:] - 1] - read[rows[:-1]]
    counts = np.where(broken[rows[1:]] == broken[rows[:-1]], gen[rows[1:]] - between, 0)
    times = np.diff(gpu.steps.end_ns[rows])
    return times[counts > 0].astype(np.float64), counts[counts > 0].astype(np.float64)


_QUANTITIES: Final[tuple[tuple[str, str, Quantity], ...]] = (
    ("steps", "count", lambda steps: float(len(steps.series))),
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


def composition_columns(comparison: Comparison) -> Columns:
    """Return the table composition; without rows where the names of steps tell nothing."""
    rows: list[tuple[str, str, float | None, float | None]] = []
    before, after = comparison.steps
    if any(work.is_told for steps in comparison.steps for work in steps.series.work):
        rows = [(name, unit, of(before), of(after)) for name, unit, of in _QUANTITIES]
    rows = [row for row in rows if row[2:] != (None, None)]
    names = ("quantity", "unit", "baseline", "input")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
