"""Profiles of the simulated job hold what happened, and nothing that a capture does not see."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from machine import parts, random_program, simulate, write_profiles
from machine.program import Enqueue, Program, Rank, Record, Sync, WaitEvent, Work
from machine.scenarios import blocking_streams, gpu_bound
from trace_host import NOT_APPLICABLE

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"


def query(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def tables(path):
    return {name for (name,) in query(path, "SELECT name FROM sqlite_master")}


@pytest.mark.parametrize("seed", range(4))
def test_operations_lie_where_they_ran_and_join_their_calls(tmp_path, seed):
    outcome = simulate(random_program(seed, 2))
    for rank, path in enumerate(write_profiles(outcome, tmp_path)):
        shift_ns = outcome.program.ranks[rank].capture_ns
        there = tables(path)
        kinds = ("KERNEL", "MEMCPY", "MEMSET")
        known = [kind for kind in kinds if f"CUPTI_ACTIVITY_KIND_{kind}" in there]
        operations = " UNION ALL ".join(
            "SELECT start, end, streamId, correlationId, graphNodeId IS NOT NULL AS node"
            f" FROM CUPTI_ACTIVITY_KIND_{kind}"
            for kind in known
        )
        rows = query(
            path,
            "SELECT o.start, o.end, streamId, node, r.start, r.end, value"
            f" FROM ({operations}) o JOIN {RUNTIME} r USING (correlationId)"
            " JOIN StringIds ON id = r.nameId",
        )
        expected = [
            (
                op.start - shift_ns,
                op.end - shift_ns,
                op.stream,
                int(op.node is not None),
                op.call.start - shift_ns,
                op.call.end - shift_ns,
                op.call.name,
            )
            for op in outcome.operations[rank]
        ]
        assert sorted(rows) == sorted(expected)
        assert query(path, f"SELECT count(*) FROM {RUNTIME}") == [(len([*outcome.calls(rank)]),)]


def events_job():
    kernel = Work(parts.GEMM, 5000)
    thread = (
        Enqueue(kernel, 7),
        Record("a", 7),
        WaitEvent("a", 14),
        Enqueue(kernel, 14),
        Record("a", 14),
        WaitEvent("a", 7),
        Enqueue(kernel, 7),
        Sync("event", event="a"),
        Sync("stream", stream=14),
        Sync("device"),
    )
    return simulate(Program((Rank((thread,)),)))


WAIT_ROWS = f"""
    SELECT value, syncType, streamId, eventId, s.start - r.start, r.end - s.end
    FROM {WAITS} s JOIN {RUNTIME} r USING (correlationId) JOIN StringIds ON id = nameId
    ORDER BY s.start
"""


def test_waits_and_records_have_rows_that_join(tmp_path):
    (path,) = write_profiles(events_job(), tmp_path)
    none = NOT_APPLICABLE
    assert [row[:4] for row in query(path, WAIT_ROWS)] == [
        ("cudaStreamWaitEvent_v3020", 2, 14, 1),
        ("cudaStreamWaitEvent_v3020", 2, 7, 1),
        ("cudaEventSynchronize_v3020", 1, none, 1),
        ("cudaStreamSynchronize_v3020", 3, 14, none),
        ("cudaDeviceSynchronize_v3020", 4, none, none),
    ]
    assert all(before > 0 and after > 0 for *_, before, after in query(path, WAIT_ROWS))
    # What waits and what was recorded: the event is the same, its records are not.
    joined = f"SELECT e.streamId, s.streamId FROM {WAITS} s JOIN {RECORDS} e USING (eventSyncId)"
    assert query(path, f"{joined} ORDER BY s.start") == [(7, 14), (14, 7), (14, none)]
    assert query(path, f"SELECT DISTINCT eventId, timestamp FROM {RECORDS}") == [(1, 0)]
    assert query(path, "SELECT streamId FROM TARGET_INFO_CUDA_STREAM ORDER BY 1") == [(7,), (14,)]


def test_streams_say_whether_they_wait_for_the_default_one(tmp_path):
    job = blocking_streams(ranks_n=1)
    (path,) = write_profiles(simulate(job), tmp_path)
    flags = "SELECT streamId, flag FROM TARGET_INFO_CUDA_STREAM ORDER BY 1"
    assert query(path, flags) == [(7, 3), (14, 1)]
    (apart,) = write_profiles(events_job(), tmp_path / "apart")
    assert query(apart, flags) == [(7, 3), (14, 2)]


def test_calls_of_the_driver_lie_inside_those_of_the_runtime(tmp_path):
    outcome = events_job()
    (plain,) = write_profiles(outcome, tmp_path / "plain")
    (path,) = write_profiles(outcome, tmp_path / "nested", nested=True)
    inside = f"""
        SELECT value, count(*), count(DISTINCT i.correlationId) FROM {RUNTIME} i
        JOIN {RUNTIME} o ON o.start < i.start AND i.end < o.end JOIN StringIds ON id = i.nameId
        GROUP BY value
    """
    assert query(plain, inside) == []
    assert query(path, inside) == [("cuCtxSynchronize", 1, 1), ("cuLaunchKernel", 3, 3)]
    joined = f"SELECT count(*) FROM {KERNEL} JOIN {RUNTIME} USING (correlationId)"
    assert query(path, joined) == query(plain, joined) == [(3,)]


def test_what_begins_before_the_capture_is_not_recorded(tmp_path):
    program = gpu_bound(ranks_n=1)
    whole = simulate(program)
    operations = whole.operations[0]
    capture_ns = operations[20].start - 1
    # The host is ahead: calls whose operations run later were made before.
    assert operations[20].call.start < capture_ns
    cut = Program((replace(program.ranks[0], capture_ns=capture_ns),))
    (path,) = write_profiles(simulate(cut), tmp_path)
    kernels_n = len([op for op in operations if op.start >= capture_ns])
    assert query(path, f"SELECT count(*), min(start) FROM {KERNEL}") == [(kernels_n, 1)]
    calls = f"SELECT count(*) FROM {KERNEL} LEFT JOIN {RUNTIME} r USING (correlationId)"
    assert query(path, f"{calls} WHERE r.start IS NULL")[0][0] > 0
    assert query(path, f"SELECT min(start) FROM {RUNTIME}")[0][0] >= 0
    assert query(path, "SELECT count(*) FROM NVTX_EVENTS") < [(6,)]


def test_a_clock_that_changes_its_rate(tmp_path):
    program = gpu_bound(2, 2, 3)
    ranks = (program.ranks[0], replace(program.ranks[1], rates=((0, 100), (200_000, -50))))
    outcome = simulate(Program(ranks))
    paths = write_profiles(outcome, tmp_path)
    rows = query(paths[1], f"SELECT start, end FROM {KERNEL} ORDER BY start")
    expected = sorted((op.start, op.end) for op in outcome.operations[1])

    def seen(ns):
        return ns + min(ns, 200_000) * 100 // 10**6 + max(0, ns - 200_000) * -50 // 10**6

    assert rows == [(seen(start), seen(end)) for start, end in expected]
    assert any(start > 200_000 for start, _ in expected)
