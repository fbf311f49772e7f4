"""What holds of nvtx_phase_attribution on every trace: random ones, and the real ones."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import plain_ranges
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from phase_run import RECIPE, quick
from results import rows, tables_of
from trace_builder import TraceBuilder

TRACES = [
    "h100_mfu/before",
    "h100_mfu/after",
    *(f"h100_mfu_ranks/{run}/rank{rank}" for run in ("before", "after") for rank in (0, 1)),
]
SUMS = "instances_n ops_n kernels_n inclusive_ns self_ops_n self_ns span_ns"


def check(path, tables):
    """Compare the tables of one report, made with --running-numbers keep, with a plain search."""
    by_process = plain_ranges.read(path)
    # In the order of ranks, which is that of processes here.
    numbers = sorted(tables["rank_steps"]["rank"])
    for rank, (_, (ranges, ops)) in zip(numbers, sorted(by_process.items()), strict=True):
        check_rank(tables, rank, ranges, ops)
    every = [op for _, ops in by_process.values() for op in ops]
    names = plain_ranges.by_name(
        [nvtx_range for ranges, _ in by_process.values() for nvtx_range in ranges], every
    )
    table = tables["ranges"]
    for row in table.to_dict("records"):
        key = (row["kind"], row["domain"], row["name"])
        assert [row[name] for name in SUMS.split()] == [
            names[name][key] for name in SUMS.split()
        ], key
    assert len(table) == len(names["instances_n"])
    tree = {
        tuple(path.split(" / ")): ns for path, ns in rows(tables["range_tree"], "path inclusive_ns")
    }
    by_path = {key: ns for key, ns in plain_ranges.by_path(every).items() if ns}
    # A list of what differs: pytest takes minutes to explain two large dictionaries.
    odd = [key for key in {**tree, **by_path} if tree.get(key, 0) != by_path.get(key, 0)]
    assert odd == []
    idle = dict(rows(tables["phases"], "phase idle_ns"))
    ended = dict(rows(tables["phase_idle"], "phase idle_ns"))
    assert idle == {key: ended.get(key, 0) for key in idle}
    assert ended.keys() <= idle.keys()


def check_rank(tables, rank, ranges, ops):
    outcomes = Counter()
    for op in ops:
        outcomes[op.outcome] += op.ns
    attribution = tables["attribution"]
    rank_rows = attribution[attribution["rank"] == rank]
    assert rank_rows["gpu_ns"].sum() == sum(op.ns for op in ops)
    assert rank_rows.loc[rank_rows["attributed"], "gpu_ns"].sum() == outcomes["ranged"]
    phases = tables["rank_phases"]
    phases = phases[phases["rank"] == rank].set_index("phase")["gpu_ns"]
    assert phases.sum() == sum(op.ns for op in ops)
    for name in ("no_api", "no_range"):
        assert phases.get(name, 0) == outcomes[name]
    kinds = Counter(nvtx_range.kind for nvtx_range in ranges)
    marks = {row[0]: row[1:] for row in rows(tables["marks"], "rank push_pop_n start_end_n")}
    assert marks[rank] == (kinds["push_pop"], kinds["start_end"])


def adds_up(tables):
    """Check what must hold of any result."""
    gpu_ns = tables["phases"]["gpu_ns"].sum()
    assert tables["rank_phases"]["gpu_ns"].sum() == gpu_ns
    assert tables["attribution"]["gpu_ns"].sum() == gpu_ns
    assert tables["phase_kernels"]["total_ns"].sum() == gpu_ns
    assert tables["phase_categories"]["total_ns"].sum() == gpu_ns
    attributed = tables["attribution"][tables["attribution"]["attributed"]]["gpu_ns"].sum()
    ranges, tree = tables["ranges"], tables["range_tree"]
    assert ranges["self_ns"].sum() == tree["self_ns"].sum() == attributed
    assert (ranges["inclusive_ns"] >= ranges["self_ns"]).all()
    assert (ranges["inclusive_ns"] <= gpu_ns).all()
    assert (ranges["self_host_ns"] >= 0).all()
    assert (ranges["host_ns"] >= 0).all()
    phases = tables["phases"]
    parts = phases["kernel_ns"] + phases["memop_ns"] + phases["whole_graph_ns"]
    assert (parts == phases["gpu_ns"]).all()
    assert phases["exclusive_ns"].sum() <= gpu_ns
    by_path = tree.set_index("path")["inclusive_ns"]
    for row in tree.to_dict("records"):
        inside = tree["path"].str.startswith(f"{row['path']} / ")
        inner = tree[inside & (tree["depth"] == row["depth"] + 1)]["inclusive_ns"].sum()
        assert by_path[row["path"]] == row["self_ns"] + inner
    coverage = tables["coverage"]
    missing = coverage["api_missing_ns"] + coverage["range_missing_ns"]
    assert (coverage["total_ns"] == missing + coverage["attributed_ns"]).all()
    phase_idle = tables["phase_idle"]
    assert (phase_idle["within_ns"] + phase_idle["before_ns"] == phase_idle["idle_ns"]).all()
    # Of a phase that a filter leaves without an operation, its work may end gaps all the same.
    assert phase_idle["idle_ns"].sum() >= phases["idle_ns"].sum()
    wall = tables["wall"]
    gpus = wall.groupby(["rank", "device_id"]).agg({"time_ns": "sum", "span_ns": "first"})
    assert gpus["time_ns"].tolist() == gpus["span_ns"].tolist()
    idle_ns = wall.loc[wall["wall_class"].isin(["idle", "no_work"]), "time_ns"].sum()
    assert phase_idle["idle_ns"].sum() == idle_ns


@pytest.fixture(scope="module", params=TRACES)
def real(request, traces, tmp_path_factory):
    path = traces / f"{request.param}.sqlite"
    folder = tmp_path_factory.mktemp("real")
    options = ["--running-numbers", "keep"]
    tables = tables_of(folder / "o", path, options=options, recipe=RECIPE)
    return request.param, path, tables


@pytest.mark.nightly
@pytest.mark.traces
def test_real_traces_are_as_a_plain_search_says(real):
    _, path, tables = real
    check(path, tables)
    adds_up(tables)


RANGE = st.tuples(
    st.sampled_from(["a", "b", "c, seq = 1", "prefill"]),
    st.integers(0, 30),
    st.one_of(st.integers(0, 16), st.none()),
    st.sampled_from([1, 2]),
    st.sampled_from(["push_pop", "push_pop", "push_pop", "start_end"]),
    st.sampled_from(["", "", "NCCL"]),
)
OP = st.tuples(
    st.integers(0, 40),
    st.sampled_from([1, 2]),
    st.integers(0, 60),
    st.integers(0, 9),
    st.booleans(),
)


@pytest.mark.nightly
@pytest.mark.slow
@examples(20, nightly=333)
@given(st.lists(RANGE, min_size=1, max_size=9), st.lists(OP, min_size=1, max_size=9))
def test_random_ranges_are_as_a_plain_search_says(ranges, ops):
    trace = TraceBuilder()
    for text, start, length, tid, kind, domain in ranges:
        end = None if length is None else start + length
        trace.nvtx(text, start, end, tid=tid, kind=kind, domain=domain)
    for at, tid, start, length, launched in ops:
        launch = (at, at + 1) if launched else None
        trace.kernel("k", start_ns=50 + start, duration_ns=length, launch=launch, tid=tid)
    # A call between any two launches, so that no thread waits for another one.
    for tid in (1, 2):
        for at in range(0, 42):
            trace.api("cudaEventQuery_v3020", start_ns=at, end_ns=at + 1, tid=tid)
    with tempfile.TemporaryDirectory() as folder:
        path = trace.write_sqlite(Path(folder, "t.sqlite"))
        tables = quick(path, "--running-numbers", "keep")
        check(path, tables)
    adds_up(tables)


@pytest.mark.nightly
@pytest.mark.slow
@examples(8, nightly=125)
@given(
    st.lists(RANGE, min_size=1, max_size=8),
    st.lists(OP, min_size=1, max_size=8),
    st.tuples(st.integers(40, 90), st.integers(1, 40)),
)
def test_what_a_filter_leaves_adds_up_too(ranges, ops, window):
    trace = TraceBuilder()
    for text, start, length, tid, kind, domain in ranges:
        end = None if length is None else start + length
        trace.nvtx(text, start, end, tid=tid, kind=kind, domain=domain)
    for at, tid, start, length, launched in ops:
        launch = (at, at + 1) if launched else None
        trace.kernel("k", start_ns=50 + start, duration_ns=length, launch=launch, tid=tid)
    low, length = window
    for words in (["--filter-time", f"{low}/{low + length}"], ["--filter-nvtx", "a"]):
        with tempfile.TemporaryDirectory() as folder:
            path = trace.write_sqlite(Path(folder, "t.sqlite"))
            tables = quick(path, *words)
        adds_up(tables)
        selected = tables["coverage"]["selected_ns"].sum()
        assert tables["phases"]["gpu_ns"].sum() == selected
        assert tables["phases"]["ops_n"].sum() == tables["coverage"]["selected_n"].sum()
