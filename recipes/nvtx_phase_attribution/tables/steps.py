"""The tables of steps, made out of the merged partial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.steps.of_job import job_steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, distribution_columns, nullable, percent
from nsys_llm.taxonomy.step_names import parse_step
from nsys_llm.trace.identity import Rank

from ..per_rank.steps import StepRows
from .phases import PhaseFrames
from .rank_frames import Parts

STEADY: Final = "steady"
WARMUP: Final = "warm-up"
_MEASURES: Final[Mapping[str, Callable[[StepRows], IntArray]]] = {
    "host": lambda steps: steps.end_ns - steps.start_ns,
    "gpu": lambda steps: steps.gpu_ns,
    "span": lambda steps: steps.span_ns,
    "idle": lambda steps: steps.idle_inside_ns,
}
_STATISTICS: Final = (
    "mean_ns",
    "std_ns",
    "min_ns",
    "p50_ns",
    "p90_ns",
    "p95_ns",
    "p99_ns",
    "max_ns",
)
_Steps = Sequence[tuple[Rank, StepRows]]


def step_columns(
    parts: Parts, frames: PhaseFrames, options: Mapping[str, Any]
) -> dict[str, Columns]:
    """Return the tables steps, step_stats, rank_steps, phase_steps and rank_phase_steps.

    Args:
        options: tokens_per_step.
    """
    steps = [(rank, part.steps) for rank, part in parts if part.steps is not None]
    job = job_steps({rank.key: step_rows.kind for rank, step_rows in steps})
    counted = [] if job is None else [row for row in steps if row[0].key not in job.others]
    gpu_ns = dict(frames.ranks.groupby("rank")["gpu_ns"].sum())
    return {
        "steps": _rows(steps, options["tokens_per_step"]),
        "step_stats": _statistics(counted, frames, options["tokens_per_step"]),
        "rank_steps": {
            **_by_rank(steps, gpu_ns),
            "unit": [step_rows.kind.unit for _, step_rows in steps],
            "counted": [job is not None and rank.key not in job.others for rank, _ in steps],
        },
        **_phases(counted, frames, options["tokens_per_step"]),
    }


def _rows(steps: _Steps, tokens_n: int | None) -> Columns:
    sizes = [len(step_rows.names) for _, step_rows in steps]

    def every(of: Callable[[StepRows], IntArray]) -> IntArray:
        return joined([of(step_rows) for _, step_rows in steps])

    host_ns = every(_MEASURES["host"])
    names = [name for _, step_rows in steps for name in step_rows.names]
    return {
        "rank": np.repeat(np.array([rank.number for rank, _ in steps], dtype=np.int64), sizes),
        "file": [rank.file for (rank, _), n in zip(steps, sizes, strict=True) for _ in range(n)],
        "step": every(lambda step_rows: step_rows.number),
        "name": names,
        "warmup": [bool(item) for _, steps_of in steps for item in steps_of.warmup],
        "full": [bool(item) for _, steps_of in steps for item in steps_of.full],
        "phase": [
            step_rows.phases[code] if code >= 0 else None
            for _, step_rows in steps
            for code in step_rows.phase.tolist()
        ],
        "start_ns": every(lambda step_rows: step_rows.start_ns),
        "end_ns": every(lambda step_rows: step_rows.end_ns),
        "host_ns": host_ns,
        "since_first_ns": every(lambda step_rows: step_rows.start_ns - step_rows.first_ns),
        "ops_n": every(lambda step_rows: step_rows.ops_n),
        "kernels_n": every(lambda step_rows: step_rows.kernels_n),
        "gpu_ns": every(_MEASURES["gpu"]),
        "gpu_start_ns": nullable(every(lambda step_rows: step_rows.gpu_start_ns)),
        "gpu_end_ns": nullable(every(lambda step_rows: step_rows.gpu_end_ns)),
        "span_ns": nullable(every(_MEASURES["span"])),
        "idle_inside_ns": nullable(every(_MEASURES["idle"])),
        "token_ns": _per_token(host_ns, tokens_n) if tokens_n else host_ns / _tokens(names),
    }


def _tokens(names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the tokens that each step computes by its name; NaN where that tells none."""
    told = {name: parse_step(name) for name in set(names)}
    tokens = {
        name: (batch.ctx_tokens or 0) + batch.gen_tokens
        for name, batch in told.items()
        if batch is not None and batch.gen_tokens is not None and batch.ctx_tokens is not None
    }
    return np.array([tokens.get(name) or np.nan for name in names], dtype=np.float64)


def _per_token(values: Any, tokens_n: int | None) -> Any:
    return np.full(len(values), np.nan) if tokens_n is None else np.asarray(values) / tokens_n


def _statistics(steps: _Steps, frames: PhaseFrames, tokens_n: int | None) -> Columns:
    """Return measures of all steady steps, of those of each phase, and of the warm-up."""
    groups: list[tuple[str, str | None]] = [(STEADY, None)]
    groups += [(STEADY, phase) for phase in frames.names]
    groups += [(WARMUP, None)]
    measured: list[tuple[str, str | None, str, list[IntArray]]] = []
    for which, phase in groups:
        masks = [_chosen(step_rows, which, phase) for _, step_rows in steps]
        if not any(mask.any() for mask in masks):
            continue
        for measure, of in _MEASURES.items():
            values = [
                of(step_rows)[mask] for (_, step_rows), mask in zip(steps, masks, strict=True)
            ]
            measured.append((which, phase, measure, [value[value != NULL_INT] for value in values]))
    return {
        "which": [row[0] for row in measured],
        "phase": [row[1] for row in measured],
        "measure": [row[2] for row in measured],
        **_distributions([row[3] for row in measured], [rank for rank, _ in steps], tokens_n),
    }


def _chosen(step_rows: StepRows, which: str, phase: str | None) -> IntArray:
    mask = step_rows.warmup if which == WARMUP else step_rows.steady
    if phase is None:
        return np.asarray(mask)
    code = step_rows.phases.index(phase) if phase in step_rows.phases else -2
    return np.asarray(mask & (step_rows.phase == code))


def _distributions(
    groups: Sequence[Sequence[IntArray]],
    ranks: Sequence[Rank],
    tokens_n: int | None,
    work: Sequence[Sequence[IntArray]] | None = None,
) -> Columns:
    """Return statistics of each group, whose values come by rank, and which rank is slow.

    Args:
        groups: Values of each group and rank.
        tokens_n: Tokens of a step.
        work: Values that tell which rank is slow; None: the same.
    """
    group = np.repeat(np.arange(len(groups)), [sum(map(len, group)) for group in groups])
    values = joined([values for group in groups for values in group])
    counts = ValueCounts.from_values(group, values)
    moments = counts.moments(len(groups))
    columns = distribution_columns(moments, counts.order_statistics(len(groups)))
    medians = [
        [float(np.median(rank_values)) if rank_values.size else -1.0 for rank_values in item]
        for item in work or groups
    ]
    slow = [int(np.argmax(median)) if median else 0 for median in medians]
    known = [[value for value in median if value >= 0] for median in medians]
    return {
        "steps_n": moments.n,
        "total_ns": moments.total,
        **{name: columns[name] for name in _STATISTICS},
        "token_p50_ns": _per_token(columns["p50_ns"], tokens_n),
        "slow_rank": [
            ranks[at].number if some else None for at, some in zip(slow, known, strict=True)
        ],
        "slow_rank_p50_ns": [max(some) if some else None for some in known],
        "rank_p50_ns": [float(np.median(some)) if some else None for some in known],
    }


def _by_rank(steps: _Steps, gpu_ns: Mapping[Any, int]) -> Columns:
    def statistics(of: Callable[[StepRows], IntArray], prefix: str) -> Columns:
        groups = [of(step_rows)[step_rows.steady] for _, step_rows in steps]
        groups = [group[group != NULL_INT] for group in groups]
        group = np.repeat(np.arange(len(groups)), [group.size for group in groups])
        counts = ValueCounts.from_values(group, joined(groups))
        columns = distribution_columns(
            counts.moments(len(groups)), counts.order_statistics(len(groups))
        )
        return {f"{prefix}_{name}": columns[name] for name in ("p50_ns", "p99_ns", "max_ns")}

    host, gpu = statistics(_MEASURES["host"], "host"), statistics(_MEASURES["gpu"], "gpu")
    span, idle = statistics(_MEASURES["span"], "span"), statistics(_MEASURES["idle"], "idle")
    held = np.array([int(step_rows.gpu_ns.sum()) for _, step_rows in steps], dtype=np.int64)
    whole = np.array([gpu_ns.get(rank.number, 0) for rank, _ in steps], dtype=np.int64)
    steady = [step_rows.steady for _, step_rows in steps]
    return {
        "rank": [rank.number for rank, _ in steps],
        "file": [rank.file for rank, _ in steps],
        "name": [step_rows.kind.name for _, step_rows in steps],
        "steps_n": [int(mask.sum()) for mask in steady],
        "warmup_n": [int(step_rows.warmup.sum()) for _, step_rows in steps],
        "host_ns": [
            int((step_rows.end_ns - step_rows.start_ns)[mask].sum())
            for (_, step_rows), mask in zip(steps, steady, strict=True)
        ],
        **host,
        "gpu_ns": [
            int(step_rows.gpu_ns[mask].sum())
            for (_, step_rows), mask in zip(steps, steady, strict=True)
        ],
        **gpu,
        "span_p50_ns": span["span_p50_ns"],
        "idle_p50_ns": idle["idle_p50_ns"],
        "gpu_pct": percent(held, whole),
    }


def _phases(steps: _Steps, frames: PhaseFrames, tokens_n: int | None) -> dict[str, Columns]:
    """Return the GPU time of each phase in the steps that have some, over all ranks and by rank."""
    nothing = np.empty(0, dtype=np.int64)
    by_phase: dict[str, list[IntArray]] = {}
    work: dict[str, list[IntArray]] = {}
    for at, (_, step_rows) in enumerate(steps):
        for code, phase in enumerate(step_rows.phases):
            some = step_rows.steady & (step_rows.phase_ns[:, code] > 0)
            by_phase.setdefault(phase, [nothing] * len(steps))[at] = step_rows.phase_ns[some, code]
            work.setdefault(phase, [nothing] * len(steps))[at] = step_rows.work_ns[some, code]
    names = [name for name in frames.names if any(len(item) for item in by_phase.get(name, ()))]
    sums = {name: sum(int(item.sum()) for item in by_phase[name]) for name in names}
    names.sort(key=lambda name: -sums[name])
    rows = [
        (rank, name, by_phase[name][at], work[name][at])
        for at, (rank, _) in enumerate(steps)
        for name in names
        if by_phase[name][at].size
    ]
    alone = _distributions(
        [[values] for _, _, values, _ in rows], [rows[0][0]] if rows else [], tokens_n
    )
    extras = ("slow_rank", "slow_rank_p50_ns", "rank_p50_ns")
    return {
        "phase_steps": {
            "phase": names,
            **_distributions(
                [by_phase[name] for name in names],
                [rank for rank, _ in steps],
                tokens_n,
                [work[name] for name in names],
            ),
        },
        "rank_phase_steps": {
            "rank": [rank.number for rank, *_ in rows],
            "file": [rank.file for rank, *_ in rows],
            "phase": [name for _, name, *_ in rows],
            **{name: values for name, values in alone.items() if name not in extras},
            "work_p50_ns": [float(np.median(work_ns)) for _, _, _, work_ns in rows],
        },
    }
