"""Work that left no row is lost only if it must have ended inside the capture."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from capture.process_world import US, Process

from nsys_llm.capture.unrecorded import NOTHING, find_unrecorded

MEMCPY, GRAPH = "cudaMemcpyAsync_v3020", "cudaGraphLaunch_v10000"


def judged(process: Process, end_ns: int | None = None):
    tables, lost, late = process.tables(end_ns)
    return find_unrecorded(*tables), lost, late


def steps(process: Process, steps_n: int, *, row: bool = True, sync: bool = True, **more) -> None:
    for _ in range(steps_n):
        for _ in range(10):
            process.work(row=row, **more)
        if sync:
            process.wait()


def test_lost_buffers_are_lost_between_the_calls_and_the_next_row():
    process = Process()
    steps(process, 5)
    first_ns = process.now_ns[1]
    steps(process, 3, row=False)
    last_ns = process.now_ns[1]
    steps(process, 5)
    found, lost, _ = judged(process)
    assert (found.kernels_n, found.launches_n, found.late_n) == (30, 130, 0) == (len(lost), 130, 0)
    assert found.spans[0, 0] == first_ns == found.lost[0, 0]
    assert last_ns - 2 * US < found.spans[-1, 1] <= last_ns + 10 * US
    # Without what tells the streams of waits, and without waits, the next row of the stream tells.
    assert find_unrecorded(*process.tables()[0][:3]).kernels_n == 30
    process = Process()
    for row in (True, False, True):
        steps(process, 3, row=row, sync=False)
    assert judged(process)[0].kernels_n == 30


def test_a_process_without_rows_has_lost_what_it_waited_for():
    process = Process()
    steps(process, 4, row=False)
    assert judged(process)[0].kernels_n == 40
    for number in range(3):  # asked for, and never waited for
        process.work(row=False, ns=number)
    found, _, _ = judged(process)
    assert (found.kernels_n, found.late_n) == (40, 3)
    process = Process()
    steps(process, 4, row=False, sync=False)
    found, _, _ = judged(process)
    assert (found.kernels_n, found.late_n, found.launches_n) == (0, 40, 40)
    # Another thread waits for it.
    process.now_ns[2] = process.now_ns[1]
    process.wait(tid=2, row=False)
    assert judged(process)[0].kernels_n == 40


def test_waits_for_events_tell_of_a_process_without_rows():
    process = Process()
    for row in (False,) * 6:
        for _ in range(10):
            process.work(row=row)
        process.call("cudaEventRecord_v3020")
        process.call("cudaEventSynchronize_v3020", ns=300 * US)
    found, _, _ = judged(process)
    # The last step's event may not be the one that was waited for.
    assert (found.kernels_n, found.late_n) == (50, 10)


def random_run(random: Random, *, streams_n: int, lost_n: int = 0) -> Process:
    """Return a run of one or two threads, each with some streams, shallow and deep."""
    process = Process()
    threads_n = random.randint(1, 2)
    every = random.sample(range(7, 30), 2 * streams_n)
    streams = {0: every[: random.randint(1, streams_n)], 1: every[streams_n:]}
    long_us = {stream: random.choice((3, 15, 60)) for stream in every}
    first = random.randint(50, 250)
    for number in range(400):
        tid = min(range(threads_n), key=lambda tid: process.now_ns.get(tid, 0))
        stream = random.choice(streams[tid])
        if random.random() < 0.05:
            process.wait(random.choice((stream, stream, None)), tid=tid)
        elif random.random() < 0.1:
            process.work(MEMCPY, stream=stream, tid=tid, table="memcpys", ns=5 * US)
        else:
            row = not first <= number < first + lost_n
            process.work(stream=stream, tid=tid, ns=long_us[stream] * US, row=row)
    return process


@pytest.mark.parametrize("seed", range(40))
def test_what_the_end_of_a_capture_cuts_is_never_lost(seed):
    # Deep queues beside shallow ones; which call went where is not known.
    process = random_run(Random(seed), streams_n=3)
    last_ns = max(call[1] for call in process.calls)
    for end_ns in range(last_ns // 2, last_ns, last_ns // 7):
        found, lost, late = judged(process, end_ns)
        assert not lost
        assert (found.kernels_n, found.graphs_n, found.copies_n) == (0, 0, 0), (end_ns, len(late))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_lost_in_the_midst_is_found_and_nothing_else(seed):
    random = Random(seed)
    streams_n = random.choice((1, 1, 3))
    process = random_run(random, streams_n=streams_n, lost_n=random.randint(1, 140))
    process.now_ns[0] = max(process.now_ns.values())
    process.wait(None, tid=0)
    found, lost, _ = judged(process)
    assert found.kernels_n == len(lost)
    # Of a thread with several streams it is not known where its lost work was.
    assert streams_n > 1 or _covered(process, found.spans, lost)


def _covered(process: Process, spans, lost: set[int]) -> bool:
    """Whether each ran inside of a window."""
    start_ns = np.array([process.calls[number][0] for number in lost])
    ended_ns = np.array([op[4] for op in process.ops if op[1] in lost])
    start_ns.sort(), ended_ns.sort()
    at = np.searchsorted(spans[:, 0], start_ns, "right") - 1
    return bool((at >= 0).all() and (ended_ns <= spans[at, 1]).all())


def test_a_queue_of_a_quarter_second_that_is_cut_lost_nothing():
    process = Process()
    for _ in range(40):
        process.work(ns=120 * US)
        process.work(MEMCPY, stream=13, table="memcpys")
        process.wait(13)
    for _ in range(2_000):
        process.work(ns=120 * US)
    for _ in range(200):  # beside it, in another stream
        process.work(ns=2 * US, stream=13)
        process.work(MEMCPY, stream=13, table="memcpys")
        process.wait(13)
    found, _, late = judged(process, process.now_ns[1])
    assert len(late) > 1_500
    assert (found.kernels_n, found.copies_n, found.late_n) == (0, 0, len(late))
    assert not len(found.spans)


@pytest.mark.parametrize("other", [False, True])
def test_calls_in_a_stream_capture_run_later(other):
    process = Process()
    process.work()
    for _ in range(20):
        process.now_ns[2] = max(process.now_ns.values())
        process.call("cudaStreamBeginCapture_v10000", tid=2)
        process.now_ns[1] = process.now_ns[2]
        for _ in range(50):
            process.call("cudaLaunchKernel_v7000", tid=1 + (not other))
        process.now_ns[2] = max(process.now_ns.values())
        process.call("cudaStreamEndCapture_v10000", tid=2)
        process.now_ns[1] = process.now_ns[2]
        process.work()
        process.wait(None)
    found, _, _ = judged(process)
    assert (found.kernels_n, found.late_n) == (0, 0)
    process.work(row=False)
    process.wait(None)
    assert judged(process)[0].kernels_n == 1


def test_a_capture_that_began_before_the_profile_ends_inside_of_it():
    process = Process()
    for _ in range(600):
        process.call("cudaLaunchKernel_v7000")
    process.call("cudaStreamEndCapture_v10000")
    steps(process, 3)
    assert judged(process)[0].kernels_n == 0
    # Nor does one that is ended by another thread, or never.
    process.call("cudaStreamBeginCapture_v10000")
    for _ in range(50):
        process.call("cudaLaunchKernel_v7000")
    process.now_ns[2] = process.now_ns[1]
    process.call("cudaStreamEndCapture_v10000", tid=2)
    process.now_ns[1] = process.now_ns[2]
    steps(process, 3)
    process.wait(None)
    assert judged(process)[0].kernels_n == 0
    steps(process, 1, row=False)
    assert judged(process)[0].kernels_n == 10


def test_what_leaves_no_row_by_nature_is_not_lost():
    process = Process()
    for number in range(60):
        steps(process, 1)
        process.call("cudaLaunchKernel_v7000", error=700)
        process.call(MEMCPY)  # of no bytes
        process.call("cudaMemcpy_v3020")  # within the host
        process.work(GRAPH, table="graph_traces")
        process.call(GRAPH)  # an empty one
        if number % 3 == 0:  # a runtime call that makes one of the driver
            process.work(ns=9 * US)
            start_ns, end_ns, tid, _, _ = process.calls[-1]
            process.names += ["cuLaunchKernel"] * ("cuLaunchKernel" not in process.names)
            inner = (start_ns + 500, end_ns - 500, tid, process.names.index("cuLaunchKernel"), 0)
            process.calls.append(inner)
        process.wait(None)
    found, _, _ = judged(process)
    assert (found.kernels_n, found.graphs_n, found.copies_n, found.late_n) == (0, 0, 0, 0)
    assert (found.copy_calls_n, found.copies_seen_n, found.copies_cut_n) == (120, 0, 0)


def test_graphs_without_rows_are_lost_where_none_has_one_or_many_in_a_row_do_not():
    process = Process()
    for _ in range(64):
        process.work()
        process.work(GRAPH, row=False, ns=500 * US)
        process.wait()
    found, _, _ = judged(process)
    assert (found.graphs_n, found.kernels_n, len(found.spans)) == (64, 0, 64)
    process = Process()
    for number in range(40):
        process.work(GRAPH, row=not 10 <= number < 20, table="graph_traces")
        process.wait()
    assert judged(process)[0].graphs_n == 10


def test_copies_are_lost_beside_lost_kernels():
    process = Process()
    for number in range(60):
        row = not 20 <= number < 30
        for _ in range(5):
            process.work(row=row)
        process.work(MEMCPY, row=row, table="memcpys")
        process.wait()
    found, _, _ = judged(process)
    assert (found.kernels_n, found.copies_n) == (50, 10)


def test_without_calls_or_their_numbers_nothing_is_known():
    assert find_unrecorded(None, {}, {}) is NOTHING
    process = Process()
    steps(process, 5)
    (calls, ops, strings, waits), _, _ = process.tables()
    ops = {name: op.plus(launch_row=op["launch_row"] * 0 - 1) for name, op in ops.items()}
    assert find_unrecorded(calls, ops, strings, waits) is NOTHING
    # Of two calls with one number, either may have the row.
    process.work(row=False)
    process.wait()
    (calls, ops, strings, waits), lost, _ = process.tables()
    ids = calls["correlation_id"].copy()
    ids[list(lost)] = 0
    assert find_unrecorded(calls.plus(correlation_id=ids), ops, strings, waits).kernels_n == 0
