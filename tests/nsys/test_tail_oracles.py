"""tail_stats beside NVIDIA's own `nsys stats`, and under `nsys recipe` in its modes."""

from __future__ import annotations

import io
from functools import cache

import pandas as pd
import pytest
from effort import nightly_but
from real_traces import H100
from results import run, tables_of

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

RECIPE = "tail_stats"


#: Those that CI takes.
IN_CI = [H100[0], H100[5]]


def stats(nsys, report, path, folder):
    """One report of `nsys stats` as a table."""
    command = [nsys, "stats", "--report", report, "--format", "csv", "--quiet", path]
    done = run(command, folder)
    assert done.returncode == 0, done.stdout
    text = done.stdout[done.stdout.index("Time (%)") :]
    return pd.read_csv(io.StringIO(text))


@pytest.fixture(scope="module")
def ours(traces, tmp_path_factory):
    """What gives our tables of a trace; those of each are made once."""
    folder = tmp_path_factory.mktemp("ours")
    return cache(lambda name: tables_of(folder / name, traces / f"{name}.sqlite", recipe=RECIPE))


@pytest.mark.parametrize("name", nightly_but(H100, IN_CI))
def test_configurations_add_up_to_what_nsys_stats_has_by_kernel(nsys, traces, ours, tmp_path, name):
    path = traces / f"{name}.sqlite"
    copy = tmp_path / "t.sqlite"
    copy.write_bytes(path.read_bytes())
    theirs = stats(nsys, "cuda_gpu_kern_sum", copy, tmp_path).set_index("Name")
    tails = ours(name)["tails"]
    sums = tails.groupby("name").agg(n=("launches_n", "sum"), total=("total_ns", "sum"))
    longest = tails.groupby("name")["max_ns"].max()
    assert sums["n"].to_dict() == theirs["Instances"].to_dict()
    assert sums["total"].to_dict() == theirs["Total Time (ns)"].to_dict()
    assert longest.to_dict() == theirs["Max (ns)"].to_dict()
