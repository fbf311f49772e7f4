"""When a rank started up: all before its first step, where that loads, compiles or captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nsys_llm.analyses.steps.marked_ranges import MarkedRanges
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.analyses.wall.load import load_spans
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

    The profile's clock; shape (1, 2), or (0, 2) for a run without steps, or where the time before
    them is not known to be a start-up: a prompt that is read before tokens are generated is none.

    Args:
        find: Returns the steps of the rank; not called where nothing starts up.
    """
    nothing, busy, signs = np.empty((0, 2), dtype=np.int64), trace.gpu_busy, _signs(trace)
    steps = find() if len(signs) and len(busy) else None
    if steps is None:
        return nothing
    first_ns, last_ns, until_ns = int(busy[0, 0]), int(busy[-1, 1]), int(steps.start_ns[0])
    span = np.array([[first_ns, until_ns]], dtype=np.int64)
    if 100 * (until_ns - first_ns) < _LEAST_PCT * (last_ns - first_ns):
        return nothing
    known = intersect_intervals(union_intervals(*signs.T), span)
    enough = 100 * total_length_ns(known) >= _LEAST_KNOWN_PCT * (until_ns - first_ns)
    return span if enough and until_ns > first_ns else nothing


def _signs(trace: RankTrace) -> IntArray:
    """Return when a model was copied, code loaded, a graph captured, or a warm-up ran; (n, 2)."""
    parts = [MarkedRanges.of_rank(trace).warmups_ns()]
    for device in trace.device_ids:
        load = load_spans(trace, device)
        parts.append(np.array([[load[0, 0], load[-1, 1]]]) if len(load) else load)
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
