"""Counts the steps of one rank, and what each phase takes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.nvtx.phase_times import PhaseTimes
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.numeric.distributions import HistogramByName, ValueCounts
from nsys_llm.numeric.intervals import IntArray, clipped_lengths
from nsys_llm.taxonomy.names import step_key
from nsys_llm.trace.ranges import Ranges
from nsys_llm.trace.rank_trace import RankTrace

from .launches import Launches
from .step_numbers import StepNumber, step_numbers, tokens_of

_NO_STEP: Final = (
    "no NVTX range that repeats holds half of the GPU time: name one with --step, or a kernel that "
    "runs once a step with --step-kernel"
)


@dataclass(frozen=True)
class StepCount:
    """Steps of one rank.

    Attributes:
        steps_n: How many; None where they cannot be counted.
        step: What was counted: name of the range without running numbers, or of the kernel.
        note: Why they cannot be counted.
        outside_ns: GPU time that no step launched; None where steps are no ranges.
        numbers: What the names of the steps say that they do, see `step_numbers`.
        tokens_n: Tokens of all steps together, by their names; None where one does not tell.
    """

    steps_n: int | None
    step: str | None = None
    note: str | None = None
    outside_ns: int | None = None
    numbers: tuple[StepNumber, ...] = ()
    tokens_n: int | None = None


def count_steps(
    trace: RankTrace, launches: Launches, times: PhaseTimes, options: Mapping[str, Any]
) -> StepCount:
    """Count the steps that the filters leave.

    Args:
        trace: One rank.
        launches: Its kernels.
        times: Its GPU time by step.
        options: step_kernel counts launches of a kernel; step names a range; steps, skip_warmup
            and filters by time leave some of the steps.
    """
    if options["step_kernel"] is not None:
        return _by_kernel(trace, launches, options["step_kernel"])
    if times.steps is None:
        if options["step"]:
            return StepCount(None, None, f"no NVTX range '{options['step']}'")
        return StepCount(None, None, _NO_STEP)
    chosen = chosen_steps(trace, times.steps, options)
    outside_ns = int(times.gpu_ns.sum()) - int(times.step_gpu_ns[chosen].sum())
    names = [str(name) for name in times.steps.name[chosen].tolist()]
    return StepCount(
        int(chosen.size),
        step_key(str(times.steps.name[0])),
        None,
        outside_ns,
        step_numbers(names),
        tokens_of(names),
    )


def chosen_steps(trace: RankTrace, steps: Ranges, options: Mapping[str, Any]) -> IntArray:
    """Return which of the steps the filters leave, as positions."""
    rows: IntArray = np.arange(len(steps.start_ns))
    if options["steps"]:
        rows = rows[slice(*options["steps"])]
    if options["skip_warmup"]:
        rows = rows[steps.start_ns[rows] >= steps.end_ns[0]]
    if trace.windows_ns is not None:
        # The range is the host's and the window the GPU's: a step counts where most of it lies.
        start, end = steps.start_ns[rows], steps.end_ns[rows]
        rows = rows[2 * clipped_lengths(start, end, trace.windows_ns) > end - start]
    return rows


def phase_counts(
    trace: RankTrace, times: PhaseTimes, options: Mapping[str, Any]
) -> HistogramByName:
    """Return how often a phase took how long in a step; steps without it count for nothing."""
    if times.steps is None:
        return HistogramByName()
    taken = times.step_gpu_ns[chosen_steps(trace, times.steps, options)]
    step, phase = np.nonzero(taken)
    order = np.argsort(np.array(times.phases, dtype=object).astype(str), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    names = tuple(times.phases[index] for index in order.tolist())
    return HistogramByName(names, ValueCounts.from_values(place[phase], taken[step, phase]))


def _by_kernel(trace: RankTrace, launches: Launches, text: str) -> StepCount:
    pattern = parse_pattern(text)
    wanted = np.array([pattern.matches(*key[:2]) for key in launches.keys], dtype=bool)
    names = sorted({key[0] for key, one in zip(launches.keys, wanted, strict=True) if one})
    if not names:
        return StepCount(None, None, f"no kernel matches '{text}'")
    inside = trace.starts_inside(trace.tables["kernels"])
    return StepCount(int((wanted[launches.key] & inside).sum()), names[0])
