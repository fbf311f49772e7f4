"""When the profiler did its own work, and which calls it held up. Pure numpy.

CUPTI writes its buffers on threads of its own. Such a flush holds a CUDA call where the call has to
wait for it: the call is still running when the flush ends. A call that begins and returns while a
flush goes on was not held. Calls that wait for the GPU are held only while the GPU is idle: what it
runs is what they wait for. What is recorded on a thread that makes CUDA calls holds that thread.

Source of the rule: real captures of two processes, in which each call that a flush held ended 20
to 100 us after it, while calls of other threads went on as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.grouping import distinct, distinct_codes
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    covered_ns,
    intersect_intervals,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import PROFILER, WAITING_CLASSES, classify_api, overhead_kind
from nsys_llm.trace.rank_trace import OVERHEAD_TABLES, RankTrace, sane_times

_NONE: Final = np.empty((0, 2), dtype=np.int64)
#: Stands for all threads that make no CUDA call.
_ELSEWHERE: Final = None


@dataclass(frozen=True)
class HeldCalls:
    """The profiler's part of the calls of one process.

    Attributes:
        row: Shape (held,), the calls that it held, ascending.
        held_ns: Shape (held,), for how long, at most the call's length.
        spans: Shape (n, 2), sorted and disjoint: when it held any of them.
    """

    row: IntArray
    held_ns: IntArray
    spans: IntArray

    def each(self, calls_n: int) -> IntArray:
        """Return the profiler's part of every call, shape (calls_n,), ns."""
        if not self.row.size:
            return np.broadcast_to(np.int64(0), (calls_n,))
        by_call_ns = np.zeros(calls_n, dtype=np.int64)
        by_call_ns[self.row] = self.held_ns
        return by_call_ns


def profiler_spans(trace: RankTrace) -> IntArray:
    """Return when the profiler did its own work in this process: shape (n, 2), disjoint."""
    parts = list(_by_thread(trace, np.empty(0, dtype=np.int64)).values())
    return union_intervals(*np.concatenate([_NONE, *parts]).T)


def held_threads(trace: RankTrace, calls: Table) -> IntArray:
    """Return when the profiler worked on a thread that makes CUDA calls: shape (n, 2), disjoint."""
    by_thread = _by_thread(trace, distinct(calls["global_tid"]))
    by_thread.pop(_ELSEWHERE, None)
    return union_intervals(*np.concatenate([_NONE, *by_thread.values()]).T)


def held_calls(trace: RankTrace, calls: Table) -> HeldCalls:
    """Return which calls the profiler held up, and for how long."""
    none = HeldCalls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), _NONE)
    if not any(len(trace.tables.get(name, ())) for name in OVERHEAD_TABLES) or not len(calls):
        return none
    by_thread = _by_thread(trace, distinct(calls["global_tid"]))
    elsewhere = by_thread.pop(_ELSEWHERE, _NONE)
    every = union_intervals(*np.concatenate([_NONE, elsewhere, *by_thread.values()]).T)
    near = _reaching_into(calls, every)
    calls = calls.take(near)
    held_ns, pieces = np.zeros(len(calls), dtype=np.int64), [_NONE]
    waits = _waits(calls, trace.strings)
    idle = subtract_intervals(every, trace.gpu_busy) if waits.any() else every
    for thread in distinct(calls["global_tid"]).tolist():
        thread_spans = by_thread.get(thread, _NONE)
        flushes = subtract_intervals(elsewhere, thread_spans) if len(thread_spans) else elsewhere
        for waiting in (False, True):
            rows = np.flatnonzero((calls["global_tid"] == thread) & (waits == waiting))
            if not rows.size:
                continue
            some = calls.take(rows)
            for spans, ends in (
                (thread_spans, some["end_ns"]),
                (flushes, _released(some, flushes)),
            ):
                counted = intersect_intervals(spans, idle) if waiting else spans
                starts, ends = some["start_ns"], np.maximum(ends, some["start_ns"])
                held_ns[rows] += covered_ns(ends, counted) - covered_ns(starts, counted)
                _, first, last = clip_to_windows(starts, ends, counted)
                pieces.append(np.column_stack((first, last)))
    spans = union_intervals(*np.concatenate(pieces).T)
    kept = np.flatnonzero(held_ns > 0)
    return HeldCalls(near[kept], held_ns[kept], spans)


def _by_thread(trace: RankTrace, threads: IntArray) -> dict[int | None, IntArray]:
    """Return the profiler's work on each of some threads, and on all others: disjoint spans."""
    times_of: dict[int | None, list[IntArray]] = {}
    for owner, _, rows in overheads(trace):
        if owner != PROFILER:
            continue
        times = np.column_stack((rows["start_ns"], rows["end_ns"]))
        known = np.isin(rows["global_tid"], threads)
        times_of.setdefault(_ELSEWHERE, []).append(times[~known])
        for thread in distinct(rows["global_tid"][known]).tolist():
            times_of.setdefault(thread, []).append(times[rows["global_tid"] == thread])
    return {key: union_intervals(*np.concatenate(parts).T) for key, parts in times_of.items()}


def overheads(trace: RankTrace) -> Iterator[tuple[str, str, Table]]:
    """Yield owner, kind and rows of what the profiler and the driver recorded as their own."""
    for name in OVERHEAD_TABLES:
        rows = trace.tables.get(name)
        if rows is None or not len(rows):
            continue
        rows = rows.take(sane_times(rows["start_ns"], rows["end_ns"]))
        pairs = np.column_stack((rows["overhead_type"], rows["name_id"]))
        kinds, code = np.unique(pairs, axis=0, return_inverse=True)
        for at, (kind, text) in enumerate(kinds.tolist()):
            owner, label = overhead_kind(name, kind, trace.strings.get(text))
            yield owner, label, rows.take(code.reshape(-1) == at)


def _reaching_into(calls: Table, spans: IntArray) -> IntArray:
    """Return the calls that share time with spans, ascending."""
    if not len(spans):
        return np.empty(0, dtype=np.int64)
    near = (calls["end_ns"] > spans[0, 0]) & (calls["start_ns"] < spans[-1, 1])
    rows = np.flatnonzero(near)
    first = np.searchsorted(spans[:, 1], calls["start_ns"][rows], side="right")
    last = np.searchsorted(spans[:, 0], calls["end_ns"][rows], side="left")
    return rows[last > first]


def _waits(calls: Table, strings: Mapping[int, str]) -> IntArray:
    """Tell (0 or 1) which calls may return only when the GPU is done with something."""
    ids, code = distinct_codes(calls["name_id"])
    waits = [classify_api(strings.get(value, "")) in WAITING_CLASSES for value in ids.tolist()]
    return np.array(waits, dtype=np.int64)[code]


def _released(calls: Table, flushes: IntArray) -> IntArray:
    """Return until when each call may have been held: its end, or the begin of a flush after it.

    A flush that still goes on when a call returns did not hold it.
    """
    ends = calls["end_ns"]
    if not len(flushes):
        return ends
    at = np.maximum(np.searchsorted(flushes[:, 0], ends, side="right") - 1, 0)
    within = (flushes[at, 0] <= ends) & (ends < flushes[at, 1])
    return np.where(within, flushes[at, 0], ends)


def held_idle(held: IntArray, busy: IntArray) -> IntArray:
    """Return when a device was idle because the profiler held a call of its process.

    Between the device's first operation and its last: shape (n, 2), sorted and disjoint.

    Args:
        busy: When the device ran anything: shape (m, 2), sorted and disjoint.
    """
    if not len(held) or not len(busy):
        return _NONE
    inside = np.array([[busy[0, 0], busy[-1, 1]]], dtype=np.int64)
    return subtract_intervals(intersect_intervals(held, inside), busy)
