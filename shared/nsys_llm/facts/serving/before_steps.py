"""What the launching thread was in while the device ran nothing before a step's first operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from nsys_llm.facts.host.places import Places
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.no_work import TIMES
from nsys_llm.facts.steps.step_times import StepTimes, first_operations
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.intervals import merged_unions, subtract_intervals
from nsys_llm.taxonomy.step_names import range_key

OF_STEP: Final = "(step range)"
OF_NONE: Final = "(none)"
#: Percentile of what is usual: the rest may be a pause, which is none of each step.
_USUAL: Final = 98


def idle_before_steps(view: RankView, steps: Steps, times: StepTimes) -> Mapping[str, int]:
    """Return the idle time before the first operations of steps that count, by range.

    From the end of the step before to the first operation; without the profiler's own work, without
    time in which the server had no request, and without pauses: before few steps, and many times as
    long as before the others. In ns, over all steps; ranges with running numbers as #.
    """
    trace = view.trace
    first_ns, call = first_operations(steps)
    rows = np.flatnonzero(times.counted & (call >= 0) & (first_ns > times.before_ns))
    idle_ns = first_ns[rows] - times.before_ns[rows]
    sums: Counter[str] = Counter()
    if not rows.size:
        return sums
    rows = rows[idle_ns <= TIMES * np.percentile(idle_ns, _USUAL, method="lower")]
    free = np.column_stack((times.before_ns[rows], np.minimum(first_ns[rows], times.end_ns[rows])))
    idle = subtract_intervals(free, merged_unions([trace.gpu_busy, view.no_work, view.profiler]))
    owner = np.searchsorted(free[:, 0], idle[:, 0], side="right") - 1
    thread = trace.tables["api_calls"]["global_tid"][call[rows[owner]]]
    places = Places(view.marked, steps)
    of_step = {steps.name, *map(range_key, set(steps.names.tolist()))}
    for tid in np.unique(thread).tolist():
        spans = idle[thread == tid]
        at_ns, place = places.line(tid, spans)
        span = np.searchsorted(spans[:, 0], at_ns, side="right") - 1
        stop_ns = np.minimum(np.append(at_ns[1:], spans[-1, 1]), spans[span, 1])
        for key, time_ns in zip(place.tolist(), (stop_ns - at_ns).tolist(), strict=True):
            name = places.named(key)[1] or OF_NONE
            sums[OF_STEP if name in of_step else name] += time_ns
    return +sums
