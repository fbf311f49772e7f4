"""What one rank's threads spent in calls into the operating system's libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.device.profiler_time import HeldCalls, held_idle
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    intersect_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.numeric.stacking import stacked
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import Columns, rank_columns, sorted_columns
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import RankTrace

from ..per_rank.calls import CallRows, call_columns, host_time
from ..per_rank.host_time import GroupTimes

#: Code of ENUM_NSYS_EVENT_CLASS (3.7 to 3.30); 31 and 32 mark begin and end of the profiling.
_OS_CALL: Final = 27


@dataclass(frozen=True)
class OsWaits:
    """OS functions of one rank; arrays of shape (functions,).

    Attributes:
        launching: Time inside the window on threads that launch GPU work.
        profiler_ns: Part of that time, with the GPU idle, in which the profiler held CUDA calls.
    """

    functions: CallRows
    launching: GroupTimes
    profiler_ns: IntArray


def map_os_waits(trace: RankTrace, held: HeldCalls) -> OsWaits:
    """Reduce the OS calls of one rank; no functions where the capture has no such calls."""
    calls, _ = trace.host_calls("os_calls")
    calls = calls.take(calls["event_class"] == _OS_CALL)
    if not len(calls):
        return stacked(OsWaits, [])
    names, code = coded_names(calls["name_id"], trace.strings)
    times = host_time(trace, calls).by_group(code, len(names))
    functions, _ = CallRows.of(names, calls, code, trace.starts_inside(calls), times)
    launching = np.isin(calls["global_tid"], _launching_threads(trace))
    calls, code = calls.take(launching), code[launching]
    return OsWaits(
        functions,
        launching=host_time(trace, calls).by_group(code, len(names)),
        profiler_ns=_profiler_ns(trace, calls, code, len(names), held),
    )


def os_wait_columns(ranks: Sequence[tuple[Rank, OsWaits]]) -> Columns:
    """Return the table os_waits."""
    rows = stacked(OsWaits, [waits for _, waits in ranks])
    columns = {
        **rank_columns([(rank, len(waits.functions.names)) for rank, waits in ranks]),
        "function": list(rows.functions.names),
        **call_columns(rows.functions),
        "launching_ns": rows.launching.union_ns,
        "launching_hidden_ns": rows.launching.hidden_ns,
        "launching_outside_ns": rows.launching.outside_ns,
        "launching_exposed_ns": rows.launching.exposed_ns,
        "launching_profiler_ns": rows.profiler_ns,
    }
    return sorted_columns(columns, "rank", "-total_ns", "function")


def _launching_threads(trace: RankTrace) -> IntArray:
    calls = trace.tables["api_calls"]
    ids = [key for key, text in trace.strings.items() if classify_api(text) in LAUNCH_CLASSES]
    return distinct(calls["global_tid"][np.isin(calls["name_id"], ids)])


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
