"""Which calls the profiler held up, against a brute force that walks every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.facts.device.profiler_time import held_calls, held_idle, profiler_spans
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import RankTrace

APP, SECOND, WORKER = 100, 101, 200
NAMES = {1: "cudaLaunchKernel_v7000", 2: "cudaStreamSynchronize_v3020", 3: "CUPTI Buffer flush"}
LAUNCH, SYNC = 1, 2
FLUSH, LOADING = 3, 6


def table(rows, names):
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(names)).T
    return Table(dict(zip(names, columns, strict=True)))


def trace_of(calls, overheads, ops=()):
    """Return a rank: calls (start, end, tid, name), overheads (start, end, tid, type)."""
    overheads = [(start, end, tid, 3, kind) for start, end, tid, kind in overheads]
    columns = ("start_ns", "end_ns", "global_tid", "name_id")
    kernels = table([(*op, 0) for op in ops], ("start_ns", "end_ns", "device_id"))
    tables = {
        "api_calls": table(calls, columns),
        "profiler_overheads": table(overheads, (*columns, "overhead_type")),
        "kernels": kernels,
    }
    return RankTrace(tables, NAMES, None, {"kernels": kernels}, (0,))


def held_of(calls, overheads, ops=()):
    trace = trace_of(calls, overheads, ops)
    return held_calls(trace, trace.tables["api_calls"]).each(len(calls)).tolist()


def test_a_device_is_held_while_it_is_idle_in_a_held_call():
    calls = [(1300, 7090, APP, LAUNCH)]
    trace = trace_of(calls, [(1000, 7000, WORKER, FLUSH)], [(0, 2000), (7500, 8000)])
    held = held_calls(trace, trace.tables["api_calls"])
    assert held_idle(held.spans, trace.gpu_busy).tolist() == [[2000, 7000]]
    # A device whose work had not begun was not idle.
    assert held_idle(held.spans, np.array([[3000, 3100], [7500, 8000]])).tolist() == [[3100, 7000]]


def brute_force(calls, overheads, ops):
    """Return the profiler's part of every call, one nanosecond after the other."""
    callers = {tid for _, _, tid, _ in calls}
    not_loading = [overhead for overhead in overheads if overhead[3] != LOADING]
    elsewhere = {
        at for low, high, tid, _ in not_loading if tid not in callers for at in range(low, high)
    }
    busy = {at for low, high in ops for at in range(low, high)}
    times_ns = []
    for start, end, tid, name in calls:
        on_thread = {at for low, high, on, _ in not_loading if on == tid for at in range(low, high)}
        flushes, until = elsewhere - on_thread, end
        while until in flushes and until - 1 in flushes:
            until -= 1
        held = {at for at in range(start, max(until, start)) if at in flushes}
        held |= on_thread & set(range(start, end))
        times_ns.append(len(held - busy if name == SYNC else held))
    return times_ns


@pytest.mark.parametrize("seed", range(40))
def test_the_profilers_part_is_what_a_brute_force_finds(seed):
    rng = np.random.default_rng(seed)

    def spans(n, longest):
        starts = rng.integers(0, 300, n)
        return np.column_stack((starts, starts + rng.integers(0, longest, n))).tolist()

    calls = [
        (*span, int(rng.choice([APP, SECOND])), int(rng.choice([LAUNCH, SYNC])))
        for span in spans(30, 60)
    ]
    overheads = [
        (*span, rng.choice([APP, WORKER, WORKER + 1]).item(), rng.choice([FLUSH, LOADING]).item())
        for span in spans(6, 50)
    ]
    ops = [tuple(span) for span in spans(8, 40)]
    assert held_of(calls, overheads, ops) == brute_force(calls, overheads, ops)
    lengths = [end - start for start, end, _, _ in calls]
    assert all(a <= b for a, b in zip(held_of(calls, overheads, ops), lengths, strict=True))


def test_without_overheads_nothing_is_held():
    trace = trace_of([(0, 100, APP, LAUNCH)], [])
    held = held_calls(trace, trace.tables["api_calls"])
    assert (held.row.size, len(held.spans), len(profiler_spans(trace))) == (0, 0, 0)
