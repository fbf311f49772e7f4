"""The simulated job: nothing starts too early or too late, and its paths add up."""

from __future__ import annotations

from collections import defaultdict

import pytest
from machine import oracle, random_program, simulate
from machine.program import (
    Compute,
    Enqueue,
    LaunchGraph,
    Node,
    Pop,
    Program,
    Push,
    Rank,
    Record,
    Sync,
    WaitEvent,
    Work,
)

SEEDS = range(200)
BOTH = (0, 1)


@pytest.fixture(scope="module")
def outcomes():
    return [simulate(random_program(seed)) for seed in SEEDS]


def job(*threads, **rank):
    return Program((Rank(tuple(threads), **rank),))


def kernel(ns, stream=7, **options):
    return Enqueue(Work(f"k{stream}", ns), stream, **options)


def classes(path):
    return {label: ns for label, ns in sorted(path.by_class().items())}


# ---- causality, by what calls say and not by the machine's edges ---------------------------------


def test_streams_wait_for_what_was_recorded(outcomes):
    edges_n = 0
    for outcome in outcomes:
        for rank, operations in enumerate(outcome.operations):
            records = {call.event[0]: call for call in outcome.records[rank]}
            for kind, call in outcome.syncs[rank]:
                if kind != "stream_wait":
                    continue
                record = records[call.event[0]]
                awaited = [
                    op.end
                    for op in operations
                    if (op.device, op.stream) == (record.device, record.stream)
                    and op.call.start < record.start
                ]
                held = [
                    op.start
                    for op in operations
                    if (op.device, op.stream) == (call.device, call.stream)
                    and op.call.start > call.start
                ]
                edges_n += bool(awaited and held)
                assert not awaited or not held or max(awaited) <= min(held)
    assert edges_n > 1000


def test_calls_return_after_what_they_wait_for(outcomes):
    waits_n = 0
    for outcome in outcomes:
        for rank, operations in enumerate(outcome.operations):
            records = {call.event[0]: call for call in outcome.records[rank]}
            for kind, call in outcome.syncs[rank]:
                until, stream = call, call.stream
                if kind == "event":
                    until = records[call.event[0]]
                    stream = until.stream
                awaited = [
                    op.end
                    for op in operations
                    if kind in ("context", "stream", "event")
                    and op.call.start < until.start
                    and op.device == call.device
                    and (kind == "context" or op.stream == stream)
                ]
                waits_n += bool(awaited)
                assert max(awaited, default=0) <= call.end
            for op in operations:
                if "sync_memop" in {label for label, *_ in op.call.parts} and op.call.targets:
                    assert op.end < op.call.end
    assert waits_n > 200


def test_graphs_begin_after_their_streams_and_end_before_them(outcomes):
    graphs_n = 0
    for outcome in outcomes:
        for operations in outcome.operations:
            launches = defaultdict(list)
            for op in operations:
                if op.node is not None:
                    launches[op.call].append(op)
            for call, nodes in launches.items():
                graphs_n += 1
                used = {op.stream for op in nodes}
                others = [
                    op
                    for op in operations
                    if op.device == call.device and op.stream in used and op.call is not call
                ]
                first_ns, last_ns = min(op.start for op in nodes), max(op.end for op in nodes)
                for op in others:
                    if op.call.start < call.start:
                        assert op.end <= first_ns
                    else:
                        assert last_ns <= op.start
    assert graphs_n > 200


# ---- machines small enough to compute by hand ----------------------------------------------------


def test_a_launch_and_a_wait():
    program = job(
        (
            Push("step", step=True),
            Compute(1000),
            kernel(20_000),
            Sync("stream"),
            Pop(),
            Push("step", step=True),
            kernel(5000),
            Pop(),
        )
    )
    outcome = simulate(program)
    # Range 0..100, host to 1100, call to 5100, latency 1800, kernel 6900..26900, wait to 29900.
    # Pop and push take 100 each; call 30100..34100, kernel 35900..40900.
    assert oracle.device_bounds(outcome, 0) == [0, 26_900, 40_900]
    first, second = oracle.local_paths(outcome, 0)
    assert classes(first) == {
        "compute": 20_000,
        "host_no_cuda": 1100,
        "launch_api": 4000,
        "launch_latency": 1800,
    }
    assert classes(second) == {
        "compute": 5000,
        "host_no_cuda": 200,
        "launch_api": 4000,
        "launch_latency": 1800,
        "sync_latency": 3000,
    }
    # The whole run: the kernel of step 0 is on it, the range of step 0 too.
    assert classes(oracle.run_path(outcome))["compute"] == 25_000
    assert oracle.rungs(outcome, 0, 0, 40_900) == {
        "compute": 25_000,
        "communication": 0,
        "copy": 0,
        "overhead": 0,
        "idle": 15_900,
    }


def test_a_straggler_over_two_ranks():
    def rank(ns):
        reduce = Enqueue(Work("nccl", 5000, "collective", group=BOTH))
        return Rank(((kernel(ns), reduce),))

    outcome = simulate(Program((rank(20_000), rank(30_000))))
    # Kernels from 5800; the second call ends at 8000. Rank 0's member starts at 26800, rank 1's
    # at 36800; both end at 41800.
    path = oracle.global_paths(outcome)[0]
    assert (path.begin, path.end) == (5800, 41_800)
    assert classes(path) == {"compute": 30_000, "device_latency": 1000, "transfer": 5000}
    assert path.by_rank() == {1: 36_000}
    local = oracle.local_paths(outcome, 0)[0]
    assert classes(local) == {
        "compute": 20_000,
        "device_latency": 1000,
        "transfer": 5000,
        "wait_for_rank": 10_000,
    }
    assert [each.detail for each in local.segments if each.label == "wait_for_rank"] == ["1"]
    assert [each.rank for each in local.segments] == [1, 0, 0, 0]


def test_an_event_is_its_latest_record_before_the_wait():
    program = job(
        (
            kernel(10_000, 7),
            Record("e", 7, 1000),
            WaitEvent("e", 14, 1000),
            kernel(50_000, 7),
            Record("e", 7, 1000),
            kernel(9000, 14),
        )
    )
    outcome = simulate(program)
    first, second, third = outcome.operations[0]
    assert [call.event for call in outcome.records[0]] == [(1, 1), (2, 1)]
    assert third.needs == [("event", first)]
    # Calls: 4000, 1000, 1000, 4000 (to 10000), 1000, 4000 (to 15000): its launch decides.
    assert (second.start, third.start) == (16_800, 16_800)


def test_a_graph_over_two_streams():
    nodes = (
        Node(Work("a", 10_000), 7),
        Node(Work("b", 30_000), 14, after=(0,)),
        Node(Work("c", 5000), 7),
        Node(Work("d", 2000), 7, after=(1,)),
    )
    program = job((kernel(1000), LaunchGraph(nodes, call_ns=5000), kernel(3000, 14)))
    outcome = simulate(program)
    # Calls to 4000, 9000, 13000; k 5800..6800; a at 11500 (return + 2500) .. 21500; b at 22100 ..
    # 52100; c at 22100 .. 27100; d 600 after b: 52700 .. 54700; the kernel 1000 after all nodes.
    times = [(op.start, op.end) for op in outcome.operations[0]]
    assert times == [
        (5800, 6800),
        (11_500, 21_500),
        (22_100, 52_100),
        (22_100, 27_100),
        (52_700, 54_700),
        (55_700, 58_700),
    ]
    assert classes(oracle.local_paths(outcome, 0)[0]) == {
        "compute": 45_000,
        "device_latency": 600 + 600 + 1000,
        "launch_api": 3200,
        "launch_latency": 2500,
    }
