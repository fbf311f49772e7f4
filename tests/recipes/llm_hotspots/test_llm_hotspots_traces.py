"""What holds of llm_hotspots on every trace: random ones, CUDA graphs, and the real ones."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from results import (
    LABELS,
    RECIPE,
    analyse,
    assert_same,
    differences,
    only_tables,
    read_results,
    rows,
    tables_of,
)
from trace_builder import TraceBuilder

from nsys_llm.core.console import Console
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.run.cli import main
from nsys_llm.run.runner import run_recipe

HORIZON_NS = 64

#: A kernel: name, device, stream, start, duration.
KERNELS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.integers(7, 9),
        st.integers(0, 40),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=12,
)


def written(path: Path, kernels, *, shift_ns: int = 0, factor: int = 1) -> Path:
    trace = TraceBuilder()
    for name, device, stream, start, duration in kernels:
        start_ns = factor * start + shift_ns
        place = {"device_id": device, "stream_id": stream}
        trace.kernel(name, start_ns=start_ns, duration_ns=factor * duration, **place)
    return trace.write_sqlite(path)


def busy_bitmap(kernels, device: int, low: int = 0, high: int = HORIZON_NS) -> int:
    """Count the nanoseconds in which a kernel runs, one by one."""
    busy = np.zeros(HORIZON_NS, dtype=bool)
    for _, on, _, start, duration in kernels:
        if on == device:
            busy[start : start + duration] = True
    return int(busy[low:high].sum())


@pytest.mark.nightly
@examples(10, nightly=166)
@given(kernels=KERNELS, window=st.tuples(st.integers(0, 40), st.integers(1, 20)) | st.none())
def test_exclusive_times_add_up_to_the_busy_time_of_each_device(kernels, window):
    low, high = (0, HORIZON_NS) if window is None else (window[0], sum(window))
    options = [] if window is None else ["--filter-time", f"{low}/{high}"]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder, "t.sqlite"), kernels)
        tables = tables_of(Path(folder, "o"), path, options=options)
    for device, busy_ns in rows(tables["devices"], "device_id kernel_busy_ns"):
        assert busy_ns == busy_bitmap(kernels, device, low, high)
        device_kernels = tables["rank_kernels"][tables["rank_kernels"]["device_id"] == device]
        assert device_kernels["exclusive_ns"].sum() == busy_ns
        assert (device_kernels["exclusive_ns"] <= device_kernels["total_ns"]).all()
    assert tables["kernels"]["exclusive_ns"].sum() == tables["devices"]["kernel_busy_ns"].sum()
    assert tables["categories"]["exclusive_ns"].sum() == tables["kernels"]["exclusive_ns"].sum()
    for table in ("rules", "rank_categories"):
        assert tables[table]["total_ns"].sum() == tables["devices"]["kernel_total_ns"].sum()


class ShuffledMerges:
    """Maps each report by itself and merges the results in a drawn order."""

    mode = "none"
    workers_n = 2
    in_process = True

    def __init__(self, random: Random) -> None:
        self._random = random

    def start(self):
        """Nothing is to be started."""

    def reduce(self, function, chunks, merge, done):
        parts = [function([report]) for chunk in chunks for report in chunk]
        done(len(parts))
        while len(parts) > 1:
            self._random.shuffle(parts)
            parts = [merge(parts[:2]), *parts[2:]]
        return parts[0]


@pytest.mark.nightly
@examples(3, nightly=50)
@given(ranks=st.lists(KERNELS, min_size=2, max_size=5), random=st.randoms(use_true_random=False))
def test_modes_and_orders_of_merging_give_the_same_bits(ranks, random):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = [
            str(written(folder / f"rank{rank}.sqlite", kernels))
            for rank, kernels in enumerate(ranks)
        ]
        alone = only_tables(folder / "none", *inputs)
        words = ["--mode", "concurrent", "--quiet", "--output", str(folder / "threads")]
        assert main([RECIPE, *words, "--input", *inputs]) == 0
        given_options = {"input": inputs, "output": str(folder / "shuffled")}
        options = resolved_options(load_manifest(RECIPE), given_options)
        run_recipe(RECIPE, options, ShuffledMerges(random), Console(quiet=True))
        random.shuffle(inputs)
        only_tables(folder / "order", *inputs)
        for other in ("threads", "shuffled", "order"):
            assert_same(alone, folder / other)


#: Columns that say when something was, in the report's clock.
INSTANTS = {
    column.name
    for table in load_manifest(RECIPE).writes
    for column in table.columns
    if column.name.endswith(("start_ns", "end_ns"))
}


@pytest.mark.nightly
@examples(3, nightly=50)
@given(kernels=KERNELS)
def test_a_shift_moves_windows_only_and_twice_the_time_doubles_sums(kernels):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = only_tables(folder / "first", written(folder / "t.sqlite", kernels))
        for place in ("s", "d"):
            (folder / place).mkdir()
        path = written(folder / "s" / "t.sqlite", kernels, shift_ns=1000)
        moved = only_tables(folder / "moved", path)
        path = written(folder / "d" / "t.sqlite", kernels, factor=2)
        doubled = only_tables(folder / "doubled", path)
        assert not differences(read_results(first), read_results(moved), INSTANTS)
        base, other, twice = (read_results(path) for path in (first, moved, doubled))
    for column in ("window_start_ns", "window_end_ns"):
        shifted = np.array(other["devices"][column]) - np.array(base["devices"][column])
        assert (shifted == 1000).all()
    for table, column in (
        ("kernels", "total_ns"),
        ("kernels", "min_ns"),
        ("kernels", "p99_ns"),
        ("devices", "kernel_busy_ns"),
        ("devices", "window_ns"),
    ):
        by_name = "name" if table == "kernels" else "device_id"
        order = twice[table].sort_by(by_name), base[table].sort_by(by_name)
        assert order[0][column].to_pylist() == [2 * cell for cell in order[1][column].to_pylist()]


GRAPH = [("a", 10, 14), ("b", 14, 20)]


def graph_tables(trace: TraceBuilder, folder: Path):
    trace.kernel("k", start_ns=30, duration_ns=1, launch=(5, 6))
    return tables_of(folder / "o", trace.write_sqlite(folder / "t.sqlite"))


def test_a_graph_whose_nodes_are_there_too_is_not_counted_twice(tmp_path):
    trace = TraceBuilder().graph_launch(GRAPH, launch=(1, 3), mode="graph")
    trace.kernel("a", start_ns=10, end_ns=14, correlation_id=1, graph_node_id=1)
    trace.kernel("b", start_ns=14, end_ns=19, correlation_id=1, graph_node_id=2)
    tables = graph_tables(trace, tmp_path)
    assert rows(tables["devices"], "kernel_busy_ns busy_ns") == [(4 + 5 + 1, 4 + 5 + 1)]
    assert rows(tables["coverage"], "total_n")[-1] == (0,)


@pytest.fixture(scope="module")
def real(traces, tmp_path_factory):
    """Tables of the real rank sets, before and after, and of `before` with base names."""
    folder = tmp_path_factory.mktemp("real")
    ranks = traces / "h100_mfu_ranks"
    made = {name: tables_of(folder / name, ranks / name) for name in ("before", "after")}
    made["base"] = tables_of(folder / "base", ranks / "before", options=["--base"])
    return made


@pytest.mark.nightly
@pytest.mark.traces
@pytest.mark.parametrize("run", ["before", "after"])
def test_one_file_with_two_processes_equals_the_rank_set(traces, run, tmp_path):
    together = analyse(tmp_path / "one", traces / "h100_mfu" / f"{run}.sqlite")
    apart = analyse(tmp_path / "two", traces / "h100_mfu_ranks" / run)
    assert_same(together, apart, but=LABELS)


@pytest.mark.nightly
@pytest.mark.traces
@pytest.mark.parametrize("run", ["before", "after", "base"])
def test_exclusive_times_of_real_traces_add_up_to_the_union(real, run):
    devices, kernels = real[run]["devices"], real[run]["kernels"]
    assert kernels["exclusive_ns"].sum() == devices["kernel_busy_ns"].sum()
    by_device = real[run]["rank_kernels"].groupby(["rank", "device_id"])["exclusive_ns"].sum()
    assert by_device.tolist() == devices["kernel_busy_ns"].tolist()


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


@pytest.mark.traces
def test_totals_of_kernels_are_those_of_the_references(real):
    nccl_ms, total_ms, flash, exchange = {}, {}, {}, {}
    for run in ("before", "after"):
        by_rank, all_ranks = real[run]["rank_kernels"], real[run]["kernels"]
        nccl = (
            by_rank[by_rank["category"] == "communication"].groupby("device_id")["total_ns"].sum()
        )
        nccl_ms[run] = (nccl / 1e6).round(3).tolist()
        total_ms[run] = all_ranks["total_ns"].sum() / 1e6
        columns = ["launches_n", "mean_ns", "total_ns"]
        flash[run] = all_ranks[all_ranks["name"].str.contains("flash_fwd")].iloc[0][columns]
        exchange[run] = all_ranks[all_ranks["name"].str.contains("SendRecv")]["total_ns"].item()
    assert nccl_ms == {"before": [17.173, 8.229], "after": [9.989, 23.753]}
    assert round(total_ms["before"], 1) == 535.2
    assert round(total_ms["after"] - total_ms["before"], 3) == -46.365
    assert [flash[run]["launches_n"] for run in flash] == [68, 60]
    assert [round(flash[run]["mean_ns"] / 1e3, 2) for run in flash] == [4004.67, 4012.59]
    assert round((flash["after"] - flash["before"])["total_ns"] / 1e6, 2) == -31.56
    assert round((exchange["after"] - exchange["before"]) / 1e6, 2) == 8.34


@pytest.mark.traces
def test_pooled_percentiles_are_those_of_the_references(real):
    kernels = real["base"]["kernels"].set_index("name")
    flash = kernels.loc["flash_fwd_kernel"]
    # No launch took this long: half of them took 0.16 ms, half 7.87 ms.
    assert round(flash["p50_ns"] / 1e3, 2) == 3977.58
    assert round(flash["max_ns"] / flash["p50_ns"], 2) == 1.98
    mixed = kernels.loc["vectorized_elementwise_kernel"]
    assert round(mixed["max_ns"] / mixed["p50_ns"], 1) == 90.9
    assert round(mixed["p99_ns"] / mixed["p50_ns"], 1) == 90.5


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
