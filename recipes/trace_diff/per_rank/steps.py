"""Counts the steps of one rank, and what each phase takes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.nvtx.phase_times import PhaseTimes
from nsys_llm.analyses.steps.of_job import StepKind
from nsys_llm.analyses.steps.steps import ENGINE, OPTION, REPEATED, STEP_KERNEL, Steps
from nsys_llm.numeric.distributions import HistogramByName, ValueCounts
from nsys_llm.numeric.intervals import IntArray, clipped_lengths
from nsys_llm.trace.rank_trace import RankTrace

from .step_works import step_works

_NAME_ONE: Final = "name a range with --step, or a kernel that runs once a step with --step-kernel"
_NO_STEP: Final = (
    "no step found: no range of an engine, none that repeats and holds half of the GPU time, no "
    f"graphs and no period of kernels; {_NAME_ONE}"
)
#: Sums over a whole run, divided by a number of which the first and the last are parts, are off.
_CUT: Final = (
    "a {unit} is what lies between two marks ('{name}'), and the capture cuts the outer ones"
)


@dataclass(frozen=True)
class StepCount:
    """Steps of one rank.

    Attributes:
        steps_n: How many; None where they cannot be counted.
        kind: What was counted; None where nothing was.
        note: Why they cannot be counted.
        outside_ns: GPU time that no step launched.
        tokens_n: Tokens of all steps together, by their names; None where one does not tell.
    """

    steps_n: int | None
    kind: StepKind | None = None
    note: str | None = None
    outside_ns: int | None = None
    tokens_n: int | None = None


def count_steps(trace: RankTrace, times: PhaseTimes, options: Mapping[str, Any]) -> StepCount:
    """Count the steps that the filters leave.

    Args:
        options: step and step_kernel name what a step is; steps, skip_warmup and filters by time
            leave some of the steps.
    """
    if times.steps is None:
        for name, kind in (("step", "NVTX range"), ("step_kernel", "kernel matches")):
            if options[name]:
                return StepCount(None, None, f"no {kind} '{options[name]}'")
        return StepCount(None, None, _NO_STEP)
    if not counts_as_whole(times.steps):
        name, unit = times.steps.name, times.steps.unit
        return StepCount(None, None, f"{_CUT.format(unit=unit, name=name)}; {_NAME_ONE}")
    chosen = chosen_steps(trace, times.steps, options)
    outside_ns = int(times.gpu_ns.sum()) - int(times.step_gpu_ns[chosen].sum())
    names = [str(name) for name in times.steps.names[chosen].tolist()]
    return StepCount(int(chosen.size), StepKind.of(times.steps), None, outside_ns, _tokens_n(names))


def _tokens_n(names: list[str]) -> int | None:
    known = [work.tokens_n for work in step_works(names)[0]]
    counted = [n for n in known if n is not None]
    return sum(counted) if counted and len(counted) == len(known) else None


def counts_as_whole(steps: Steps) -> bool:
    """Tell whether sums over a run can be divided by the number of its steps.

    They can where each step is a range, or where a user says what runs once a step.
    """
    return steps.source in (OPTION, STEP_KERNEL, ENGINE, REPEATED)


def chosen_steps(trace: RankTrace, steps: Steps, options: Mapping[str, Any]) -> IntArray:
    """Return which of the steps the filters leave, as positions."""
    rows: IntArray = np.arange(len(steps))
    if options["steps"]:
        rows = rows[slice(*options["steps"])]
    if options["skip_warmup"]:
        rows = rows[steps.span_start_ns[rows] >= steps.span_end_ns[0]]
    if trace.windows_ns is not None:
        # The range is the host's and the window the GPU's: a step counts where most of it lies.
        start, end = steps.span_start_ns[rows], steps.span_end_ns[rows]
        rows = rows[2 * clipped_lengths(start, end, trace.windows_ns) > end - start]
    return rows


def phase_counts(
    trace: RankTrace, times: PhaseTimes, options: Mapping[str, Any]
) -> HistogramByName:
    """Return how often a phase took how long in a step; steps without it count for nothing."""
    if times.steps is None or not counts_as_whole(times.steps):
        return HistogramByName()
    taken = times.step_gpu_ns[chosen_steps(trace, times.steps, options)]
    step, phase = np.nonzero(taken)
    counts = ValueCounts.from_values(phase, taken[step, phase])
    # Merging orders the names.
    return HistogramByName.merge([HistogramByName(tuple(times.phases), counts)])
