"""The tables of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.phases.steps import StepRows, StepWindows
from nsys_llm.job.job_steps import steps_of_groups
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import Columns, nullable, of_rank, rank_columns, spread_columns
from nsys_llm.taxonomy.step_names import parse_step
from nsys_llm.trace.identity import Rank, RankKey

from .phases import Parts, PhaseFrames

STEADY: Final = "steady"
WARMUP: Final = "warm-up"
_MEASURES: Final[Mapping[str, Callable[[StepRows], IntArray]]] = {
    "host": lambda steps: steps.end_ns - steps.start_ns,
    "gpu": lambda steps: steps.gpu_ns,
    "span": lambda steps: steps.span_ns,
    "idle": lambda steps: steps.idle_inside_ns,
}
_STATISTICS: Final = ("mean_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns")
_NULLABLE: Final = ("gpu_start_ns", "gpu_end_ns", "span_ns", "idle_inside_ns")
_Steps = Sequence[tuple[Rank, StepRows]]


def step_columns(
    parts: Parts, frames: PhaseFrames, options: Mapping[str, Any]
) -> dict[str, Columns]:
    """Return the tables steps, step_stats and phase_steps."""
    steps, others = _steps_of(parts)
    counted = [(rank, rows) for rank, rows in steps if rank.key not in others]
    return {
        "steps": _rows(steps, options["tokens_per_step"]),
        "step_stats": _statistics(counted, frames, options["tokens_per_step"]),
        "phase_steps": _phases(counted, frames, options["tokens_per_step"]),
    }


def rank_step_rows(parts: Parts, frames: PhaseFrames) -> list[dict[str, Any]]:
    """Return the table rank_steps, a row for each rank, also for one without steps."""
    gpu_ns = dict(frames.ranks.groupby("rank")["gpu_ns"].sum())
    known, others = _steps_of(parts)
    steps_of, rows = {rank.key: steps for rank, steps in known}, []
    for rank, _ in parts:
        row = {**of_rank(rank), "counted": rank.key not in others, "steps_n": 0, "warmup_n": 0}
        if (steps := steps_of.get(rank.key)) is not None:
            values = {name: _known(of(steps)[steps.steady]) for name, of in _MEASURES.items()}
            medians = {
                f"{name}_p50_ns": float(np.median(ns)) for name, ns in values.items() if ns.size
            }
            whole_ns = gpu_ns.get(rank.number, 0)
            row |= {
                "name": steps.kind.name,
                "unit": steps.kind.unit,
                "steps_n": int(steps.steady.sum()),
                "warmup_n": int(steps.warmup.sum()),
                "gpu_pct": 100.0 * int(steps.gpu_ns.sum()) / whole_ns if whole_ns else None,
                **medians,
            }
        rows.append(row)
    return rows


def _steps_of(parts: Parts) -> tuple[_Steps, Set[RankKey]]:
    """Return the steps of each rank, and whose do not count.

    Those count that the largest group calls steps: a mean over groups is of nobody's step.
    """
    steps = [(rank, part.steps) for rank, part in parts if part.steps is not None]
    kinds = {rank.key: part.steps.kind if part.steps else None for rank, part in parts}
    common = steps_of_groups(kinds, {rank.key: rank.group for rank, _ in parts})
    return steps, {rank.key for rank, _ in parts if rank.group or rank.key not in common}


def _rows(steps: _Steps, tokens_n: int | None) -> Columns:
    def every(name: str) -> IntArray:
        return joined([getattr(step_rows, name) for _, step_rows in steps])

    names = [name for _, step_rows in steps for name in step_rows.names]
    windows = stacked(StepWindows, [step_rows.windows for _, step_rows in steps])
    window_ns = windows.end_ns - windows.start_ns
    host_ns = every("end_ns") - every("start_ns")
    # NaN where the name of a step tells no tokens.
    tokens = [float(((batch := parse_step(name)) and batch.tokens) or np.nan) for name in names]
    return {
        **rank_columns([(rank, len(step_rows.names)) for rank, step_rows in steps]),
        "step": every("number"),
        "name": names,
        "warmup": every("warmup").astype(bool),
        "full": every("full").astype(bool),
        "phase": [
            step_rows.phases[code] if code >= 0 else None
            for _, step_rows in steps
            for code in step_rows.phase.tolist()
        ],
        **{name: every(name) for name in ("start_ns", "end_ns", "ops_n", "kernels_n", "gpu_ns")},
        "host_ns": host_ns,
        "since_first_ns": joined([rows.start_ns - rows.first_ns for _, rows in steps]),
        **{name: nullable(every(name)) for name in _NULLABLE},
        "window_start_ns": windows.start_ns,
        "window_end_ns": windows.end_ns,
        "window_ns": window_ns,
        "window_own_ns": window_ns - windows.other_ns - windows.idle_ns,
        "window_other_ns": windows.other_ns,
        "window_idle_ns": windows.idle_ns,
        "other_name": [name or None for name in windows.other_name],
        "other_range": [name or None for name in windows.other_range],
        "token_ns": _per_token(host_ns, tokens_n) if tokens_n else host_ns / np.array(tokens),
    }


def _per_token(values: Any, tokens_n: int | None) -> Any:
    return np.full(len(values), np.nan) if tokens_n is None else np.asarray(values) / tokens_n


def _statistics(steps: _Steps, frames: PhaseFrames, tokens_n: int | None) -> Columns:
    """Return measures of all steady steps, of those of each phase, and of the warm-up."""
    groups = [(STEADY, None), *((STEADY, phase) for phase in frames.names), (WARMUP, None)]
    labels: list[tuple[str, str | None, str]] = []
    values: list[IntArray] = []
    for which, phase in groups:
        masks = [_chosen(step_rows, which, phase) for _, step_rows in steps]
        if any(mask.any() for mask in masks):
            labels += [(which, phase, measure) for measure in _MEASURES]
            values += [
                joined(
                    [
                        _known(of(step_rows)[mask])
                        for (_, step_rows), mask in zip(steps, masks, strict=True)
                    ]
                )
                for of in _MEASURES.values()
            ]
    return {
        "which": [which for which, _, _ in labels],
        "phase": [phase for _, phase, _ in labels],
        "measure": [measure for _, _, measure in labels],
        **_spread(values, tokens_n),
    }


def _chosen(step_rows: StepRows, which: str, phase: str | None) -> npt.NDArray[np.bool_]:
    mask = step_rows.warmup if which == WARMUP else step_rows.steady
    if phase is None:
        return mask
    if phase not in step_rows.phases:
        return np.zeros_like(mask)
    return np.asarray(mask & (step_rows.phase == step_rows.phases.index(phase)))


def _known(values: IntArray) -> IntArray:
    return values[values != NULL_INT]


def _spread(groups: Sequence[IntArray], tokens_n: int | None = None) -> Columns:
    """Return the statistics of each group of steps."""
    group = np.repeat(np.arange(len(groups)), [values.size for values in groups])
    spread = ValueCounts.from_values(group, joined(groups)).spread(len(groups))
    columns = spread_columns(spread)
    return {
        "steps_n": spread.moments.n,
        "total_ns": spread.moments.total,
        **{name: columns[name] for name in _STATISTICS},
        "token_p50_ns": _per_token(columns["p50_ns"], tokens_n),
    }


def _phases(steps: _Steps, frames: PhaseFrames, tokens_n: int | None) -> Columns:
    """Return the GPU time of each phase in the steps that have some, over all ranks."""
    times = {
        name: joined([_in_phase(step_rows, name) for _, step_rows in steps])
        for name in frames.names
    }
    names = sorted(
        (name for name in times if times[name].size), key=lambda name: -int(times[name].sum())
    )
    return {"phase": names, **_spread([times[name] for name in names], tokens_n)}


def _in_phase(step_rows: StepRows, phase: str) -> IntArray:
    """Return the GPU time of a phase, ns, in the steady steps that have some of it."""
    if phase not in step_rows.phases:
        return joined([])
    times_ns = step_rows.phase_ns[step_rows.steady, step_rows.phases.index(phase)]
    return times_ns[times_ns > 0]
