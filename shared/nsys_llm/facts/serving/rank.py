"""Reduces one rank: what is in the batch of each step, and what the step takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from nsys_llm.facts.device.captured_sizes import replay_sizes
from nsys_llm.facts.device.graph_replays import NONE
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.serving.before_steps import idle_before_steps
from nsys_llm.facts.serving.kept import RankServing, ServedSteps
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.facts.steps.step_times import draft_busy_ns, host_idle_ns, step_times
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.categories import detect_engine
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import RankKey

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
