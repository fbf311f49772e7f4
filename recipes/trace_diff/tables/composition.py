"""What is in the batches of both runs, and how long generated tokens come after each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nsys_llm.report.columns import Columns

from ..per_rank.step_works import Work
from .comparability import Comparison
from .step_splits import FloatArray, GpuSteps, RunSteps, Series

_MEANS: Final[tuple[tuple[str, Callable[[Work], int]], ...]] = (
    ("requests that generate, a step that does", lambda work: work.gen_reqs),
    ("generated tokens, likewise", lambda work: work.gen_tokens),
    ("requests with context, a step that has any", lambda work: work.ctx_reqs),
    ("prompt tokens, likewise", lambda work: work.ctx_tokens),
    ("tokens of no kind, a step", lambda work: work.tokens),
)
_PERCENTILES: Final = (50, 99)


def composition_columns(comparison: Comparison) -> Columns:
    """Return the table composition; without rows where the names of steps tell nothing."""
    sides = [steps.series for steps in comparison.steps]
    rows: list[tuple[str, str, float | None, float | None]] = []
    if any(work.is_told for side in sides for work in side.work):
        values: list[tuple[str, str, list[float | None]]] = [
            ("steps", "count", [float(len(side)) for side in sides]),
            ("steps with context", "%", [_context_pct(side) for side in sides]),
            *((name, "count", [_mean(side, of) for side in sides]) for name, of in _MEANS),
            ("KV length, all requests", "count", [_keys(side) for side in sides]),
            *(
                (
                    f"between tokens, p{percent}",
                    "ns",
                    [inter_token_ns(some, percent) for some in comparison.steps],
                )
                for percent in _PERCENTILES
            ),
        ]
        rows = [(name, unit, both[0], both[1]) for name, unit, both in values]
    rows = [row for row in rows if row[2] is not None or row[3] is not None]
    names = ("quantity", "unit", "baseline", "input")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def inter_token_ns(steps: RunSteps, percent: int) -> float | None:
    """Return a percentile of the time between two tokens of a request; None where not told.

    It is from the end of a step that generates to the end of the next, and counts once for each
    request that was in both: those that generate in the second, but for those whose prompt was read
    in between. A lower bound of what a client sees.
    """
    parts = [_intervals(gpu) for gpu in steps.gpus.values()]
    times, counts = (np.concatenate([part[i] for part in parts] or [np.empty(0)]) for i in (0, 1))
    if not counts.sum():
        return None
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(counts[order])
    return float(times[order][np.searchsorted(reached, percent / 100 * reached[-1])])


def _intervals(gpu: GpuSteps) -> tuple[FloatArray, FloatArray]:
    works = [gpu.walls.works[code] for code in gpu.steps.work.tolist()]
    gen = np.array([work.gen_reqs for work in works], dtype=np.int64)
    ctx = np.maximum([work.ctx_reqs for work in works], 0)
    rows = np.flatnonzero(gen > 0)
    # Steps that are left out between two others leave nobody knows what out.
    together = np.diff(gpu.steps.number)[: max(len(works) - 1, 0)] == 1
    broken = np.concatenate(([0], np.cumsum(~together)))
    read = np.cumsum(ctx)
    between = read[rows[1:] - 1] - read[rows[:-1]]
    counts = np.where(broken[rows[1:]] == broken[rows[:-1]], gen[rows[1:]] - between, 0)
    times = np.diff(gpu.steps.end_ns[rows])
    return times[counts > 0].astype(np.float64), counts[counts > 0].astype(np.float64)


def _context_pct(side: Series) -> float | None:
    told = [work for work in side.work if work.ctx_reqs >= 0 or work.ctx_tokens >= 0]
    with_context = sum(max(work.ctx_reqs, work.ctx_tokens) > 0 for work in told)
    return 100 * with_context / len(told) if told else None


def _mean(side: Series, of: Callable[[Work], int]) -> float | None:
    values = [n for n in map(of, side.work) if n > 0]
    return sum(values) / len(values) if values else None


def _keys(side: Series) -> float | None:
    known = side.keys_n[side.keys_n > 0]
    return float(known.mean()) if known.size else None
