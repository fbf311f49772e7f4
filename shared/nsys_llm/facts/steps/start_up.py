"""When a rank started up: all before its first step, where that loads, compiles or captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.wall.load import load_spans
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import (
    IntArray,
    intersect_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.rank_trace import RankTrace, sane_times

#: Before a first step that begins in less than this part of the run, nothing starts up; ours.
_LEAST_PCT: Final = 1
#: Part of the time before the first step that is known to load, compile or capture; ours.
_LEAST_KNOWN_PCT: Final = 10
#: Classes of calls that load code, and that capture or instantiate graphs.
_CALLS: Final = ("module", "graph")
#: A launch that takes so long loads or compiles code.
_SLOW_LAUNCH_NS: Final = 1_000_000


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
