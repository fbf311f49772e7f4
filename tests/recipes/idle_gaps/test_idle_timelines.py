"""What is drawn around the longest gaps: by hand, bounded, the same however ranks are merged."""

from __future__ import annotations

import pytest
from results import rows, tables_of

from nsys_llm.recipes.idle_gaps.per_rank.gap_timelines import GapTimeline, few_longest
from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.trace.identity import RankKey

MAIN, OTHER = 100, 101


def drawn(folder, *paths, options=()):
    words = ["--min-gap-ns", "1", *options]
    return tables_of(folder / "out", *paths, options=words, recipe="idle_gaps")["gap_timelines"]


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """One gap from 100 to 160: drawn is 40 to 220."""
    trace = TraceBuilder().process(pid=MAIN, name="python")
    trace.kernel("early", start_ns=10, end_ns=20, launch=(1, 2))
    trace.kernel("long", start_ns=20, end_ns=100, launch=(3, 4))
    trace.memset(start_ns=90, end_ns=95, size_bytes=4, launch=(5, 6))
    trace.kernel("next", start_ns=160, end_ns=300, launch=(150, 155), tid=OTHER)
    trace.api("cudaStreamSynchronize_v3020", start_ns=30, end_ns=140)
    trace.osrt("futex", start_ns=145, end_ns=149, tid=OTHER)
    trace.osrt("read", start_ns=225, end_ns=230, tid=OTHER)
    folder = tmp_path_factory.mktemp("drawn")
    return drawn(folder, trace.write_sqlite(folder / "rank0.sqlite"))


def test_a_gap_is_drawn_with_the_work_and_the_threads_around_it(bars):
    assert set(bars["gap"]) == {"1: rank0, 60 ns"}
    assert set(bars["gap_start_ns"]) == {100}
    assert rows(bars, "lane kind name start_ns duration_ns") == [
        ("GPU", "kernel", "long", 40, 60),
        ("GPU", "memset", "memset", 90, 5),
        ("GPU", "kernel", "next", 160, 60),
        ("gap", "host_sync", "nothing runs", 100, 60),
        ("thread 101", "launch_api", "cudaLaunchKernel", 150, 5),
        ("thread 101, OS", "OS call", "futex", 145, 4),
        ("thread 100", "host_sync", "cudaStreamSynchronize", 40, 100),
    ]


def test_few_bars_are_drawn_of_many(tmp_path):
    trace = TraceBuilder()
    for number in range(90):
        at = 20 * number
        trace.kernel("k", start_ns=at, end_ns=at + 20, launch=(at - 9, at - 8))
    trace.kernel("k", start_ns=1800 + 5000, end_ns=6810, launch=(6700, 6705))
    for number in range(90):
        at = 1800 + 20 * number
        trace.api("cudaEventQuery_v3020", start_ns=at, end_ns=at + 1 + number // 50)
    bars = drawn(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))
    lanes = bars.groupby("lane").size().to_dict()
    (thread,) = set(lanes) - {"GPU", "gap"}
    assert lanes == {"GPU": 21, "gap": 1, thread: 40}
    # The 40 longest calls: the launch and 39 of the last 40; of equals the earliest.
    calls = bars[bars["lane"] == thread]
    assert calls["name"].tolist() == ["cudaEventQuery"] * 39 + ["cudaLaunchKernel"]
    assert calls["start_ns"].tolist()[:39] == [1800 + 20 * number for number in range(50, 89)]


def test_choosing_the_longest_is_associative_and_knows_no_order():
    gaps = [
        GapTimeline(RankKey(f"r{number % 3}", 1), number % 2, number, number + 9 - number % 4, ())
        for number in range(12)
    ]
    whole = few_longest(gaps)
    assert whole == few_longest(gaps[::-1])
    assert whole == few_longest([*few_longest(gaps[7:]), *few_longest(gaps[:7])])
    assert [gap.end_ns - gap.start_ns for gap in whole] == [9, 9, 9, 8, 8]


def test_a_rank_without_known_idle_time_has_no_drawing(tmp_path):
    trace = TraceBuilder(schema="3.7.2").kernel("a", start_ns=0, end_ns=4, launch=(-9, -7))
    trace.kernel("b", start_ns=900, end_ns=910, launch=(890, 895))
    trace.graph_launch([("n", 20, 800)], launch=(10, 12), mode="graph")
    assert len(drawn(tmp_path, trace.write_sqlite(tmp_path / "a.sqlite"))) == 0
