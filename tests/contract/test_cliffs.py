"""Shapes that once took minutes or many GB of a small profile: their work is counted, not timed."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from quick_run import quick, quick_run
from trace_builder import TraceBuilder

from nsys_llm.critical_path.path import blocks, outline
from nsys_llm.facts.device import host_timeline, idle_split
from nsys_llm.facts.host.places import OTHER_RANGES
from nsys_llm.facts.nvtx import nvtx_tree
from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.phases.ranges import Paths, rolled_up
from nsys_llm.facts.tails.concurrency import Timeline
from nsys_llm.job.collectives import matching
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.two_samples import compare_ranks
from nsys_llm.profile.tables import Table
from nsys_llm.recipes.llm_overview.tables.views import GpuLane, chosen_gpus
from nsys_llm.run import worker
from nsys_llm.taxonomy import categories
from nsys_llm.trace import selection
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.ranges import PUSH_POP

STEP_NS = 1_000


def kernels(count, **queue):
    """Return a report of kernels, one each microsecond."""
    at_ns = np.arange(count) * STEP_NS
    return TraceBuilder().kernels(
        ["gemm"],
        np.zeros(count, dtype=np.int64),
        start_ns=at_ns + 200,
        end_ns=at_ns + 900,
        launch_ns=(at_ns, at_ns + 50),
        **queue,
    )


def changed(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()
    return path


@pytest.fixture
def counted(monkeypatch):
    """Return how to count the calls of a module's function and the rows of an argument."""

    def count(module, name, argument=0):
        real, sizes = getattr(module, name), []

        def call(*arguments):
            sizes.append(len(arguments[argument]))
            return real(*arguments)

        monkeypatch.setattr(module, name, call)
        return sizes

    return count


def ranges(start_ns, end_ns, tid):
    kind = np.full(start_ns.shape, PUSH_POP)
    names = ("start_ns", "end_ns", "global_tid", "event_type")
    columns = (start_ns, end_ns, np.broadcast_to(tid, start_ns.shape), kind)
    return Table(dict(zip(names, columns, strict=True)))


def test_gaps_and_calls_that_overlap_make_no_row_for_each_pair(tmp_path, monkeypatch):
    kernels_n, calls_n, rows = 500, 1_000, []
    report = kernels(kernels_n)
    at_ns = np.arange(calls_n) * STEP_NS // 2 + 100
    report.apis(
        ["cudaStreamSynchronize_v3020"],
        np.zeros(calls_n, dtype=np.int64),
        start_ns=at_ns,
        end_ns=at_ns + 10**8,
    )
    real = idle_split._calls_within

    def within(*arguments):
        found = real(*arguments)
        rows.append(found[0].size)
        return found

    monkeypatch.setattr(idle_split, "_calls_within", within)
    tables = quick("idle_gaps", report.write_sqlite(tmp_path / "rank0.sqlite"))
    assert tables["rank_causes"]["idle_ns"].sum() == tables["devices"]["idle_ns"].sum()
    assert sum(rows) <= 4 * (kernels_n + calls_n)


def test_ranges_that_overlap_partly_are_cut_in_bounded_work(counted):
    count = 20_000
    searched = counted(nvtx_tree, "last_open")
    start_ns = np.arange(count) * 10
    tree = NvtxTree.of(ranges(start_ns, start_ns + count * 5, 11), 10**9)
    assert sum(searched) < 60 * count + 10 * (1 << 17)
    # What is cut still nests, and nothing reaches beyond its range.
    inner = np.flatnonzero(tree.parent >= 0)
    assert (tree.end_ns[inner] <= tree.end_ns[tree.parent[inner]]).all()
    assert (tree.end_ns <= start_ns[tree.event] + count * 5).all()


def test_the_host_time_of_many_threads_is_split_in_bounded_work(tmp_path, counted):
    count = 400
    report, at_ns = kernels(count), np.arange(count) * STEP_NS + 10
    report.nvtx_ranges(["work"] * count, start_ns=at_ns, end_ns=at_ns + 900)
    thread = "globalTid - globalTid % 16777216 + 1 + start / 1000"
    path = changed(
        report.write_sqlite(tmp_path / "rank0.sqlite"),
        f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = {thread}",
        f"UPDATE NVTX_EVENTS SET globalTid = {thread} WHERE eventType = 59",
    )
    read = counted(blocks, "closed_ends")
    handed = counted(idle_split, "clip_to_windows")
    quick("step_budget", path)
    assert len(read) <= 2
    assert len(handed) <= 4


@pytest.mark.parametrize("name", ["unique {}", "req {}", "req-17-{}"])
def test_a_step_budget_keeps_few_names_of_ranges(tmp_path, name):
    steps_n = 100
    report = kernels(20 * steps_n)
    step_ns = np.arange(steps_n) * 20 * STEP_NS
    report.nvtx_ranges(
        [f"step {step}" for step in range(steps_n)], start_ns=step_ns, end_ns=step_ns + 19_990
    )
    inside_ns = (step_ns[:, None] + 10 + np.arange(4) * 4_990).ravel()
    texts = {
        "unique {}": ["".join(chr(97 + int(digit)) for digit in str(n)) for n in range(400)],
        "req {}": [uuid.UUID(int=n * 2**90 + n) for n in range(400)],
        "req-17-{}": [f"{n * 7919 % 2**20:05x}a" for n in range(400)],
    }[name]
    report.nvtx_ranges(
        [name.format(text) for text in texts], start_ns=inside_ns, end_ns=inside_ns + 4_900
    )
    run = quick_run("step_budget", report.write_sqlite(tmp_path / "rank0.sqlite"))
    details = {
        charge.detail for rank in run.facts[""].paths.values() for charge in rank.forest.charges
    }
    if name == "unique {}":
        assert OTHER_RANGES in details
        assert len(details) < 300
    else:
        assert len(details) < 20


def test_the_paths_of_many_devices_are_walked_in_bounded_work(tmp_path, monkeypatch, counted):
    devices_n, kernels_n, visited = 80, 8_000, []
    path = changed(
        kernels(kernels_n).write_sqlite(tmp_path / "rank0.sqlite"),
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = correlationId % {devices_n}",
    )
    real = outline.follow

    def follow(*arguments):
        followed = real(*arguments)
        visited.append(followed.segment.size)
        return followed

    monkeypatch.setattr(outline, "follow", follow)
    added = counted(outline, "_add", 1)
    quick("step_budget", path)
    assert devices_n <= sum(visited) <= devices_n**2 + kernels_n
    assert sum(added) <= 20 * sum(visited)  # not each stretch for each walk


def test_a_gap_that_holds_calls_for_many_devices_takes_their_sums(tmp_path, monkeypatch):
    devices_n, kernels_n = 80, 2_000
    path = changed(
        kernels(kernels_n).write_sqlite(tmp_path / "rank0.sqlite"),
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = correlationId % {devices_n}",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = end + correlationId % 700",
    )
    real, rows, causes = idle_split._calls_within, [], []

    def within(*arguments):
        found = real(*arguments)
        rows[-1] += found[0].size
        return found

    monkeypatch.setattr(idle_split, "_calls_within", within)
    for block in (4, 1 << 30):
        for module in (host_timeline, idle_split):
            monkeypatch.setattr(module, "CALLS_BLOCK", block)
        rows.append(0)
        tables = quick("idle_gaps", path)
        causes.append((tables["rank_causes"], tables["gaps"]))
    assert rows[0] <= 24 * kernels_n < rows[1]
    for few, all_of_them in zip(*causes, strict=True):
        assert few.equals(all_of_them)


def test_the_processes_of_a_profile_are_looked_up_once_not_once_each(tmp_path, monkeypatch):
    processes_n, looked_up = 40, []
    path = changed(
        kernels(400).write_sqlite(tmp_path / "rank0.sqlite"),
        *(
            f"UPDATE {table} SET {column} = {column} + 16777216 * (correlationId % {processes_n})"
            for table, column in (
                ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
                ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
            )
        ),
    )
    real = selection.gpu_processes

    def gpu_processes(trace):
        looked_up.append(trace)
        return real(trace)

    for module in (selection, worker):
        monkeypatch.setattr(module, "gpu_processes", gpu_processes)
    assert len(quick("idle_gaps", path)["files"]) == processes_n
    assert len(looked_up) == 1


def test_of_very_many_processes_the_busiest_are_analyzed_and_the_others_counted(
    tmp_path, monkeypatch
):
    """Process n has n + 1 kernels, of one length."""
    report = TraceBuilder()
    for pid in range(8):
        for number in range(pid + 1):
            at_ns = number * STEP_NS
            report.kernel("gemm", start_ns=at_ns, duration_ns=700, pid=100 + pid)
    path = report.write_sqlite(tmp_path / "rank0.sqlite")
    monkeypatch.setattr(selection, "MOST_PROCESSES", 3)
    run = quick_run("idle_gaps", path)
    assert sorted((rank.key.global_pid >> 24) & 0xFFFFFF for rank in run.ranks) == [105, 106, 107]
    assert [note for _, note in run.notes if "left out" in note] == [
        "processes left out, those with least GPU time: 5"
    ]


def test_ranges_inside_of_each_other_are_added_up_in_rounds_not_levels():
    deep_n, began_s = 8_000, time.process_time()
    parent, ones = np.arange(deep_n) - 1, np.ones(deep_n, dtype=np.int64)
    assert rolled_up(ones, parent).tolist() == list(range(deep_n, 0, -1))
    start_ns = np.arange(deep_n)
    tree = NvtxTree.of(ranges(start_ns, 10 * deep_n - start_ns, 11), 10**9)
    assert np.flatnonzero(~tree.inside_same(start_ns % 7)).tolist() == list(range(7))
    paths = Paths.of(tree, start_ns % 7, 7)
    assert paths.outermost.sum() == 7
    assert paths.cut(10).max() == 9
    assert time.process_time() - began_s < 1.5  # levels took minutes


def test_kernels_of_one_instant_are_not_compared_with_each_other():
    count, began_s = 50_000, time.process_time()
    same, number = np.full(count, 5), np.arange(count)
    timeline = Timeline(same, same + 100 + number // 2 * 2, number % 8, number % 3)
    chosen = number[-1_000:]
    columns = (timeline.start_ns, timeline.end_ns, timeline.lane, timeline.label)
    place = timeline.places(*(column[chosen] for column in columns))
    assert place.tolist() == chosen.tolist()
    other, beside_ns = timeline.longest_beside(place)
    assert (timeline.end_ns[other] >= timeline.end_ns[place])[:-2].all()
    assert beside_ns.tolist() == (timeline.end_ns - 5)[place].tolist()
    assert time.process_time() - began_s < 1.5  # pairs took a minute


def test_the_lanes_of_a_path_are_looked_up_once_a_rank():
    rank = Rank(RankKey("rank0", 1), 0, "rank0", None, None)
    gpus = [GpuLane(rank, device, f"GPU {device}") for device in range(1_000)]
    began_s = time.process_time()
    shown = chosen_gpus(gpus, [], [{"rank": 0}] * 50_000)
    assert [gpu.device_id for gpu in shown[:30]] == list(range(30))
    assert len(shown) == 64
    assert time.process_time() - began_s < 0.5


def test_each_of_many_kernel_names_is_matched_with_few_patterns_once(tmp_path, monkeypatch):
    names_n, tried = 500, []
    names = [f"kernel{'abc'[n % 3]}_{n}_fwd" for n in range(names_n)]
    at_ns = np.arange(names_n) * STEP_NS
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        TraceBuilder().kernels(
            names, np.arange(names_n), start_ns=at_ns, end_ns=at_ns + 700
        ).write_sqlite(tmp_path / side / "rank0.sqlite")

    def search(pattern, text):
        # The engine is found in all names together.
        tried.extend([pattern] * ("\n" not in text))
        return re.search(pattern, text)

    monkeypatch.setattr(categories, "re", SimpleNamespace(search=search))
    quick("trace_diff", tmp_path / "b", "--baseline", str(tmp_path / "a"))
    assert 0 < len(tried) <= 2 * names_n


@pytest.mark.nightly
def test_ranges_nested_very_deep_make_no_path_of_their_depth(tmp_path):
    deep_n = 1_200
    report, at_ns = kernels(deep_n), np.arange(deep_n)
    names = [f"{'abc'[n % 3]}{n}z" for n in range(deep_n)]
    report.nvtx_ranges(names, start_ns=at_ns * 5, end_ns=2 * deep_n * STEP_NS - at_ns)
    tables = quick("nvtx_phase_attribution", report.write_sqlite(tmp_path / "rank0.sqlite"))
    assert tables["range_tree"]["depth"].max() == 999
    assert tables["range_tree"]["self_ns"].sum() == tables["ranges"]["self_ns"].sum() > 0


def test_a_device_with_many_nccl_streams_counts_them_as_one(tmp_path, counted):
    streams_n = 400
    at_ns = np.arange(streams_n) * STEP_NS
    compared = counted(matching, "_grouped")
    for rank in range(2):
        TraceBuilder().kernels(
            ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"],
            np.zeros(streams_n, dtype=np.int64),
            start_ns=at_ns + 200,
            end_ns=at_ns + 900,
            launch_ns=(at_ns, at_ns + 50),
            stream_id=np.arange(streams_n),
        ).write_sqlite(tmp_path / f"rank{rank}.sqlite")
    quick("tail_stats", tmp_path)
    assert set(compared) == {2}


@pytest.mark.nightly("llm_overview-2")
@pytest.mark.parametrize(("recipe", "cut_n"), [("llm_hotspots", 1), ("llm_overview", 2)])
def test_names_of_megabytes_are_cut_and_that_is_said(tmp_path, recipe, cut_n):
    """A kernel's; the overview also reads NVTX ranges, of which one is not registered."""
    report = kernels(9)
    report.kernels(["k" * 70_000], np.zeros(1, dtype=int), start_ns=[20_000], end_ns=[20_900])
    report.nvtx("r" * 70_000, 100, 30_000)
    run = quick_run(recipe, report.write_sqlite(tmp_path / "rank0.sqlite"))
    assert ("rank0", f"long names cut: {cut_n}") in run.notes
    if recipe == "llm_hotspots":
        tables = quick(recipe, tmp_path / "rank0.sqlite")
        assert tables["kernels"]["name"].str.len().max() == 4_096


def test_the_kernels_of_two_runs_are_tested_together():
    """What is left for each name are a few operations on numbers."""
    names_n, calls = 2_000, []
    group = np.repeat(np.arange(names_n), 2)
    sides = [
        ValueCounts(group, np.arange(group.size) % 2 * 10 + shift, np.ones_like(group))
        for shift in (100, 105)
    ]
    sys.setprofile(lambda _, event, __: calls.append(event) if event.endswith("call") else None)
    try:
        p_value = compare_ranks(*sides, names_n)
    finally:
        sys.setprofile(None)
    assert np.unique(p_value).size == 1
    assert len(calls) < 10 * names_n


@pytest.mark.nightly
def test_an_overview_asks_once_whose_kernels_these_are(tmp_path, counted):
    scored = counted(categories, "_score", 1)
    quick("llm_overview", kernels(50).write_sqlite(tmp_path / "rank0.sqlite"))
    assert len(scored) <= 2 * len(categories.ENGINES)
