"""Our launch and API times beside NVIDIA's own `nsys stats`, on every real trace."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from effort import nightly_but
from real_traces import A100, H100
from results import run, tables_of

from nsys_llm.taxonomy.names import strip_api_version

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

IN_CI = [A100[0], H100[0], H100[3]]
REPORTS = ("cuda_api_sum", "cuda_kern_exec_sum")

# NVIDIA rounds its floats to one decimal.
ROUNDING = 0.05 + 1e-9

#: NVIDIA's letter of each stage, and ours.
STAGES = {"T": "overall", "A": "api", "Q": "queue", "K": "kernel"}


@pytest.fixture(scope="module", params=nightly_but([*A100, *H100], IN_CI))
def both(request, nsys, traces, tmp_path_factory):
    """Our tables of one trace, and NVIDIA's reports on it."""
    folder = tmp_path_factory.mktemp("host")
    path = traces / f"{request.param}.sqlite"
    if request.param in A100:
        report = folder / f"{request.param}.nsys-rep"
        shutil.copyfile(traces / "a100_vector_add" / report.name, report)
        assert run([nsys, "export", "--type", "sqlite", report], folder).returncode == 0
        path = folder / f"{request.param}.sqlite"
    words = [word for name in REPORTS for word in ("--report", name)]
    done = run(
        [nsys, "stats", "--quiet", "--format", "csv", "--output", folder / "s", *words, path],
        folder,
    )
    assert done.returncode == 0, done.stdout
    theirs = {name: pd.read_csv(folder / f"s_{name}.csv") for name in REPORTS}
    return tables_of(folder / "ours", path), theirs


def test_every_api_function_equals_nsys_stats(both):
    ours, theirs = both
    nvidia = theirs["cuda_api_sum"]
    # They cut versions of four digits off only (`cudaEventRecordWithFlags_v11010`).
    nvidia["Name"] = [strip_api_version(name) for name in nvidia["Name"]]
    nvidia = nvidia.set_index("Name").sort_index()
    assert nvidia.index.is_unique
    apis = ours["apis"].set_index("api").sort_index()
    assert apis.index.tolist() == nvidia.index.tolist()
    for name, column in (
        ("total_ns", "Total Time (ns)"),
        ("calls_n", "Num Calls"),
        ("min_ns", "Min (ns)"),
        ("max_ns", "Max (ns)"),
    ):
        assert apis[name].tolist() == nvidia[column].tolist()
    for name, column in (
        ("mean_ns", "Avg (ns)"),
        ("p50_ns", "Med (ns)"),
        ("total_pct", "Time (%)"),
    ):
        assert np.abs(apis[name] - nvidia[column]).max() <= ROUNDING


def test_every_kernel_s_launch_stages_equal_nsys_stats(both):
    ours, theirs = both
    nvidia = theirs["cuda_kern_exec_sum"]
    nvidia["API Name"] = [strip_api_version(name) for name in nvidia["API Name"]]
    pids = ours["files"].set_index("File")["pid"]
    launches = ours["kernel_launches"]
    launches["pid"] = launches["file"].map(pids)
    launches = launches.set_index(["pid", "tid", "device_id", "api", "name"]).sort_index()
    keys = ["PID", "TID", "DevId", "API Name", "Kernel Name"]
    nvidia = nvidia.set_index(keys).sort_index()
    assert launches.index.tolist() == nvidia.index.tolist()
    assert launches["launches_n"].tolist() == nvidia["Count"].tolist()
    assert launches["queued_n"].tolist() == nvidia["QCount"].tolist()
    for letter, stage in STAGES.items():
        measured = launches[f"{stage}_p50_ns"].to_numpy(float, na_value=np.nan)
        expected = nvidia[f"{letter}Med (ns)"].to_numpy(float)
        # Where no launch queued, neither of us knows a queue time.
        assert np.isnan(measured).tolist() == np.isnan(expected).tolist()
        assert (np.abs(measured - expected)[~np.isnan(measured)] <= ROUNDING).all()
    assert launches["overall_max_ns"].tolist() == nvidia["TMax (ns)"].tolist()
