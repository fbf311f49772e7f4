"""Gaps against NVIDIA's gpu_gaps, and causes against the plain rule of the peer survey."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import pytest
from effort import nightly_but
from real_traces import exported_traces
from results import rows, run, tables_of

from nsys_llm.taxonomy.api_classes import classify_api

pytestmark = pytest.mark.traces

TRACES = {
    "serial": "a100_vector_add/vector_add_profile_serial.nsys-rep",
    "streamed": "a100_vector_add/vector_add_profile_streamed.nsys-rep",
    "v2": "a100_vector_add/vector_add_profile_v2.nsys-rep",
    "before": "h100_mfu/before.sqlite",
    "after": "h100_mfu/after.sqlite",
}

#: Those that CI takes.
IN_CI = ["serial", "before"]

#: Gaps and their length, as measured apart from any of our code.
GAPS = {
    "serial": {0: (409, 30_017_239)},
    "streamed": {0: (536, 2_869_188)},
    "v2": {0: (1012, 2_761_990)},
    "before": {0: (2634, 26_031_025), 1: (2662, 31_385_635)},
}

#: Overhead that NVIDIA's rule takes for GPU work; by these names no other.
COUNTED = ("CUDA profiling data flush overhead", "CUDA profiling stop overhead")

#: The plain rule's figures in ms, of the peer survey: `other_api` holds asynchronous copies there.
PLAIN_MS = {
    "before": {
        "host_no_cuda": 18.167,
        "launch_latency": 4.538,
        "launch_api": 2.714,
        "other_api": 0.583,
        "no_api": 0.028,
    },
    "after": {
        "host_no_cuda": 47.355,
        "launch_latency": 3.266,
        "launch_api": 1.662,
        "other_api": 6.846,
        "no_api": 0.014,
    },
    "serial": {"sync_memop": 22.274, "launch_latency": 7.743},
}
PLAIN_CLASS = {
    "launch": "launch_api",
    "graph_launch": "launch_api",
    "host_block": "host_sync",
    "sync_memop": "sync_memop",
    "alloc": "alloc",
    "free": "alloc",
}


@pytest.fixture(scope="module")
def exported(nsys, traces, tmp_path_factory):
    return exported_traces(nsys, traces, TRACES, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def ours(exported, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    return cache(lambda name: tables_of(folder / name, exported[name], recipe="idle_gaps"))


def gpu_gaps(nsys, path):
    """Return (start, length) of every gap that `gpu_gaps --gap 0 --rows -1` tells, by device."""
    words = ["analyze", "-q", "--rule", "gpu_gaps:gap=0:rows=-1", "--format", "csv", "-o", "-"]
    done = run([nsys, *words, path], path.parent)
    assert done.returncode == 0, done.stdout
    text = done.stdout[done.stdout.index("Row#") :]
    by_device = defaultdict(list)
    for row in csv.DictReader(io.StringIO(text)):
        if row["Duration (ns)"]:
            by_device[int(row["Device ID"])].append(
                (int(row["Start (ns)"]), int(row["Duration (ns)"]))
            )
    return by_device


@pytest.mark.nsys
@pytest.mark.parametrize("name", nightly_but(TRACES, IN_CI))
def test_gaps_are_those_of_nvidia_s_own_report(nsys, exported, ours, name):
    with sqlite3.connect(exported[name]) as database:
        query = "select distinct value from PROFILER_OVERHEAD o join StringIds s on s.id = o.nameId"
        overheads = {text for (text,) in database.execute(query)}
    assert not overheads & set(COUNTED), "this trace has overhead that NVIDIA takes for work"
    theirs = gpu_gaps(nsys, exported[name])
    devices = ours(name)["devices"]
    assert {
        device: (n, idle + overhead)
        for device, n, idle, overhead in rows(devices, "device_id gaps_n idle_ns overhead_ns")
    } == {device: (len(gaps), sum(ns for _, ns in gaps)) for device, gaps in theirs.items()}
    longest = ours(name)["gaps"].iloc[0]
    assert (longest["start_ns"], longest["duration_ns"]) in theirs[longest["device_id"]]
    assert longest["duration_ns"] == max(ns for gaps in theirs.values() for _, ns in gaps)


@pytest.mark.nsys
@pytest.mark.parametrize("name", nightly_but(GAPS, IN_CI))
def test_gaps_are_those_measured_before(ours, name):
    names = "device_id gaps_n idle_ns overhead_ns"
    sums = {
        device: (n, idle + over) for device, n, idle, over in rows(ours(name)["devices"], names)
    }
    assert sums == GAPS[name]


@pytest.mark.nsys
@pytest.mark.parametrize("name", nightly_but(TRACES, IN_CI))
def test_what_a_trace_is_made_of_adds_up(ours, name):
    tables = ours(name)
    for device in tables["devices"].to_dict("records"):
        parts = device["busy_ns"] + device["overhead_ns"] + device["idle_ns"]
        assert parts == device["window_ns"]
        causes = tables["rank_causes"]
        causes = causes[
            (causes["rank"] == device["rank"]) & (causes["device_id"] == device["device_id"])
        ]
        assert causes["idle_ns"].sum() == device["idle_ns"]
        assert causes["overhead_ns"].sum() == device["overhead_ns"]
        assert causes["gaps_n"].sum() == device["gaps_n"]
        parts = tables["idle_map"]
        parts = parts[(parts["rank"] == device["rank"])]
        assert parts["idle_ns"].sum() == device["idle_ns"]
        assert parts["busy_ns"].sum() == device["busy_ns"]
    assert tables["causes"]["idle_ns"].sum() == tables["devices"]["idle_ns"].sum()
    assert tables["cause_sums"]["idle_ns"].sum() == tables["devices"]["idle_ns"].sum()


@pytest.mark.nsys
@pytest.mark.parametrize("name", nightly_but(PLAIN_MS, IN_CI))
def test_the_plain_rule_gives_the_survey_s_figures_and_ours_splits_them(exported, ours, name):
    plain = plain_rule(exported[name], 0)
    assert {cause: round(ns / 1e6, 3) for cause, ns in plain.items()} == PLAIN_MS[name]
    first = ours(name)["devices"].iloc[0]
    assert sum(plain.values()) == first["idle_ns"] + first["overhead_ns"]
    causes = ours(name)["rank_causes"]
    causes = causes[(causes["rank"] == first["rank"]) & (causes["device_id"] == 0)]
    idle_by_cause = causes.groupby("cause")["idle_ns"].sum()
    # What has no launch has none under any rule; what was launched before the gap is latency
    # there, and queued, or time in a call that still ran, here.
    assert idle_by_cause.get("no_api", 0) == plain.get("no_api", 0)
    assert 0 < idle_by_cause["queued"] <= plain["launch_latency"]


@pytest.mark.nsys
@pytest.mark.parametrize("name", nightly_but(["serial", "streamed"], ["serial"]))
def test_time_on_a_core_is_that_of_the_recorded_switches(exported, ours, name):
    gaps = ours(name)["gaps"]
    with sqlite3.connect(exported[name]) as database:
        query = "select start, isSchedIn, globalTid & 0xffffff from SCHED_EVENTS order by start"
        switches = database.execute(query).fetchall()
    on_core_ns = []
    for gap in gaps.to_dict("records"):
        # From the last switch before the gap on, each state lasts until the next one.
        thread_switches = [(at, on) for at, on, tid in switches if tid == gap["tid"]]
        last = [on for at, on in thread_switches if at <= gap["start_ns"]][-1]
        inside = [
            switch for switch in thread_switches if gap["start_ns"] < switch[0] < gap["end_ns"]
        ]
        edges = [(gap["start_ns"], last), *inside, (gap["end_ns"], 0)]
        on_core_ns.append(sum((b - a) * on for (a, on), (b, _) in pairwise(edges)))
    assert gaps["on_core_ns"].tolist() == on_core_ns
    # One polls all the time, the other waits for its copies.
    assert (sum(on_core_ns) == gaps["duration_ns"].sum()) == (name == "streamed")


def plain_rule(path, device):
    """Name each gap of a device after the largest share of the launching thread's calls."""
    calls, of_thread, ops = {}, defaultdict(list), []
    with sqlite3.connect(path) as database:
        texts = dict(database.execute("select id, value from StringIds"))
        query = "select start, end, globalTid, correlationId, nameId from %s order by start"
        for start, end, tid, key, text in database.execute(query % "CUPTI_ACTIVITY_KIND_RUNTIME"):
            kind = PLAIN_CLASS.get(classify_api(texts[text]), "other_api")
            calls.setdefault((tid & ~0xFFFFFF, key), (start, tid))
            of_thread[tid].append((start, end, kind))
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            query = f"select start, end, globalPid, correlationId from CUPTI_ACTIVITY_KIND_{table}"
            ops += database.execute(f"{query} where deviceId = {device}")
    ops.sort()
    sums, reach = Counter(), ops[0][1]
    for start, end, pid, key in ops[1:]:
        if start > reach:
            launch = calls.get((pid, key))
            sums[plain_cause(launch, of_thread, reach, start)] += start - reach
        reach = max(reach, end)
    return sums


def plain_cause(launch, of_thread, begin, end):
    if launch is None:
        return "no_api"
    if launch[0] <= begin:
        return "launch_latency"
    shares = Counter()
    for start, stop, kind in of_thread[launch[1]]:
        shares[kind] += max(min(stop, end) - max(start, begin), 0)
    shares["host_no_cuda"] = end - begin - sum(shares.values())
    return max(shares, key=lambda kind: shares[kind])
