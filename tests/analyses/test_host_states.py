"""What threads did while a GPU waited for them: planted threads, beside each nanosecond."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from effort import over_seeds
from host_truth import HostTruth
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.report.records import records

OS_CALLS = ("read", "poll", "futex", "pthread_cond_wait")
CALLS = ("cudaMalloc_v3020", "cudaStreamSynchronize_v3020", "cudaEventCreate_v3020")
FILES = {
    "/usr/bin/python3.12": "python",
    "/usr/lib/libcuda.so.535": "driver",
    "/opt/lib/libcublasLt.so.12": "cuda_library",
    "/site-packages/torch/lib/libtorch_cpu.so": "framework",
    "[vdso]": "c_library",
    "[kernel.kallsyms]": "kernel",
    "/opt/nvidia/nsight-systems/libcupti.so": "profiler",
    "[Broken backtraces]": "unresolved",
    "/home/me/data.so": "other",
}


def planted(seed):
    """Return a rank of two launching threads with all that may be recorded, in any order."""
    chance = random.Random(seed)
    trace, at, events, returned_ns = TraceBuilder(), 0, [], {7: 0, 8: 0}
    for number in range(chance.randint(2, 12)):
        tid = chance.choice((7, 8))
        begin = max(at - chance.randint(0, 20), returned_ns[tid])
        wait, length = chance.randint(0, 30), chance.randint(0, 25)
        launch = begin + wait, begin + wait + length
        start_ns = max(launch[0] + chance.randint(0, length + 6), at)
        named = {"start_ns": start_ns, "end_ns": start_ns + 4, "launch": launch, "tid": tid}
        events.append((trace.kernel, (f"k{number % 3}",), named))
        if chance.random() < 0.3:  # the runtime calls the driver
            events.append(_call(trace, "cuLaunchKernel", chance, launch, tid))
        if wait and chance.random() < 0.5:
            events.append(_call(trace, chance.choice(CALLS), chance, (begin, launch[0]), tid))
        returned_ns[tid], at = launch[1], start_ns + 4
    for tid in (7, 8):
        events += _threads(trace, chance, tid, at)
    chance.shuffle(events)
    for add, words, named in events:
        add(*words, **named)
    return trace


def _call(trace, name, chance, inside, tid):
    """Return a CUDA call somewhere in a stretch."""
    start_ns = chance.randint(*inside)
    named = {"start_ns": start_ns, "end_ns": chance.randint(start_ns, inside[1]), "tid": tid}
    return trace.api, (name,), named


def _threads(trace, chance, tid, end_ns):
    """Return switches, nested calls and samples of a thread; any of them may be missing."""
    events = []
    kinds = [kind for kind in ("switches", "os_calls", "samples") if chance.random() < 0.8]
    if "switches" in kinds:
        for _ in range(chance.randint(1, 9)):
            named = {"start_ns": chance.randint(0, end_ns), "goes_on": chance.random() < 0.5}
            events.append((trace.thread_switch, (), {**named, "tid": tid}))
    if "os_calls" in kinds:
        at = 0
        while at < end_ns and chance.random() < 0.9:
            start = at + chance.randint(0, 9)
            end = start + chance.randint(0, 20)
            low = chance.randint(start, end)
            for span in ((start, end), (low, chance.randint(low, end))):
                named = {"start_ns": span[0], "end_ns": span[1], "tid": tid}
                events.append((trace.osrt, (chance.choice(OS_CALLS),), named))
            at = end
    for _ in range(chance.randint(0, 40) if "samples" in kinds else 0):
        stack = [
            (f"f{chance.randint(0, 3)}", chance.choice(list(FILES)))
            for _ in range(chance.randint(0, 3))
        ]
        named = {
            "start_ns": chance.randint(0, end_ns),
            "cycles": chance.choice((1, 1, 1, 0)),
            "tid": tid,
        }
        events.append(
            (trace.cpu_sample, (stack,), {**named, "in_kernel": chance.choice((0, None))})
        )
    return events


def check(path):
    """Compare the tables with each nanosecond of the exposed time."""
    truth, tables = HostTruth(path), quick("idle_gaps", path)
    recorded = any((truth.switches, truth.os_calls, truth.has_samples))
    times, on_core = Counter(), Counter()
    for stretch in truth.exposed:
        for at in range(*stretch[:2]):
            tid, what = stretch[2] & 0xFFFFFF, truth.state(at, stretch)
            times[(tid, *what)] += 1
            on_core[tid, what[1]] += truth.scheduled(at, stretch[2]) == "running"
    states = records(tables["host_states"])
    if not recorded:
        assert not states
        return 0
    told, running = Counter(), Counter()
    for row in states:
        told[tuple(row[name] for name in ("tid", "cause", "state", "detail"))] += row["time_ns"]
        running[row["tid"], row["state"]] += row["on_core_ns"] or 0
    assert told == times
    assert +running == +on_core
    counted = Counter()
    for row in records(tables["host_modules"]):
        if row["module_class"] != "not_sampled":
            counted[row["tid"], row["state"], row["module_class"]] += row["samples_n"]
    classes = {**FILES, None: "unresolved"}
    assert counted == Counter(
        (tid, state, classes[truth.modules.get(identity)])
        for tid, identity, state, _ in truth.sampled
    )
    return len(states)


@over_seeds(range(20), 20)
def test_states_and_samples_are_those_of_each_nanosecond(seed, tmp_path):
    check(planted(seed).write_sqlite(tmp_path / f"{seed}.sqlite"))


@pytest.mark.nightly
@over_seeds(range(100, 1100), 50)
def test_states_and_samples_are_those_of_each_nanosecond_on_many(seed, tmp_path):
    check(planted(seed).write_sqlite(tmp_path / f"{seed}.sqlite"))
