"""What threads did while a GPU waited for them: planted threads, beside each nanosecond."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from effort import over_seeds
from host_truth import HostTruth
from hypothesis import example, given
from hypothesis import strategies as st
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.facts.host.states import DOING, HostRecords
from nsys_llm.profile.tables import Table
from nsys_llm.report.host_tables import wilson_pct
from nsys_llm.report.records import records
from nsys_llm.taxonomy.host_modules import module_class
from nsys_llm.trace.rank_trace import RankTrace

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


def planted(seed, tids=(7, 8)):
    """Return a rank of some launching threads with all that may be recorded, in any order."""
    chance = random.Random(seed)
    trace, at, events, returned_ns = TraceBuilder(), 0, [], dict.fromkeys(tids, 0)
    for number in range(chance.randint(2, 12)):
        tid = chance.choice(tids)
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
    for tid in tids:
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
    for _ in range(chance.choice((chance.randint(0, 40), 400)) if "samples" in kinds else 0):
        stack = [
            (chance.choice(("f0", "f1", "f2", "0x3")), chance.choice(list(FILES)))
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
        return
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


@pytest.mark.slow
@over_seeds(range(8), 8)
def test_states_and_samples_are_those_of_each_nanosecond(seed, tmp_path):
    check(planted(seed).write_sqlite(tmp_path / f"{seed}.sqlite"))


@pytest.mark.slow
@over_seeds(range(6, 14), 8)
def test_states_on_the_path_are_those_of_each_nanosecond(seed, tmp_path):
    path = planted(seed, (7,)).write_sqlite(tmp_path / f"{seed}.sqlite")
    truth, tables = HostTruth(path), quick("step_budget", path)
    (thread,), recorded = truth.calls, bool(truth.switches or truth.os_calls)
    times, told = Counter(), Counter()
    for row in records(tables["path"]):
        if row["which"] == "median" and row["class"] == "host_no_cuda":
            span = row["start_ns"], row["end_ns"]
            times.update(truth.state(at, (*span, thread, None))[1:] for at in range(*span))
    for row in records(tables["host_states"]):
        if row["cause"] == "host_no_cuda":
            told[row["state"], row["detail"]] += row["time_ns"]
    assert told == (times if recorded else Counter())


@pytest.mark.nightly
@over_seeds(range(100, 1100), 50)
def test_states_and_samples_are_those_of_each_nanosecond_on_many(seed, tmp_path):
    check(planted(seed).write_sqlite(tmp_path / f"{seed}.sqlite"))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=9))
@example([(0, 1), (0, 0)])  # from one core to another
@example([(9, 0)])
def test_each_instant_has_the_state_of_the_last_switch(switches):
    columns = ("start_ns", "goes_on", "global_tid")
    rows = np.array([(*switch, 7) for switch in switches], dtype=np.int64).T
    table = Table(dict(zip(columns, rows, strict=True)))
    records_of = HostRecords(RankTrace({"thread_switches": table}, {}, None, {}, ()))
    assert records_of.on_core_ns(8, 0, 30) is None
    order, at_ns, ran_n = sorted(switches), range(-2, 34), 0
    doing, runs = records_of.doing(7, np.array(at_ns))
    assert (np.array(DOING)[doing] == "running").tolist() == runs.tolist()
    for at, what in zip(at_ns, doing.tolist(), strict=True):
        before = [on for when, on in order if when <= at]
        ran_n += bool(before[-1]) if before else not order[0][1]
        assert DOING[what] == (("off_core", "running")[before[-1]] if before else "unknown")
        assert records_of.on_core_ns(7, -2, at + 1) == ran_n


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *FILES.items(),
        ("", "unresolved"),
        ("[Unknown]", "unresolved"),
        ("/usr/lib/libpython3.12.so.1.0", "python"),
        ("/lib/python3.12/site-packages/numpy/core/_multiarray_umath.so", "other"),
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "cuda_library"),
        ("/lib64/ld-linux-x86-64.so.2", "c_library"),
        ("/usr/lib/libjemalloc.so.2", "c_library"),
        ("/opt/vllm/_C.abi3.so", "framework"),
    ],
)
def test_a_file_belongs_to_one_class(path, name):
    assert module_class(path) == name


def test_the_period_is_that_of_samples_between_which_a_thread_stays_on_its_core():
    # 10 ns apart; once it was off its core, and once a sample is lost.
    at_ns = np.array([100, 110, 120, 400, 410, 430, 440])
    thread = np.full(at_ns.size, 7)
    samples = {"start_ns": at_ns, "global_tid": thread, "cycles": np.ones_like(at_ns)}
    switches = {
        "start_ns": np.array([90, 125, 395]),
        "goes_on": np.array([1, 0, 1]),
        "global_tid": thread[:3],
    }
    tables = {"cpu_samples": Table(samples), "thread_switches": Table(switches)}
    assert HostRecords(RankTrace(tables, {}, None, {}, ())).period_ns({7: at_ns}) == 10
    assert HostRecords(RankTrace({}, {}, None, {}, ())).period_ns({7: at_ns[:1]}) is None


@pytest.mark.parametrize(
    ("trigger", "period", "expected_n"),
    [("Software", "100", 10), ("Hardware", "100", 4), ("Software", "0", 4), ("Software", "-1", 4)],
)
def test_the_recorded_period_counts_where_it_is_a_time(tmp_path, trigger, period, expected_n):
    # 1,000 ns on a core: two samples, 250 ns apart.
    trace = TraceBuilder().thread_switch(start_ns=0, goes_on=True)
    trace.kernel("k", start_ns=0, end_ns=100, launch=(0, 5))
    for at_ns in (200, 450):
        trace.cpu_sample([("f", "/usr/bin/python3.12")], start_ns=at_ns)
    trace.kernel("k", start_ns=1_200, end_ns=1_300, launch=(1_100, 1_150))
    trace.capture_option("LINUX_PERF_OPTIONS:SAMPLING_PERIOD", period)
    trace.capture_option("LINUX_PERF_OPTIONS:CPU_IP_TRIGGER_TYPE", trigger)
    modules = quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite"))["host_modules"]
    assert set(modules.loc[modules["state"] == "running", "expected_n"]) == {expected_n}


def test_intervals_are_wilson_s():
    # 60 of 83: 61.8 to 80.8 %; of nothing and of all the ends are exact.
    low, high = wilson_pct(np.array([60, 0, 5]), np.array([83, 5, 5]))
    assert [round(value, 1) for value in (low[0], high[0])] == [61.8, 80.8]
    assert (low[1], high[2]) == (0.0, 100.0)
    assert 0 < high[1] < 50 < low[2] < 100


@pytest.mark.slow
def test_ranges_of_the_interpreter_s_lock_are_no_steps_and_no_places(tmp_path):
    trace = TraceBuilder().thread_switch(start_ns=0, goes_on=True)
    for step in range(4):
        at = 1_000 * step
        trace.nvtx(f"step {step}", at, at + 1_000).nvtx("Waiting for GIL", at + 10, at + 600)
        trace.nvtx("Holding GIL", at + 600, at + 990)
        trace.kernel("k", start_ns=at + 700, end_ns=at + 900, launch=(at + 650, at + 690))
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    for recipe in ("step_budget", "nvtx_phase_attribution"):
        for table in quick(recipe, path).values():
            assert " GIL" not in table.to_csv()
    states = quick("idle_gaps", path)["host_states"]
    assert set(states["range"]) == {"step #"}
    # Each of three gaps holds a wait of 590 ns whole.
    waited = records(states[states["detail"] == "interpreter lock"])
    assert [(row["state"], row["time_ns"]) for row in waited] == [("os_call", 3 * 590)]


def test_waits_for_the_interpreter_s_lock_are_told_where_nothing_else_is_recorded(tmp_path):
    trace = TraceBuilder()
    for step in range(4):
        at = 1_000 * step
        trace.nvtx("step", at, at + 1_000).nvtx("Waiting for GIL", at + 10, at + 600)
        trace.kernel("k", start_ns=at + 700, end_ns=at + 900, launch=(at + 650, at + 690))
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    for recipe, waits_n in (("idle_gaps", 3), ("step_budget", 4)):  # gaps; steps
        states = records(quick(recipe, path)["host_states"])
        waits = [row["time_ns"] for row in states if row["detail"] == "interpreter lock"]
        assert waits == [waits_n * 590]
        assert {row["state"] for row in states} == {"os_call", "unknown", "cuda_call"}


def test_a_call_whose_stack_takes_the_interpreter_s_lock_is_said_as_that(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=100, launch=(0, 5))
    trace.osrt("futex", start_ns=110, end_ns=140, frames=("futex_wait", "take_gil.lto_priv.0"))
    trace.osrt("futex", start_ns=150, end_ns=160, frames=("futex_wait", "drop_gil"))
    trace.osrt("futex", start_ns=170, end_ns=177)
    trace.kernel("k", start_ns=220, end_ns=300, launch=(200, 210))
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    for recipe in ("idle_gaps", "step_budget"):
        states = quick(recipe, path)["host_states"]
        waits = records(states[states["state"] == "os_call"])
        told = {row["detail"]: row["time_ns"] for row in waits}
        assert told == {"interpreter lock": 30, "futex": 17}


def test_garbage_collection_is_told_by_its_functions(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=100, launch=(0, 5))
    for at, name in enumerate(("gc_collect_main", "gc_collect_main", "visit_decref", "new", "")):
        stack = [(name, "/usr/bin/python3.12")] if name else []
        trace.cpu_sample(stack, start_ns=200 + at)
    trace.thread_switch(start_ns=0, goes_on=True)
    trace.kernel("k", start_ns=1_200, end_ns=1_300, launch=(1_100, 1_150))
    modules = quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite"))["host_modules"]
    names = ("module_class", "samples_n", "collecting_n")
    told = {tuple(row[name] for name in names) for row in records(modules)}
    lost = {("not_sampled", 1_000 - 5, 0), ("not_sampled", 50, 0)}
    assert told == {("python", 4, 3), ("unresolved", 1, 0)} | lost
