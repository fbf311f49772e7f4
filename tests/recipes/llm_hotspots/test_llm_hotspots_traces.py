"""What holds of llm_hotspots on every trace: random ones, CUDA graphs, and the real ones."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from results import (
    LABELS,
    analyse,
    assert_same,
    rows,
    tables_of,
)


@pytest.fixture(scope="module")
def real(traces, tmp_path_factory):
    """Tables of the real rank sets, before and after."""
    folder = tmp_path_factory.mktemp("real")
    ranks = traces / "h100_mfu_ranks"
    return {name: tables_of(folder / name, ranks / name) for name in ("before", "after")}


@pytest.mark.nightly
@pytest.mark.traces
@pytest.mark.parametrize("run", ["before", "after"])
def test_one_file_with_two_processes_equals_the_rank_set(traces, run, tmp_path):
    together = analyse(tmp_path / "one", traces / "h100_mfu" / f"{run}.sqlite")
    apart = analyse(tmp_path / "two", traces / "h100_mfu_ranks" / run)
    assert_same(together, apart, but=LABELS)


#: Window (ms), idle share (%) of kernels only, and with copies and fills, as measured independently
#: between the first and the last kernel; ours begins with the first copy.
REFERENCE_IDLE = {
    "before": [(299.8, 9.67, 8.68), (298.7, 11.50, 10.51)],
    "after": [(299.2, 20.64, 19.76), (299.2, 16.00, 15.13)],
}


@pytest.mark.traces
@pytest.mark.parametrize("run", REFERENCE_IDLE)
def test_busy_times_of_real_traces_are_those_of_the_references(real, run):
    devices = rows(real[run]["devices"], "window_ns kernel_busy_ns busy_ns")
    for (window_ns, *busy), (window_ms, *idle_pct) in zip(
        devices, REFERENCE_IDLE[run], strict=True
    ):
        assert window_ns / 1e6 == pytest.approx(window_ms, abs=0.1)
        shares = [100 * (1 - part_ns / window_ns) for part_ns in busy]
        assert shares == pytest.approx(idle_pct, abs=0.02)


#: Kernels, those with an API call, their share of the time (%), and that of all operations.
REFERENCE_CALLS = {"before": (4010, 3986, 96.541, 96.54), "after": (3587, 3577, 99.832, 99.82)}


@pytest.mark.traces
@pytest.mark.parametrize("run", REFERENCE_CALLS)
def test_api_coverage_is_that_of_the_references(real, run):
    by_op = real[run]["coverage"].groupby("op").sum(numeric_only=True)
    kernels, everything = by_op.loc["kernel"], by_op.sum()
    shares = [100 * part["attributed_ns"] / part["total_ns"] for part in (kernels, everything)]
    figures = kernels["total_n"], kernels["attributed_n"], round(shares[0], 3), round(shares[1], 2)
    assert figures == REFERENCE_CALLS[run]


def test_gpu_metrics_of_2022_are_read(tmp_path, traces):
    path = traces / "public" / "gpu_metrics_2022.sqlite"
    metrics = tables_of(tmp_path / "out", path)["gpu_metrics"]
    windows = metrics[metrics["scope"] == "window"].set_index("metric")
    assert len(windows) == 14
    assert set(windows["samples_n"]) == {219}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        # The mean of all samples from the first kernel's to the last one's, each counted whole.
        means = database.execute(
            "SELECT metricName, avg(value) FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS "
            "USING (typeId, metricId) WHERE timestamp >= (SELECT min(start) FROM "
            "CUPTI_ACTIVITY_KIND_KERNEL) AND timestamp <= (SELECT max(end) FROM "
            "CUPTI_ACTIVITY_KIND_KERNEL) GROUP BY metricName"
        ).fetchall()
    for name, mean in means:
        if name in windows.index:
            assert windows.loc[name, "mean_pct"] == pytest.approx(mean, abs=0.5), name
