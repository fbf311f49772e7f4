"""Counts the steps of one rank: instances of an NVTX range, or launches of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.intervals import IntArray, clipped_lengths, starts_inside, union_intervals
from nsys_llm.launch_ranges import find_steps
from nsys_llm.patterns import parse_pattern
from nsys_llm.rank_trace import OP_TABLES, RankTrace
from nsys_llm.ranges import Ranges, parse_choice, step_key
from nsys_llm.recipes.trace_diff.launches import Launches

__all__ = ["StepCount", "count_steps"]

#: Share of the GPU time, of what can be led back to a launch, that a range which repeats has to
#: hold to be taken for the step; ours. An operator of PyTorch repeats more often than any step.
LEAST_HELD_PCT: Final = 80


@dataclass(frozen=True)
class StepCount:
    """Steps of one rank.

    Attributes:
        steps_n: How many; None where they cannot be counted.
        step: What was counted: name of the range without running numbers, or of the kernel.
        note: Why they cannot be counted.
    """

    steps_n: int | None
    step: str | None = None
    note: str | None = None


def count_steps(
    trace: RankTrace, launches: Launches, options: Mapping[str, Any]
) -> StepCount:
    """Count the steps that the filters leave.

    Args:
        trace: One rank.
        launches: Its kernels.
        options: step_kernel counts launches of a kernel; step names a range; steps, skip_warmup
            and filters by time leave some of the steps.
    """
    if options["step_kernel"] is not None:
        return _by_kernel(trace, launches, options["step_kernel"])
    events = trace.tables["nvtx_events"]
    if not len(events):
        return StepCount(None, None, "no NVTX ranges are recorded")
    choice = parse_choice(options["step"]) if options["step"] else None
    last_ns = max((int(op["end_ns"].max()) for op in trace.unfiltered.values() if len(op)), default=0)
    ranges = find_steps(events, trace.strings, last_ns, choice)
    if not len(ranges.start_ns):
        why = "no NVTX range repeats" if choice is None else f"no NVTX range '{options['step']}'"
        return StepCount(None, None, why)
    step = step_key(str(ranges.name[0]))
    if choice is None and (held_pct := _held_pct(trace, ranges)) < LEAST_HELD_PCT:
        return StepCount(
            None,
            None,
            f"the range that repeats, '{step}', holds {held_pct} % of the GPU time: no step",
        )
    return StepCount(_chosen_n(trace, ranges, options), step)


def _by_kernel(trace: RankTrace, launches: Launches, text: str) -> StepCount:
    pattern = parse_pattern(text)
    wanted = np.array([pattern.matches(*key[:2]) for key in launches.keys], dtype=bool)
    names = sorted({key[0] for key, one in zip(launches.keys, wanted, strict=True) if one})
    if not names:
        return StepCount(None, None, f"no kernel matches '{text}'")
    inside = trace.starts_inside(trace.tables["kernels"])
    return StepCount(int((wanted[launches.key] & inside).sum()), names[0])


def _held_pct(trace: RankTrace, ranges: Ranges) -> int:
    """Return the share of the GPU time launched during the ranges, in whole percent."""
    calls = trace.tables["api_calls"]
    held_ns = known_ns = 0
    spans = union_intervals(ranges.start_ns, ranges.end_ns)
    for name in OP_TABLES:
        op = trace.unfiltered.get(name)
        if op is None or not len(op) or not len(calls):
            continue
        known = op["launch_row"] >= 0
        time_ns = (op["end_ns"] - op["start_ns"])[known]
        inside = starts_inside(calls["start_ns"][op["launch_row"][known]], spans)
        held_ns += int(time_ns[inside].sum())
        known_ns += int(time_ns.sum())
    return 100 * held_ns // known_ns if known_ns else 0


def _chosen_n(trace: RankTrace, ranges: Ranges, options: Mapping[str, Any]) -> int:
    rows: IntArray = np.arange(len(ranges.start_ns))
    if options["steps"]:
        rows = rows[slice(*options["steps"])]
    if options["skip_warmup"]:
        rows = rows[ranges.start_ns[rows] >= ranges.end_ns[0]]
    if trace.windows_ns is not None:
        # The range is the host's and the window the GPU's: a step counts where most of it lies.
        start, end = ranges.start_ns[rows], ranges.end_ns[rows]
        rows = rows[2 * clipped_lengths(start, end, trace.windows_ns) > end - start]
    return int(rows.size)
