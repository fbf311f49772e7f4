"""What the launching thread was in while the device ran nothing before a step's first operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.host.places import Places
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.batches import Batches
from nsys_llm.analyses.steps.no_work import TIMES
from nsys_llm.analyses.steps.step_times import StepTimes, first_operations
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.numeric.intervals import merged_unions, subtract_intervals
from nsys_llm.taxonomy.step_names import holds_every_request, range_key

OF_STEP: Final = "(step range)"
OF_NONE: Final = "(none)"
#: Percentile of what is usual: the rest may be a pause, which is none of each step.
_USUAL: Final = 98


def idle_before_steps(
    view: RankView, steps: Steps, batches: Batches, times: StepTimes
) -> Mapping[str, int]:
    """Return the idle time before the first operations of steps that count, by range.

    From the end of the step before to the first operation; without the profiler's own work, without
    time in which the server had no request or may have had none, and without pauses: before few
    steps, and many times as long as before the others. In ns, over all steps; ranges with running
    numbers as #.
    """
    trace = view.trace
    first_ns, call = first_operations(steps)
    rows = np.flatnonzero(times.counted & (call >= 0) & (first_ns > times.before_ns))
    idle_ns = first_ns[rows] - times.before_ns[rows]
    sums: Counter[str] = Counter()
    if not rows.size:
        return sums
    is_long = (idle_ns > TIMES * np.median(idle_ns)) & _may_arrive(batches)[rows]
    is_long |= idle_ns > TIMES * np.percentile(idle_ns, _USUAL, method="lower")
    rows = rows[~is_long]
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


def _may_arrive(batches: Batches) -> npt.NDArray[np.bool_]:
    """Return before which steps nobody may have been there, of engines whose names leave it open.

    They read prompts, and no more requests generate next than may have come with them.
    """
    generating, reading = batches.field("gen_reqs"), batches.field("ctx_reqs")
    if batches.engine is None or holds_every_request(batches.engine):
        return np.zeros(generating.size, dtype=bool)
    ends = np.append(np.flatnonzero(generating), generating.size)
    then = ends[np.searchsorted(ends, np.arange(generating.size))]
    read_n = np.append(0, np.cumsum(np.maximum(reading, 0)))
    enough = np.append(generating, 0)[then] <= read_n[then] - read_n[:-1]
    return np.asarray((generating == 0) & (reading > 0) & enough)
