"""Reduces one rank: what is in the batch of each step, and what the step takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.device.captured_sizes import replay_sizes
from nsys_llm.facts.device.graph_replays import NONE
from nsys_llm.facts.host.places import Places
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.away import TIMES
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.facts.steps.step_times import StepTimes, draft_busy_ns, host_idle_ns, step_times
from nsys_llm.facts.steps.steps import Steps, first_operations
from nsys_llm.numeric.intervals import IntArray, merged_unions, subtract_intervals
from nsys_llm.taxonomy.categories import detect_engine
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import RankKey


@dataclass(frozen=True)
class ServedSteps:
    """The steps of one rank whose engine's format is known.

    Attributes:
        name: What they share.
        graph: Shape (steps,), the CUDA graph that each replays, of several the one that takes
            longest; -1 for none.
        graph_size: Rows that it was captured for; -1 where that is not known.
        host_idle_ns: Shape (steps,), idle time by host causes in steps with context and without a
            graph; 0 in others.
        draft_busy_ns: Shape (drafts,), how long what each draft launched ran; None without any.
        before_ns: Idle time before first operations of steps, in ns, by range.
    """

    name: str
    batches: Batches
    times: StepTimes
    graph: IntArray
    graph_size: IntArray
    host_idle_ns: IntArray
    draft_busy_ns: IntArray | None
    before_ns: Mapping[str, int]


@dataclass(frozen=True)
class RankServing:
    """One rank.

    Attributes:
        device_id: The first of its CUDA devices.
        served: None without a step of a known format.
    """

    kernels_of: str
    device_id: int
    served: ServedSteps | None = None


#: One in so many steps, that with most idle time, may be a pause, which no graph would save.
_UNUSUAL: Final = 20


def of(view: RankView) -> Mapping[RankKey, RankServing]:
    """Reduce one rank; without a step of an engine's format only its engine is kept."""
    trace, steps = view.trace, view.steps
    kernels, _ = coded_names(trace.unfiltered["kernels"]["demangled_name_id"], trace.strings)
    batches, served = view.batches, None
    if steps is not None and batches is not None:
        served = _served(view, steps, batches)
    device_id = min(trace.device_ids, default=0)
    return {view.key: RankServing(detect_engine(kernels), device_id, served)}


def _served(view: RankView, steps: Steps, batches: Batches) -> ServedSteps:
    times = step_times(view, steps)
    graph, graph_size = _graphs(view, steps, batches)
    drafts = steps.drafts
    eager = times.counted & (batches.field("ctx_reqs") > 0) & (graph == NONE)
    # Where none replays a graph these steps are like all others.
    rows = np.flatnonzero(eager & batches.is_read & (graph != NONE).any())
    return ServedSteps(
        name=steps.name,
        batches=batches,
        times=times,
        graph=graph,
        graph_size=graph_size,
        host_idle_ns=_usual(host_idle_ns(view, times, rows), rows),
        draft_busy_ns=None if drafts is None else draft_busy_ns(drafts, steps),
        before_ns=idle_before_steps(view, steps, times) if batches.is_read else {},
    )


def _usual(idle_ns: IntArray, rows: IntArray) -> IntArray:
    """Return idle time of steps of which one in 20 has no more than the others: one may pause."""
    if rows.size:
        place = rows.size - 1 - max(rows.size // _UNUSUAL, 1)
        idle_ns = np.minimum(idle_ns, np.sort(idle_ns[rows])[max(place, 0)])
    return idle_ns


def _graphs(view: RankView, steps: Steps, batches: Batches) -> tuple[IntArray, IntArray]:
    """Return the graph that each step replays, the longest of several, and its captured size."""
    replays = view.graph_replays
    graph, size = np.full((2, len(steps)), NONE, dtype=np.int64)
    if not len(replays):
        return graph, size
    step, _, sizes = replay_sizes(view, replays, steps, batches)
    inside = np.flatnonzero(step >= 0)
    # The longest stands last, and is the one that stays.
    inside = inside[np.argsort((replays.end_ns - replays.start_ns)[inside], kind="stable")]
    graph[step[inside]] = replays.graph[inside]
    size[step[inside]] = sizes.of(replays.graph)[inside]
    return graph, size


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
