"""Causes of idle time, each planted with a length known by hand, through the public run."""

from __future__ import annotations

import numpy as np
import pytest
from quick_run import quick
from results import idle_by_cause, rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.idle_gaps.findings.answer import caveats
from nsys_llm.report.capture_summary import capture_caveats
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES

MAIN, OTHER = 100, 101


def planted(duration_ns=None):
    """Return one gap of each cause; kernels take 10 ns and begin at round numbers."""
    trace = TraceBuilder(duration_ns=duration_ns).process(pid=MAIN, name="python")
    trace.kernel("k0", start_ns=1000, end_ns=1010, launch=(900, 905))

    trace.api("cudaStreamSynchronize_v3020", start_ns=950, end_ns=1080)
    trace.kernel("k1", start_ns=1100, end_ns=1110, launch=(1085, 1095))

    # The host stages the copy inside the call.
    trace.memcpy(
        "HtoD",
        start_ns=1180,
        end_ns=1186,
        size_bytes=8,
        launch=(1120, 1190),
        launch_name="cudaMemcpy_v3020",
    )

    trace.api("cudaMalloc_v3020", start_ns=1200, end_ns=1280)
    trace.kernel("k2", start_ns=1300, end_ns=1310, launch=(1285, 1290))

    trace.kernel("k3", start_ns=1400, end_ns=1410, launch=(1315, 1395))

    trace.api("cudaEventRecord_v3020", start_ns=1412, end_ns=1482)
    trace.kernel("k4", start_ns=1500, end_ns=1510, launch=(1490, 1494))

    trace.kernel("k5", start_ns=1600, end_ns=1610, launch=(1590, 1595))

    trace.kernel("k7", start_ns=1800, end_ns=1810, launch=(1605, 1608), stream_id=8)
    trace.kernel("k6", start_ns=1700, end_ns=1710, launch=(1612, 1615))

    trace.kernel("k8", start_ns=1900, end_ns=1910)

    trace.api("cuModuleLoadData", start_ns=1912, end_ns=1980)
    trace.kernel("k9", start_ns=2000, end_ns=2010, launch=(1985, 1990))

    trace.overhead("CUPTI Buffer flush", start_ns=2020, end_ns=2090, overhead_type=3, tid=OTHER)
    trace.kernel("k10", start_ns=2100, end_ns=2110, launch=(2092, 2095))

    trace.overhead("Command buffer full", start_ns=2120, end_ns=2190, overhead_type=8)
    trace.kernel("k11", start_ns=2200, end_ns=2210, launch=(2115, 2195))

    # The first thread waits, the second has nothing to do until it is through.
    trace.api("cudaStreamSynchronize_v3020", start_ns=2205, end_ns=2280)
    trace.kernel("k12", start_ns=2300, end_ns=2310, launch=(2290, 2294), tid=OTHER)
    return trace


#: What each gap is made of, by the operation that ends it.
EXPECTED = {
    "k1": {"host_sync": 70, "host_no_cuda": 5, "launch_api": 10, "launch_latency": 5},
    "memcpy HtoD": {"host_no_cuda": 10, "sync_memop": 60},
    # The copy's call returns 4 ns after the copy ended.
    "k2": {"sync_memop": 4, "host_no_cuda": 15, "alloc": 80, "launch_api": 5, "launch_latency": 10},
    "k3": {"host_no_cuda": 5, "launch_api": 80, "launch_latency": 5},
    "k4": {"host_no_cuda": 10, "other_api": 70, "launch_api": 4, "launch_latency": 6},
    "k5": {"host_no_cuda": 80, "launch_api": 5, "launch_latency": 5},
    "k6": {"host_no_cuda": 2, "launch_api": 3, "launch_latency": 85},
    "k7": {"queued": 90},
    "k8": {"no_api": 90},
    "k9": {"module_load": 68, "host_no_cuda": 7, "launch_api": 5, "launch_latency": 10},
    "k10": {"profiler_overhead": 70, "host_no_cuda": 12, "launch_api": 3, "launch_latency": 5},
    "k11": {"back_pressure": 70, "launch_api": 10, "host_no_cuda": 5, "launch_latency": 5},
    "k12": {"host_sync": 70, "host_no_cuda": 10, "launch_api": 4, "launch_latency": 6},
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    path = planted().write_sqlite(folder / "rank0.sqlite")
    words = ["--min-gap-ns", "1"]
    return tables_of(folder / "out", path, options=words, recipe="idle_gaps")


def parts_of(gap):
    return {name: gap[f"{name}_ns"] for name in CAUSE_NAMES if gap[f"{name}_ns"]}


def test_planted_gaps_and_no_others_are_split_to_the_nanosecond(tables):
    gaps = {gap["after"]: gap for gap in tables["gaps"].to_dict("records")}
    assert {after: parts_of(gap) for after, gap in gaps.items()} == EXPECTED
    for after, gap in gaps.items():
        assert gap["cause"] == max(EXPECTED[after], key=lambda name: EXPECTED[after][name])
        assert gap["duration_ns"] == sum(EXPECTED[after].values())
        assert gap["idle_ns"] == gap["duration_ns"] - gap["profiler_overhead_ns"]


def test_causes_add_up_to_the_idle_time(tables):
    # 1000 to 2310 with 13 kernels of 10 ns and a copy of 6: 1310 - 136 = 1174, 70 the profiler's.
    (device,) = tables["devices"].to_dict("records")
    assert (device["window_ns"], device["busy_ns"]) == (1310, 136)
    assert (device["overhead_ns"], device["idle_ns"], device["gaps_n"]) == (70, 1104, 13)
    assert tables["rank_causes"]["idle_ns"].sum() == 1104
    assert tables["rank_causes"]["overhead_ns"].sum() == 70
    assert tables["rank_causes"]["gaps_n"].sum() == 13


def test_what_the_trace_does_not_show_is_not_certain(tables):
    # Without: no CUDA call (5+10+15+5+10+80+2+7+12+5+10 = 161), no API (90), and the wait of
    # another thread (70).
    (device,) = tables["devices"].to_dict("records")
    assert device["certain_ns"] == 1104 - 161 - 90 - 70
    sums = idle_by_cause(tables, "certain_ns")
    assert sums["host_sync"] == 70
    assert sums["host_no_cuda"] == 0
    assert sums["no_api"] == 0


def test_a_gap_names_the_call_that_held_the_host(tables):
    gaps = {gap["after"]: gap for gap in tables["gaps"].to_dict("records")}
    assert (gaps["k1"]["api"], gaps["k1"]["api_ns"]) == ("cudaStreamSynchronize", 70)
    assert (gaps["k2"]["api"], gaps["k2"]["api_ns"]) == ("cudaMalloc", 80)
    assert gaps["k3"]["launch_api"] == "cudaLaunchKernel"
    assert (gaps["k1"]["before"], gaps["k1"]["tid"]) == ("k0", MAIN)
    # The wait of another thread, too.
    assert (gaps["k12"]["api"], gaps["k12"]["api_ns"]) == ("cudaStreamSynchronize", 70)
    assert gaps["k12"]["tid"] == OTHER


def test_a_copy_of_pageable_memory_keeps_the_host_though_it_is_called_async(tmp_path):
    copies = [
        ("HtoD", {"src_memory": "pageable"}, "sync_memop"),
        ("HtoD", {"src_memory": "pinned"}, "launch_api"),
        ("DtoH", {"dst_memory": "pageable"}, "sync_memop"),
        ("DtoH", {"dst_memory": "pinned"}, "launch_api"),
        ("DtoD", {}, "launch_api"),
    ]
    paths = []
    for rank, (kind, memory, _) in enumerate(copies):
        trace = TraceBuilder().kernel("a", start_ns=0, end_ns=10, launch=(-5, -3))
        trace.memcpy(kind, start_ns=40, end_ns=42, size_bytes=8, launch=(12, 45), **memory)
        trace.kernel("b", start_ns=50, end_ns=60, launch=(46, 47))
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    causes = tables_of(tmp_path / "out", *paths, recipe="idle_gaps")["rank_causes"]
    sums = causes.groupby(["rank", "cause"])["idle_ns"].sum()
    for rank, (_, _, cause) in enumerate(copies):
        # 28 ns before the copy runs and 3 after.
        assert sums[rank, cause] >= 31
        assert ("sync_memop" in sums[rank]) == (cause == "sync_memop")


def test_the_phase_of_a_gap_is_where_its_time_went(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=100, end_ns=110, launch=(90, 95))
    trace.kernel("b", start_ns=200, end_ns=210, launch=(190, 195))
    texts = ["step, seq = 1", "schedule", "forward"]
    trace.nvtx_ranges(texts, start_ns=[80, 115, 185], end_ns=[220, 180, 215])
    trace.osrt("futex", start_ns=112, end_ns=170)
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    words = ["--min-gap-ns", "1"]
    gaps = tables_of(tmp_path / "out", path, options=words, recipe="idle_gaps")["gaps"]
    names = "cause nvtx_range os_call os_call_ns"
    assert rows(gaps, names) == [("host_no_cuda", "schedule", "futex", 58)]


def test_a_gap_says_how_long_the_launching_thread_was_on_a_core(tmp_path):
    trace = TraceBuilder().process(pid=MAIN, name="python")
    trace.kernel("a", start_ns=100, end_ns=110, launch=(90, 95))
    trace.kernel("b", start_ns=200, end_ns=210, launch=(190, 195))
    trace.kernel("c", start_ns=300, end_ns=310, launch=(290, 295), tid=OTHER)
    # It runs until 130 and from 185; the switches of others are not its own.
    for start_ns, goes_on in ((20, True), (130, False), (185, True)):
        trace.thread_switch(start_ns=start_ns, goes_on=goes_on)
    trace.thread_switch(start_ns=140, goes_on=True, tid=77)
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    words = ["--min-gap-ns", "1"]
    gaps = tables_of(tmp_path / "out", path, options=words, recipe="idle_gaps")["gaps"]
    assert sorted(rows(gaps, "after on_core_ns"), key=str) == [("b", 35), ("c", None)]


def test_a_window_cuts_gaps_and_knows_the_work_around_it(tmp_path):
    path = planted().write_sqlite(tmp_path / "a.sqlite")
    # In the middle of the gap before k7, which was launched at 1605; then k8, whose launch is
    # not known.
    words = ["--filter-time", "1750/1850", "--min-gap-ns", "1"]
    tables = tables_of(tmp_path / "out", path, options=words, recipe="idle_gaps")
    names = "start_ns end_ns before after cause"
    assert sorted(rows(tables["gaps"], names)) == [
        (1750, 1800, "k6", "k7", "queued"),
        (1810, 1850, "k7", "k8", "no_api"),
    ]
    (device,) = tables["devices"].to_dict("records")
    assert device["windowed_by"] == "filter"
    assert (device["window_ns"], device["busy_ns"], device["idle_ns"]) == (100, 10, 90)


def test_after_the_last_operation_nothing_comes(tmp_path):
    path = planted(2600).write_sqlite(tmp_path / "a.sqlite")
    words = ["--filter-time", "2305/2405"]
    tables = tables_of(tmp_path / "out", path, options=words, recipe="idle_gaps")
    assert idle_by_cause(tables) == {"after_last": 95}


@pytest.mark.parametrize("end", ["9s", ""])
def test_a_window_ends_with_the_capture(tmp_path, end):
    # After the capture nobody looked; an open end is the last operation's.
    path = planted(2600).write_sqlite(tmp_path / "a.sqlite")
    words = ["--filter-time", f"2305/{end}"]
    tables = tables_of(tmp_path / "out", path, options=words, recipe="idle_gaps")
    last_ns = 2600 if end else 2310
    names = "windowed_by window_start_ns window_end_ns window_ns idle_ns"
    assert rows(tables["devices"], names) == [
        ("filter", 2305, last_ns, last_ns - 2305, last_ns - 2310)
    ]


def test_the_whole_capture_has_idle_time_at_both_ends(tmp_path):
    path = planted(2600).write_sqlite(tmp_path / "a.sqlite")
    tables = tables_of(
        tmp_path / "out", path, options=["--whole-capture", "--top", "2"], recipe="idle_gaps"
    )
    names = "windowed_by window_start_ns window_end_ns busy_ns overhead_ns idle_ns gaps_n"
    # 1104 as before, 1000 before the first operation and 290 after the last.
    assert rows(tables["devices"], names) == [("capture", 0, 2600, 136, 70, 1104 + 1290, 15)]
    assert idle_by_cause(tables)["after_last"] == 290
    # The first was launched at 900 to 905; before, its thread was in no call.
    names = "start_ns end_ns before after cause cause_ns launch_latency_ns"
    assert rows(tables["gaps"], names)[0] == (0, 1000, None, "k0", "host_no_cuda", 900, 95)
    # What its thread did from 950 on is no matter: the launch was done by then.
    assert "whole capture" in caveats(tables)[0]


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("error", [0, 2_000])
def test_gaps_shorter_than_the_clocks_disagree_have_no_cause(tmp_path, seed, error):
    rng = np.random.default_rng(seed)
    gaps = np.where(rng.random(200) < 0.6, rng.integers(1_900, 2_000, 200), 9_000).tolist()
    trace, at = TraceBuilder().process(pid=MAIN, name="python"), 100_000
    for gap in gaps:
        # Each launch begins 1,500 ns before its kernel; the host's clock may be ahead of that.
        call = at + gap - 1_500 + (error + 1_500 if error else 0)
        trace.kernel("k", start_ns=at + gap, duration_ns=5_000, launch=(call, call + 1_000))
        at += gap + 5_000
    tables = quick("idle_gaps", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    kernels = tables["coverage"].set_index("op").loc["kernel"]
    names = ("early_start_n", "early_start_p99_ns", "early_start_max_ns")
    assert tuple(kernels[list(names)]) == ((200, error, error) if error else (0, 0, 0))
    texts = [text for text in capture_caveats(tables) if "launch call begins" in text]
    assert len(texts) == (1 if error else 0)
    # The window begins with the first kernel, so the first gap is none.
    sums = idle_by_cause(tables)
    assert sum(sums.values()) == tables["devices"]["idle_ns"].sum() == sum(gaps[1:])
    assert sums.get("unresolved", 0) == sum(gap for gap in gaps[1:] if gap < error)


def launches(first_ns, later_ns, first_again=False):
    """Return idle time by cause of kernels that are launched one after the other, each at once.

    Args:
        first_ns: What the first launch of `new` takes, after 20 launches of `old`.
        later_ns: What its second one takes.
        first_again: Launch `new` before all others, too.
    """
    trace, at = TraceBuilder(), 1000
    names = ["new"] * first_again + ["old"] * 20 + ["new", "new"]
    lengths = [5_000] * first_again + [5_000] * 20 + [first_ns, later_ns]
    for name, length in zip(names, lengths, strict=True):
        trace.kernel(name, start_ns=at + length, duration_ns=1_000, launch=(at, at + length))
        at += length + 1_000
    return trace


def idle_ns(trace, path):
    return idle_by_cause(quick("idle_gaps", trace.write_sqlite(path / "rank0.sqlite")))


@pytest.mark.parametrize(
    ("first_ns", "later_ns", "first_again", "loaded_ns"),
    [
        (2_000_000, 5_000, False, 2_000_000),
        (5_000, 2_000_000, False, 0),  # a slow launch that is not the first of its kernel
        (99_000, 5_000, False, 0),  # a first launch that is not slow enough
        (2_000_000, 5_000, True, 0),  # the kernel was launched before, and fast
    ],
)
def test_a_slow_first_launch_loads_the_kernels_code(
    first_ns, later_ns, first_again, loaded_ns, tmp_path
):
    by_cause = idle_ns(launches(first_ns, later_ns, first_again), tmp_path)
    assert by_cause.get("module_load", 0) == loaded_ns
    # But for the launch before the first kernel.
    assert by_cause["launch_api"] == 5_000 * (19 + first_again) + first_ns + later_ns - loaded_ns


def test_first_launches_are_as_fast_as_others_where_all_are_slow(tmp_path):
    # Each launch takes 200 us: the host is slow, and loads nothing.
    trace = TraceBuilder()
    for number in range(20):
        start = 1000 + 300_000 * number
        name = f"kernel_{number}"
        trace.kernel(name, start_ns=start + 200_000, duration_ns=9, launch=(start, start + 200_000))
    assert "module_load" not in idle_ns(trace, tmp_path)
