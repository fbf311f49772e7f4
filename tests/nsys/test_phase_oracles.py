"""nvtx_phase_attribution beside NVIDIA's own reports on NVTX ranges, and under `nsys recipe`."""

from __future__ import annotations

import io
from collections import Counter
from functools import cache

import pandas as pd
import plain_ranges
import pytest
from effort import nightly_but
from real_traces import exported_traces
from results import read_frames, run, tables_of, under_nsys

from nsys_llm.taxonomy.names import normalize_range

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

RECIPE = "nvtx_phase_attribution"
TRACES = {
    **{f"{run}{rank}": f"h100_mfu_ranks/{run}/rank{rank}.sqlite"
       for run in ("before", "after") for rank in (0, 1)},
    "serial": "a100_vector_add/vector_add_profile_serial.nsys-rep",
}  # fmt: skip

#: Those that CI takes.
IN_CI = ["before0", "serial"]


@pytest.fixture(scope="module")
def exported(nsys, traces, tmp_path_factory):
    return exported_traces(nsys, traces, TRACES, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def ours(exported, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    words = ["--running-numbers", "keep"]
    return cache(
        lambda name: tables_of(folder / name, exported[name], options=words, recipe=RECIPE)
    )


def stats(nsys, report, path, first):
    """Return one report of `nsys stats` as a table; `first` begins its header."""
    words = [nsys, "stats", "--report", report, "--format", "csv", "--quiet", path]
    done = run(words, path.parent)
    assert done.returncode == 0, done.stdout
    table = pd.read_csv(io.StringIO(done.stdout[done.stdout.index(first) :]))
    return table.dropna(how="all")


def named(frame, column, kind="push_pop"):
    """Return our ranges, added up by what NVIDIA shows: the name, with its domain."""
    frame = frame[frame["kind"] == kind]
    return frame.groupby("name")[column].sum().to_dict()


@pytest.mark.parametrize("name", nightly_but(TRACES, IN_CI))
def test_spans_are_nvidia_s_projection(nsys, exported, ours, name):
    theirs = stats(nsys, "nvtx_gpu_proj_trace", exported[name], "Name,Projected")
    theirs = theirs[theirs["Style"] == "PushPop"]
    keys = [normalize_range(str(text)) for text in theirs["Name"]]
    groups = theirs.groupby(keys)
    ranges = ours(name)["ranges"]
    assert groups["Projected Duration (ns)"].sum().to_dict() == {
        key: ns for key, ns in named(ranges, "span_ns").items() if key in set(keys)
    }
    # A range inside one of the same name holds an operation twice there.
    alone = {key for key in keys if not nested(exported[name], key)}
    theirs_n = groups["NumGPUOps"].sum().to_dict()
    ops_n = named(ranges, "ops_n")
    assert {key: theirs_n[key] for key in alone} == {key: ops_n[key] for key in alone}
    assert len(alone) > len(set(keys)) / 2


def nested(path, name):
    """Tell whether a range of a name lies inside another one."""
    if path not in _NESTED:
        _NESTED[path] = {
            key
            for _, ops in plain_ranges.read(path).values()
            for op in ops
            for key, n in Counter(outer.key[2] for outer in op.around).items()
            if n > 1
        }
    return name in _NESTED[path]


_NESTED: dict = {}


@pytest.mark.parametrize("name", nightly_but(TRACES, IN_CI))
def test_ranges_are_as_many_and_as_long_as_nvidia_says(nsys, exported, ours, name):
    theirs = stats(nsys, "nvtx_pushpop_sum", exported[name], "Time (%)")
    keys = [normalize_range(str(text)) for text in theirs["Range"]]
    groups = theirs.groupby(keys)
    ranges = ours(name)["ranges"]
    counts = named(ranges, "instances_n")
    # NVIDIA leaves out nothing; a range that ends where it starts is none of ours.
    empty_n = int(ours(name)["marks"]["empty_n"].sum())
    assert groups["Instances"].sum().sum() == sum(counts.values()) + empty_n
    host = named(ranges, "host_ns")
    theirs_ns = groups["Total Time (ns)"].sum().to_dict()
    assert all(host[key] <= theirs_ns[key] for key in host)
    assert sum(host[key] == theirs_ns[key] for key in host) > len(host) / 2


@pytest.mark.parametrize("name", nightly_but(TRACES, IN_CI))
def test_kernels_of_ranges_are_those_of_nvidia(nsys, exported, ours, name):
    theirs = stats(nsys, "nvtx_kern_sum", exported[name], "NVTX Range")
    theirs = theirs[theirs["Style"] == "PushPop"]
    keys = [normalize_range(str(text)) for text in theirs["NVTX Range"]]
    # It counts a kernel for every range around it, twice for two of one name.
    alone = [key for key in dict.fromkeys(keys) if not nested(exported[name], key)]
    assert len(alone) > len(set(keys)) / 2
    groups, ranges = theirs.groupby(keys), ours(name)["ranges"]
    theirs_n, kernels_n = groups["Kern Inst"].sum(), named(ranges, "kernels_n")
    assert {key: theirs_n[key] for key in alone} == {key: kernels_n[key] for key in alone}
    # Our times have copies and fills in them, too.
    theirs_ns, ops_n = groups["Total Time (ns)"].sum(), named(ranges, "ops_n")
    inclusive_ns = named(ranges, "inclusive_ns")
    pure = [key for key in alone if ops_n[key] == kernels_n[key]]
    assert pure
    assert {key: theirs_ns[key] for key in pure} == {key: inclusive_ns[key] for key in pure}


def test_a_report_is_exported_with_the_tables_that_it_needs(nsys, traces, tmp_path):
    report = traces / TRACES["serial"]
    words = ["--input", str(report), "--output", "out", "--export-dir", str(tmp_path / "exports")]
    done = under_nsys(nsys, tmp_path, *words, recipe=RECIPE)
    assert done.returncode == 0, done.stdout
    tables = read_frames(tmp_path / "out")
    assert tables["phases"]["gpu_ns"].sum() == tables["coverage"]["total_ns"].sum()
    assert tables["marks"]["push_pop_n"].sum() > 0
