"""Gaps against NVIDIA's gpu_gaps, and time on a core against the recorded switches."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections import defaultdict
from functools import cache
from itertools import pairwise

import pytest
from effort import nightly_but
from real_traces import exported_traces
from results import rows, run, tables_of

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

#: Overhead that NVIDIA's rule takes for GPU work; by these names no other.
COUNTED = ("CUDA profiling data flush overhead", "CUDA profiling stop overhead")


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
