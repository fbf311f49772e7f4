"""When the devices of a rank were idle because of the profiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from nsys_llm.facts.device.profiler_time import held_idle, held_threads
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_NONE: Final = np.empty((0, 2), dtype=np.int64)

#: When devices were idle because the profiler held a call or a thread of their process, by rank and
#: CUDA device id: shape (n, 2), sorted and disjoint, the report's clock; devices without any are
#: left out.
HeldDevices = Mapping[tuple[RankKey, int], IntArray]


def of(view: RankView) -> HeldDevices:
    """Return the spans of one rank's devices; none where it has no collectives."""
    trace = view.trace
    if not view.collectives or "api_calls" not in trace.tables:
        return {}
    calls = trace.host_calls("api_calls")
    held = np.concatenate((view.held.spans, held_threads(trace, calls)))
    if not len(held):
        return {}
    spans_of, every = {}, union_intervals(*held.T)
    for device in trace.device_ids:
        spans = held_idle(every, _busy(trace, device))
        if len(spans):
            spans_of[view.key, device] = spans
    return spans_of


def _busy(trace: RankTrace, device: int) -> IntArray:
    """Return when a device ran anything: shape (n, 2), sorted and disjoint."""
    if trace.device_ids == (device,):
        return trace.gpu_busy
    ops = [op for name, op in trace.unfiltered.items() if name in OP_TABLES and len(op)]
    device_ops = [op.take(op["device_id"] == device) for op in ops]
    starts = np.concatenate([_NONE[:, 0], *(op["start_ns"] for op in device_ops)])
    return union_intervals(
        starts, np.concatenate([_NONE[:, 0], *(op["end_ns"] for op in device_ops)])
    )
