"""The steps of a rank: what its NVTX ranges say they are, and which work was launched in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.nvtx.launch_ranges import find_steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.ranges import Ranges
from nsys_llm.trace.rank_trace import RankTrace

#: Share of the launched GPU time that repeated ranges must hold to be the steps of a job; ours.
_LEAST_HELD_PCT: Final = 50


def rank_steps(
    trace: RankTrace, launched_ns: IntArray, time_ns: IntArray, options: Mapping[str, Any]
) -> tuple[Ranges | None, IntArray]:
    """Return the steps of a rank, and the step in which each operation was launched, -1 for none.

    Without --step, the outermost range that repeats is a step only if the steps hold at least half
    of the GPU time that was launched by a recorded call: where operators alone are marked, the most
    frequent of them is no step. None where there is no step.

    Args:
        trace: The rank.
        launched_ns: Shape (n,), when each of its operations was launched, whatever the filters
            leave; NULL_INT where no call is recorded.
        time_ns: Shape (n,), how long each ran.
        options: step.
    """
    events = trace.tables.get("nvtx_events")
    nothing = np.full(launched_ns.shape, -1, dtype=np.int64)
    if events is None or not len(events):
        return None, nothing
    choice = parse_choice(options["step"]) if options.get("step") else None
    steps = find_steps(events, trace.strings, trace.last_end_ns, choice)
    if not len(steps.start_ns):
        return None, nothing
    known = launched_ns != NULL_INT
    found = np.where(known, innermost(launched_ns, steps.start_ns, steps.end_ns), -1)
    held_ns, all_ns = int(time_ns[found >= 0].sum()), int(time_ns[known].sum())
    if choice is None and 100 * held_ns < _LEAST_HELD_PCT * all_ns:
        return None, nothing
    return steps, found
