"""What the launching thread was in while the device ran nothing before a step's first operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.nvtx.launch_ranges import event_text, innermost_events
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.batches import PREFILL, Batches
from nsys_llm.analyses.steps.no_work import TIMES
from nsys_llm.analyses.steps.step_times import StepTimes, first_operations
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    merged_unions,
    subtract_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.step_names import holds_every_request, range_key
from nsys_llm.trace.ranges import PUSH_POP, closed_ends

OF_STEP: Final = "(step range)"
OF_NONE: Final = "(none)"


def idle_before_steps(
    view: RankView, steps: Steps, times: StepTimes, batches: Batches
) -> Mapping[str, int]:
    """Return the idle time before the first operations of steps that count, by range.

    From the end of the step before to the first operation; without the profiler's own work, and
    without time in which the server had no request, or may have had none. In ns, over all steps;
    ranges with running numbers as #.
    """
    trace = view.trace
    first_ns, call = first_operations(steps)
    known = ~_may_be_empty(times, batches)
    rows = np.flatnonzero(times.counted & known & (call >= 0) & (first_ns > times.before_ns))
    if not rows.size:
        return {}
    calls = trace.tables["api_calls"]
    free = np.column_stack((times.before_ns[rows], np.minimum(first_ns[rows], times.end_ns[rows])))
    taken = merged_unions([trace.gpu_busy, view.no_work, view.profiler])
    idle = subtract_intervals(free, taken)
    owner = np.searchsorted(free[:, 0], idle[:, 0], side="right") - 1
    thread = calls["global_tid"][call[rows[owner]]]
    events = trace.tables.get("nvtx_events")
    sums: dict[str, int] = {}
    for tid in np.unique(thread).tolist():
        spans = idle[thread == tid]
        if events is None or not len(events):
            pieces, names = spans, [OF_NONE] * len(spans)
        else:
            pieces = _cut_at_edges(events, tid, spans, trace.last_end_ns)
            names = _names(view, steps, events, tid, pieces)
        lengths = (pieces[:, 1] - pieces[:, 0]).tolist()
        for name, time_ns in zip(names, lengths, strict=True):
            sums[name] = sums.get(name, 0) + time_ns
    return sums


def _may_be_empty(times: StepTimes, batches: Batches) -> npt.NDArray[np.bool_]:
    """Return before which steps the server may have had no request, and no name tells.

    As for `no_work`, of engines whose steps with prompts do not say who else is in the server.
    """
    if len(times.mark) < 2 or batches.engine is None or holds_every_request(batches.engine):
        return np.zeros(times.end_ns.size, dtype=bool)
    between_ns = times.begin_ns - times.before_ns
    least_ns = max(TIMES * lower_median(between_ns[1:]), lower_median(times.cost_ns[1:]))
    reads = np.array([phase == PREFILL for phase in batches.phase], dtype=bool)
    return np.asarray(reads & (between_ns > least_ns))


def _cut_at_edges(events: Table, tid: int, spans: IntArray, last_ns: int) -> IntArray:
    """Return spans cut where a range of a thread begins or ends."""
    ends, _ = closed_ends(events["end_ns"], last_ns)
    selected = (events["event_type"] == PUSH_POP) & (events["global_tid"] == tid)
    edges = [spans[0, 0] - 1, spans[-1, 1] + 1]
    at_ns = np.concatenate((events["start_ns"][selected], ends[selected], edges))
    at_ns = np.unique(at_ns[(at_ns >= edges[0]) & (at_ns <= edges[1])])
    _, starts, stops = clip_to_windows(
        spans[:, 0], spans[:, 1], np.column_stack((at_ns[:-1], at_ns[1:]))
    )
    return np.column_stack((starts, stops))[stops > starts]


def _names(view: RankView, steps: Steps, events: Table, tid: int, pieces: IntArray) -> list[str]:
    """Return what each piece lies in: the innermost range of the thread."""
    thread = np.full(len(pieces), tid, dtype=np.int64)
    row = innermost_events(events, pieces[:, 0], thread, view.trace.last_end_ns)
    used, code = np.unique(row, return_inverse=True)
    place = np.searchsorted(steps.span_start_ns, events["start_ns"][used])
    place = np.minimum(place, len(steps) - 1)
    is_step = steps.span_start_ns[place] == events["start_ns"][used]
    is_step &= steps.span_end_ns[place] == events["end_ns"][used]
    special = np.where(used < 0, OF_NONE, np.where(is_step, OF_STEP, "")).tolist()
    names = [
        name or range_key(event_text(events, at, view.trace.strings))
        for name, at in zip(special, used.tolist(), strict=True)
    ]
    return [names[place] for place in code.tolist()]
