"""When a rank was away from its work: a server without a request, a program that starts up.

Steps of an engine whose next one holds requests that have just come and none that generates: nobody
was served in between. Short stretches between steps are the engine's own work: they are longer than
five times the median one, and than the median step, as where launches run ahead the stretches are
next to nothing. Of an engine that reads prompts in steps of their own the next step that generates
tells: where no more requests are in it than were certainly just read, nobody else was there. Where
others seem to have been, which such an engine serves without a pause, the host tells: it was in no
range of work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.by_range import engine_spans
from nsys_llm.facts.steps.launched_ops import LaunchedOps
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import Steps, with_operations
from nsys_llm.facts.wall.layers import load_spans
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_ns,
    intersect_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.taxonomy.step_names import holds_every_request, parse_step
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.ranges import PUSH_POP
from nsys_llm.trace.rank_trace import RankTrace, sane_times

#: A stretch without a request is so many times the median one between two steps.
TIMES: Final = 5
#: Ranges in which a host looks for requests.
_WAITS: Final = re.compile(r"recv|fetch_new|wait|poll|idle|sleep", re.IGNORECASE)
_NEVER: Final = int(np.iinfo(np.int64).max)
#: Before a first step that begins in less than this part of the run, nothing starts up; ours.
_LEAST_PCT: Final = 1
#: Part of the time before the first step that is known to load, compile or capture; ours.
_LEAST_KNOWN_PCT: Final = 10
#: Classes of calls that load code, and that capture or instantiate graphs.
_CALLS: Final = ("module", "graph")
#: A launch that takes so long loads or compiles code.
_SLOW_LAUNCH_NS: Final = 1_000_000


def no_work_spans(trace: RankTrace) -> IntArray:
    """Return when no request was in the server of a rank: shape (n, 2), sorted and disjoint.

    The profile's clock, between the end of all that a step launched and the next step's begin, on
    whose thread no step is open. Nothing for what is no server, or whose steps do not say what they
    hold. Filters change nothing.
    """
    events = trace.tables.get("nvtx_events")
    if events is None or not _tells(events, trace):
        return np.empty((0, 2), dtype=np.int64)
    ops = LaunchedOps.of(trace)
    marked = MarkedRanges.of_rank(trace)
    spans = engine_spans(marked, ops)
    if spans is None:
        return np.empty((0, 2), dtype=np.int64)
    steps = with_operations(spans, ops, _NEVER, np.zeros(len(spans), dtype=np.int64))
    return _empty(steps, _at_work(marked, steps))


def _tells(events: Table, trace: RankTrace) -> bool:
    """Return whether any range is a step that only new requests are in; most traces have none."""
    is_range = events["event_type"] == PUSH_POP
    ids = distinct(events["text_id"][is_range])
    plain = np.flatnonzero(is_range & (events["text_id"] == NULL_INT))
    texts = {text or "" for text in events["text"][plain].tolist()}
    texts |= {trace.strings.get(key, "") for key in ids.tolist()}
    parsed = map(parse_step, texts)
    return any(step is not None and step.ctx_reqs and step.gen_reqs == 0 for step in parsed)


def _at_work(marked: MarkedRanges, steps: Steps) -> IntArray:
    """Return when the thread of some steps was in ranges between two of them, but to wait."""
    of_steps = np.isin(marked.start_ns, steps.start_ns)
    rows = (marked.thread == np.bincount(marked.thread[of_steps]).argmax()) & ~of_steps
    rows &= ~marked.which(lambda name: _WAITS.search(name) is not None)
    starts, ends = marked.start_ns[rows], marked.end_ns[rows]
    first, last = (np.searchsorted(steps.start_ns, edge) for edge in (starts, ends))
    return union_intervals(starts[first == last], ends[first == last])


def _empty(steps: Steps, at_work: IntArray) -> IntArray:
    if not steps.devices:
        return np.empty((0, 2), dtype=np.int64)
    ended_ns = np.stack([steps.windows_ns(device)[:, 1] for device in steps.devices]).max(axis=0)
    free_ns, begin_ns = np.maximum(ended_ns, steps.end_ns)[:-1], steps.start_ns[1:]
    between_ns = np.maximum(begin_ns - free_ns, 0)
    if not between_ns.size:
        return np.empty((0, 2), dtype=np.int64)
    cost_ns = ended_ns[1:] - np.maximum(ended_ns[:-1], begin_ns)
    least_ns = max(TIMES * lower_median(between_ns), lower_median(cost_ns))
    sure, seems = _arrivals(steps.names.tolist())[:, 1:]
    worked_ns = covered_ns(begin_ns, at_work) - covered_ns(free_ns, at_work)
    rows = np.flatnonzero((sure | (seems & (2 * worked_ns < between_ns))) & (between_ns > least_ns))
    return np.column_stack((free_ns[rows], begin_ns[rows]))


def _arrivals(names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which steps hold requests that have just come while the server has no others.

    Shape (2, steps): for sure, and where others may be there, or seem to.
    """
    steps = [parse_step(name) for name in names]
    # Of a server that only reads prompts, those that are read are gone.
    stays = any(step is not None and step.gen_reqs for step in steps)
    arrives = np.zeros((2, len(names)), dtype=bool)
    # Requests of the next step that generates; None where that is not told.
    then_n: int | None = None
    # Requests that are read up to it, and of how many of them the first step may have read on.
    read_n = again_n = 0
    for place in range(len(names) - 1, -1, -1):
        step = steps[place]
        if step is None or step.gen_reqs is None or step.ctx_reqs is None:
            then_n = None
            continue
        if step.ctx_reqs and again_n and stays:
            arrives[:, place + 1] = False
        if step.gen_reqs:
            then_n, read_n, again_n = step.gen_reqs, 0, 0
        elif step.ctx_reqs:
            read_n += step.ctx_reqs - again_n
            again_n = int(step.c_sk is None or step.c_sk != step.ctx_tokens)
            alone = then_n is not None and then_n <= read_n
            arrives[:, place] = alone or holds_every_request(step.engine), True
    return arrives


def start_up_spans(trace: RankTrace, find: Callable[[], Steps | None]) -> IntArray:
    """Return when a rank started up: from its first operation to its first step.

    Without steps, to the end of the copies that load its model. The profile's clock; shape (1, 2),
    or (0, 2) where the time before the steps is not known to be a start-up: a prompt that is read
    before tokens are generated is none.

    Args:
        find: Returns the steps of the rank; not called where nothing starts up.
    """
    nothing, busy = np.empty((0, 2), dtype=np.int64), trace.gpu_busy
    loads = _loads(trace)
    signs = np.concatenate([loads, _signs(trace)])
    if not len(signs) or not len(busy):
        return nothing
    steps = find()
    first_ns, last_ns = int(busy[0, 0]), int(busy[-1, 1])
    until_ns = int(loads[:, 1].max(initial=first_ns) if steps is None else steps.start_ns[0])
    span = np.array([[first_ns, until_ns]], dtype=np.int64)
    if 100 * (until_ns - first_ns) < _LEAST_PCT * (last_ns - first_ns):
        return nothing
    known = intersect_intervals(union_intervals(*signs.T), span)
    enough = 100 * total_length_ns(known) >= _LEAST_KNOWN_PCT * (until_ns - first_ns)
    return span if enough and until_ns > first_ns else nothing


def _loads(trace: RankTrace) -> IntArray:
    """Return from when to when the model of each device was copied, shape (n, 2)."""
    loads = (load_spans(trace, device) for device in trace.device_ids)
    spans = [(int(load[0, 0]), int(load[-1, 1])) for load in loads if len(load)]
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def _signs(trace: RankTrace) -> IntArray:
    """Return when code was loaded, a graph captured, or a warm-up ran; shape (n, 2)."""
    parts = [MarkedRanges.of_rank(trace).warmups_ns()]
    calls = trace.tables.get("api_calls")
    if calls is not None and len(calls):
        ids = distinct(calls["name_id"])
        kinds = [classify_api(text_of(key, trace.strings)) for key in ids.tolist()]
        starts, ends = calls["start_ns"], calls["end_ns"]
        is_sign = np.isin(calls["name_id"], ids[np.isin(kinds, _CALLS)])
        launches = np.isin(calls["name_id"], ids[np.isin(kinds, LAUNCH_CLASSES)])
        is_sign |= launches & (ends - starts >= _SLOW_LAUNCH_NS)
        is_sign &= sane_times(starts, ends)
        parts.append(np.column_stack((starts[is_sign], ends[is_sign])))
    return np.concatenate(parts)
