"""Tables of trace_diff on traces of a few ns, through the public run. All numbers by hand."""

from __future__ import annotations

import pytest
from results import plain, rows, tables_of
from trace_builder import TraceBuilder


def diff(folder, *inputs, options=()):
    return tables_of(folder / "out", *inputs, options=options, recipe="trace_diff")


def launch(trace, name, start_ns, duration_ns, **others):
    """Add a kernel and the call that launched it, 2 ns long and 3 ns before."""
    call = (start_ns - 3, start_ns - 1)
    return trace.kernel(name, start_ns=start_ns, duration_ns=duration_ns, launch=call, **others)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Baseline: a 4 and 6 ns, b 3, old 5; input: a 5, 5, 5 and 7 ns, b 3, new 7."""
    folder = tmp_path_factory.mktemp("pair")
    before, after = TraceBuilder(), TraceBuilder()
    launch(before, "a", 10, 4, grid=(8, 1, 1))
    launch(before, "a", 20, 6, grid=(8, 1, 1))
    launch(before, "b", 30, 3)
    launch(before, "old", 40, 5, grid=(4, 1, 1))
    before.memcpy("DtoD", start_ns=50, duration_ns=2, size_bytes=100, launch=(46, 48))
    for start_ns, length in ((10, 5), (20, 5), (30, 5), (40, 7)):
        launch(after, "a", start_ns, length, grid=(16, 1, 1), registers=40)
    launch(after, "b", 50, 3)
    launch(after, "new", 60, 7, grid=(4, 1, 1))
    for start_ns in (70, 80, 90):
        after.memcpy("DtoD", start_ns=start_ns, duration_ns=3, size_bytes=100)
    return diff(
        folder,
        before.write_sqlite(folder / "before.sqlite"),
        after.write_sqlite(folder / "after.sqlite"),
    )


EFFECTS = "change_ns count_effect_ns per_call_effect_ns"


def test_kernels_split_into_more_calls_and_longer_ones(tables):
    # a: two more of 5 ns, and 22 - 20 ns longer; new and vanished are all count effect.
    names = f"name status baseline_launches_n input_launches_n {EFFECTS}"
    assert rows(tables["kernels"], f"{names} baseline_total_ns input_total_ns change_pct") == [
        ("a", "both", 2, 4, 12, 10, 2, 10, 22, 120.0),
        ("new", "new", 0, 1, 7, 7, 0, 0, 7, None),
        ("old", "vanished", 1, 0, -5, -5, 0, 5, 0, -100.0),
        ("b", "both", 1, 1, 0, 0, 0, 3, 3, 0.0),
    ]
    # Too few launches tell nothing.
    assert set(tables["kernels"]["verdict"]) == {"insufficient"}
    assert tables["kernels"]["p_value"].isna().all()
    names = "name config status baseline_launches_n input_launches_n change_ns"
    assert rows(tables["configs"], names)[:2] == [
        ("a", "16x1x1 / 32x1x1 / 40 regs", "new", 0, 4, 22),
        ("a", "8x1x1 / 32x1x1 / 32 regs", "vanished", 2, 0, -10),
    ]


def test_copies_calls_and_idle_time_are_told_and_metrics_are_those_of_the_tables(tables):
    # Two more of 2 ns, and 1 ns longer each.
    names = f"kind baseline_operations_n input_operations_n {EFFECTS}"
    assert rows(tables["memops"], names) == [("DtoD", 1, 3, 7, 4, 3)]
    names = f"api class baseline_calls_n input_calls_n {EFFECTS}"
    assert rows(tables["apis"], names) == [
        ("cudaLaunchKernel", "launch", 4, 6, 4, 4, 0),
        ("cudaMemcpyAsync", "memcpy", 1, 0, -2, -2, 0),
    ]
    # Baseline: 14-20, 26-30, 33-40, 45-50 = 22 ns of 42; input: 5 + 5 + 5 + 3 + 7 + 3 + 7 + 7.
    runs = tables["runs"].set_index("run")
    assert runs[["window_ns", "idle_ns"]].to_numpy().tolist() == [[42, 22], [83, 42]]
    wall = tables["wall"]
    idle = wall[(wall["wall_class"] == "idle") & wall["detail"].notna()]
    assert idle.groupby("run")["time_ns"].sum().to_dict() == {"baseline": 22, "input": 42}
    values = {row[0]: row[1:] for row in rows(tables["metrics"], "metric baseline input change")}
    assert values["window"] == (42.0, 83.0, 41.0)
    assert values["idle_pct"][:2] == pytest.approx((100 * 22 / 42, 100 * 42 / 83))
    assert values["exposed_comm"] == (0.0, 0.0, 0.0)
    assert values["idle_time_per_step"] == (None, None, None)
    assert not tables["metrics"].set_index("metric").loc["idle_time_per_step", "comparable"]


def stepped(folder, **runs):
    """Write runs of steps, each a range around the launch of one kernel k of a length."""
    paths = []
    for run, lengths in runs.items():
        trace = TraceBuilder()
        for index, length in enumerate(lengths):
            at = 100 * index + 50
            trace.nvtx(f"step {index}", start_ns=at - 20, end_ns=at + 40)
            launch(trace, "k", at, length)
        if run == "after":
            launch(trace, "w", at + 20, 8)
        paths.append(trace.write_sqlite(folder / f"{run}.sqlite"))
    return paths


def test_steps_give_times_per_step_and_rank(tmp_path):
    # Three steps of k with 15 ns in all; then four of 5 ns each, and one w of 8.
    paths = stepped(tmp_path, before=(4, 6, 5), after=(5, 5, 5, 5))
    frames = diff(tmp_path, *paths)
    steps = frames["comparability"].set_index("check").loc["steps"]
    assert steps[["baseline", "input", "status"]].tolist() == ["3 x step #", "4 x step #", "totals"]
    names = "name baseline_compared_ns input_compared_ns compared_change_ns"
    assert rows(frames["kernels"], names) == [("w", 0.0, 2.0, 2.0), ("k", 5.0, 5.0, 0.0)]
    values = frames["metrics"].set_index("metric")["change"]
    assert values["gpu_time_per_step"] == 2.0
    assert values["kernel_launches_per_step"] == 0.25
    assert values["copy_bytes_per_step"] == 0.0
    # Another number of steps: sums are not comparable, times per step are.
    comparable = frames["metrics"].set_index("metric")["comparable"]
    assert comparable["idle_time_per_step"]
    assert not comparable["exposed_comm"]
    # Filters by step leave as many on each side.
    frames = diff(tmp_path, *paths, options=["--steps", "1:3"])
    names = "name baseline_total_ns input_total_ns compared_change_ns"
    assert rows(frames["kernels"], names) == [("k", 11, 10, -0.5)]


def test_phases_that_only_one_run_has_change_too(tmp_path):
    # Before: prefill 4 and 5, no range 3; after: prefill 6, decode 7, no range 3.
    paths = []
    for run, launches in (
        ("before", (("prefill", 4), ("prefill", 5), (None, 3))),
        ("after", (("prefill", 6), ("decode", 7), (None, 3))),
    ):
        trace = TraceBuilder()
        for index, (name, length) in enumerate(launches):
            at = 100 * index + 50
            if name:
                trace.nvtx(name, start_ns=at - 20, end_ns=at + 20)
            launch(trace, "k", at, length)
        paths.append(trace.write_sqlite(tmp_path / f"{run}.sqlite"))
    frames = diff(tmp_path, *paths)
    assert sorted(rows(frames["phases"], f"phase {EFFECTS}")) == [
        ("decode", 7, 7, 0),
        ("no_range", 0, 0, 0),
        # One of two less, at 4.5 ns, rounds to 4; the other is longer by 1.
        ("prefill", -3, -4, 1),
    ]
    assert frames["phases"]["change_ns"].sum() == frames["kernels"]["change_ns"].sum() == 4


def test_ranks_are_paired_by_number_and_sums_are_over_all(tmp_path):
    for run, lengths in (("before", (3, 5)), ("after", (4, 9))):
        (tmp_path / run).mkdir()
        for rank, length in enumerate(lengths):
            trace = TraceBuilder().kernel("k", start_ns=10, duration_ns=length)
            trace.write_sqlite(tmp_path / run / f"rank{rank}.sqlite")
    frames = diff(tmp_path, tmp_path / "before", tmp_path / "after")
    assert rows(frames["kernels"], f"name {EFFECTS}") == [("k", 5, 0, 5)]
    assert rows(frames["files"].reset_index(), "run Rank File") == [
        ("baseline", 0, "before/rank0"),
        ("baseline", 1, "before/rank1"),
        ("input", 0, "after/rank0"),
        ("input", 1, "after/rank1"),
    ]


def test_an_effect_below_the_floor_is_none_however_significant(tmp_path):
    paths = []
    for run, longer in (("before", 0), ("after", 100)):
        trace = TraceBuilder()
        for index in range(8):
            length = 10_000 + 10 * index + longer
            trace.kernel("k", start_ns=20_000 * index, duration_ns=length)
        paths.append(trace.write_sqlite(tmp_path / f"{run}.sqlite"))
    frames = diff(tmp_path, *paths)
    assert rows(frames["kernels"], "verdict") == [("none",)]
    again = tables_of(
        tmp_path / "again", *paths, options=["--min-effect", "0.5"], recipe="trace_diff"
    )
    assert plain(again["kernels"])["verdict"] == ["regress"]
