"""What one rank's threads spent in calls into the operating system's libraries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.device.profiler_time import HeldCalls, held_idle
from nsys_llm.numeric.distributions import Moments, OrderStatistics, ValueCounts
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    intersect_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace

from .host_time import GroupTimes, HostTime

#: Code of ENUM_NSYS_EVENT_CLASS (3.7 to 3.30); 31 and 32 mark begin and end of the profiling.
_OS_CALL: Final = 27


@dataclass(frozen=True)
class OsWaits:
    """OS functions of one rank; arrays of shape (functions,).

    Attributes:
        names: Sorted.
        moments: Of whole calls that start in the window.
        order: Around the percentiles of those.
        times: Time inside the window.
        longest_start_ns: Start of the longest call, the earliest of equals; NULL_INT for none.
        launching: Time inside the window on threads that launch GPU work.
        profiler_ns: Part of that time, with the GPU idle, in which the profiler held CUDA calls.
    """

    names: tuple[str, ...]
    moments: Moments
    order: OrderStatistics
    times: GroupTimes
    longest_start_ns: IntArray
    launching: GroupTimes
    profiler_ns: IntArray


def map_os_waits(trace: RankTrace, launching_threads: IntArray, held: HeldCalls) -> OsWaits:
    """Reduce the OS calls of one rank; no functions where the capture has no such calls.

    Args:
        trace: The rank.
        launching_threads: globalTid of the threads with launch calls.
        held: Which CUDA calls the profiler held.
    """
    calls, _ = trace.host_calls("os_calls")
    calls = calls.take(calls["event_class"] == _OS_CALL)
    names, code = coded_names(calls["name_id"], trace.strings)
    inside = trace.starts_inside(calls)
    whole_ns = calls["end_ns"] - calls["start_ns"]
    counts = ValueCounts.from_values(code[inside], whole_ns[inside])
    moments = counts.moments(len(names))
    launching = np.isin(calls["global_tid"], launching_threads)
    return OsWaits(
        names=names,
        moments=moments,
        order=counts.order_statistics(len(names)),
        times=_time(trace, calls).by_group(code, len(names)),
        longest_start_ns=longest_starts(code, calls["start_ns"], whole_ns, inside, moments.maximum),
        launching=_time(trace, calls.take(launching)).by_group(code[launching], len(names)),
        profiler_ns=_profiler_ns(trace, calls.take(launching), code[launching], len(names), held),
    )


def _profiler_ns(
    trace: RankTrace, calls: Table, code: IntArray, names_n: int, held: HeldCalls
) -> IntArray:
    """Return by function how long calls lay in what the profiler held while the GPU was idle."""
    held_ns, spans = np.zeros(names_n, dtype=np.int64), held_idle(held.spans, trace.gpu_busy)
    if trace.windows_ns is not None and len(spans):
        spans = intersect_intervals(spans, trace.windows_ns)
    if not len(spans):
        return held_ns
    near = clipped_lengths(calls["start_ns"], calls["end_ns"], spans) > 0
    for value in np.unique(code[near]).tolist():
        rows = np.flatnonzero(near & (code == value))
        call_spans = union_intervals(calls["start_ns"][rows], calls["end_ns"][rows])
        held_ns[value] = total_length_ns(intersect_intervals(call_spans, spans))
    return held_ns


def _time(trace: RankTrace, calls: Table) -> HostTime:
    return HostTime.of(
        calls["start_ns"], calls["end_ns"], calls["global_tid"], trace.gpu_busy, trace.windows_ns
    )
