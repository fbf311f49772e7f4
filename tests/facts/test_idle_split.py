"""The split of idle time against a simulation that asks of each nanosecond why it was idle."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st
from rank_views import view_of

from nsys_llm.facts.device.idle_split import sum_gaps
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.rank_trace import RankTrace

APIS = {
    1: ("cudaLaunchKernel_v7000", "launch_api"),
    2: ("cudaStreamSynchronize_v3020", "host_sync"),
    3: ("cudaMemcpy_v3020", "sync_memop"),
    4: ("cudaMalloc_v3020", "alloc"),
    5: ("cudaEventRecord_v3020", "other_api"),
    6: ("cudaGraphLaunch_v10000", "launch_api"),
}
BLOCKING = {"host_sync", "sync_memop", "alloc"}
FLUSH, LOAD, FULL = 3, 6, 8

#: On each of two threads: time until the next call, its length, its function, and whether it
#: makes another call inside.
CALLS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 9), st.sampled_from(sorted(APIS)), st.booleans()),
    max_size=6,
)
#: Operations: begin, length, and which call launched it.
OPS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 7), st.integers(-1, 14)),
    min_size=1,
    max_size=7,
    unique_by=lambda op: op[0],
)
OVERHEADS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 8),
        st.integers(1, 2),
        st.sampled_from((FLUSH, LOAD, FULL)),
    ),
    max_size=3,
)


def calls_of(threads):
    """Return (start, end, thread, function) of all calls; inner ones follow their outer one."""
    calls = []
    for thread, some in enumerate(threads, start=1):
        at = 0
        for wait, length, api, nested in some:
            start, end = at + wait, at + wait + length
            calls.append((start, end, thread, api))
            if nested and length > 2:
                calls.append((start + 1, end - 1, thread, 4))
            at = end
    return calls


def trace_of(ops, calls, overheads):
    def table(names, raw):
        columns = list(zip(*raw, strict=True)) or [[]] * len(names)
        arrays = (np.array(column, dtype=np.int64) for column in columns)
        return Table(dict(zip(names, arrays, strict=True)))

    launched = {row for *_, row in ops}
    kernels = table(
        ("start_ns", "end_ns", "launch_row", "correlation_id", "device_id", "demangled_name_id"),
        [(start, start + length, row, row, 0, 9) for start, length, row in ops],
    )
    tables = {
        "kernels": kernels,
        "api_calls": table(
            ("start_ns", "end_ns", "global_tid", "name_id", "correlation_id", "return_value"),
            # What launched nothing has failed: else its work would be missing.
            [(*call, row, row not in launched) for row, call in enumerate(calls)],
        ),
    }
    events = [(start, start + length, thread, kind, 9) for start, length, thread, kind in overheads]
    names = ("start_ns", "end_ns", "global_tid", "overhead_type", "name_id")
    tables["profiler_overheads"] = table(names, [event for event in events if event[3] == FLUSH])
    tables["cuda_overheads"] = table(names, [event for event in events if event[3] != FLUSH])
    strings = {key: name for key, (name, _) in APIS.items()} | {9: "k"}
    return RankTrace(tables, strings, None, {"kernels": kernels}, (0,))


def simulated(ops, calls, overheads):
    """Return ns by cause, asked instant by instant."""
    sums = Counter()
    spans = sorted((start, start + length, row) for start, length, row in ops)
    error = clock_error(ops, calls)
    for at in range(spans[0][0], max(end for _, end, _ in spans)):
        if any(start <= at < end for start, end, _ in spans):
            continue
        after = min(span for span in spans if span[0] > at)
        begin = max([span[1] for span in spans if span[0] <= at])
        before = min(span for span in spans if span[1] == begin and span[0] <= at)
        sums[cause_of(at, begin, before, after, calls, overheads, error)] += 1
    return dict(sums)


def clock_error(ops, calls):
    """Return how long before its call the 99th of 100 launched operations starts, at least 0."""
    early = sorted(max(calls[row][0] - start, 0) for start, _, row in ops if row >= 0)
    return next((error_ns for n, error_ns in enumerate(early, 1) if 100 * n >= 99 * len(early)), 0)


def cause_of(at, begin, before, after, calls, overheads, error):
    def happens(kind, thread=None):
        return any(
            start <= at < start + length
            for start, length, owner, what in overheads
            if what == kind and thread in (None, owner)
        )

    if happens(FLUSH):
        return "profiler_overhead"
    launch, earlier = outermost(after[2], calls), outermost(before[2], calls)
    if launch is None:
        return "no_api"
    start, end, thread, api = launch
    graph = api == 6 and earlier == launch
    if after[0] - begin < error and not graph and end > begin - error:
        return "unresolved"
    if end <= begin or graph:
        return "queued"
    if at >= end:
        return "launch_latency"
    if happens(LOAD, thread):
        return "module_load"
    if happens(FULL, thread):
        return "back_pressure"
    if at >= start:
        return APIS[api][1]
    cause = running(at, thread, calls)
    if cause is not None:
        return cause
    other = None if earlier is None or earlier[2] == thread else running(at, earlier[2], calls)
    return other if other in BLOCKING else "host_no_cuda"


def outermost(row, calls):
    if row < 0:
        return None
    start, end, thread, _ = calls[row]
    around = [
        call for call in calls[:row] if call[2] == thread and call[0] < start and end < call[1]
    ]
    return around[0] if around else calls[row]


def running(at, thread, calls):
    open_calls = [call for call in calls if call[2] == thread and call[0] <= at < call[1]]
    return APIS[min(open_calls)[3]][1] if open_calls else None


@pytest.mark.slow
@examples(200)
@given(OPS, st.tuples(CALLS, CALLS), OVERHEADS)
@example([(1, 2, 0), (5, 2, 0)], ([(0, 9, 6, False)], []), [])  # two nodes of one graph
def test_each_nanosecond_has_the_cause_that_a_simulation_gives_it(ops, threads, overheads):
    calls = calls_of(threads)
    ops = [(start, length, row if row < len(calls) else -1) for start, length, row in ops]
    # A thread that makes no call cannot launch, and what the driver does on it holds up nobody.
    trace = trace_of(ops, calls, overheads)
    view = view_of(trace)
    (device,) = view.device_ops
    sums = sum_gaps(device.gaps, device.launch_row, view.host)
    causes = dict(zip(CAUSE_NAMES, sums.time_ns.sum(axis=1).tolist(), strict=True))
    assert {cause: ns for cause, ns in causes.items() if ns} == simulated(ops, calls, overheads)
    assert (sums.certain_ns <= sums.time_ns).all()
    assert (sums.certain_ns >= 0).all()
    assert sums.gaps_n.sum() == len(device.gaps)
    assert sums.time_ns.sum() == (device.gaps.end_ns - device.gaps.start_ns).sum()
