"""Captures that begin or end in the midst of work: what they cut is cut, and not missing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from quick_run import quick
from results import idle_by_cause
from trace_builder import TraceBuilder

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.recipes.idle_gaps.analysis import answer
from nsys_llm.trace.attribution import launched_before

US = 1_000
COPY = "cudaMemcpyAsync_v3020"


def queue(plan: list[str], random: Random, end_ns: int | None, *, traced: bool = True):
    """Run kernels (k), copies (c) and waits (w) through one stream in order, cut at `end_ns`.

    Returns:
        The trace, and how many copies the end of the capture cut; without `traced` none has a row.
    """
    trace, now_ns, free_ns, cut_n = TraceBuilder(), 0, 0, 0
    for kind in plan:
        call = (now_ns, now_ns + random.randint(2, 6) * US)
        if end_ns is not None and call[1] > end_ns:
            break
        now_ns = call[1] + random.randint(0, 3) * US
        start_ns = max(call[1] + US, free_ns)
        over_ns = start_ns + random.randint(30, 60) * US
        if kind == "w":
            now_ns = max(now_ns, free_ns + US)
            if end_ns is None or now_ns <= end_ns:
                trace.api("cudaStreamSynchronize_v3020", start_ns=call[0], end_ns=now_ns)
            continue
        free_ns = over_ns
        inside = end_ns is None or over_ns <= end_ns
        if kind == "k" and inside:
            trace.kernel("k", start_ns=start_ns, end_ns=over_ns, launch=call)
        elif kind == "k":
            trace.api("cudaLaunchKernel_v7000", start_ns=call[0], end_ns=call[1])
        elif inside and traced:
            trace.memcpy("HtoD", start_ns=start_ns, end_ns=over_ns, size_bytes=9, launch=call)
        else:
            trace.api(COPY, start_ns=call[0], end_ns=call[1])
            cut_n += not inside
    return trace, cut_n


def idle(path):
    tables = quick("idle_gaps", path)
    (device,) = tables["devices"].to_dict("records")
    return device, set(tables["findings"]["rule"])


@pytest.mark.parametrize("seed", range(3))
def test_what_a_capture_cuts_of_a_queue_is_counted_exactly(tmp_path, seed):
    random = Random(100 + seed)
    plan, end_ns = ["k"] * 40 + ["c"] * random.randint(12, 25), 40 * 30 * US
    if seed:  # else the host is far ahead of the GPU: every copy is called for, and none has run
        plan = random.choices("kkccw", weights=(4, 4, 5, 5, random.choice((0, 1))), k=120)
        end_ns = random.randint(500, 1500) * US
    trace, cut_n = queue(plan, random, end_ns)
    device, rules = idle(trace.write_sqlite(tmp_path / "r.sqlite"))
    assert seed or (device["copies_seen_n"], cut_n) == (0, len(plan) - 40)
    assert device["copies_cut_n"] == cut_n
    assert device["copy_calls_n"] == device["copies_seen_n"] + cut_n
    assert "copies_not_traced" not in rules


@pytest.mark.parametrize(
    "plan", ["kc" * 30, "kkccw" * 12, "k" * 20 + "c" * 20 + "w", "c" * 20 + "k" * 20]
)
def test_copies_that_left_no_row_are_missing_wherever_the_capture_ends(tmp_path, plan):
    trace, _ = queue(list(plan), Random(plan), None, traced=False)
    device, rules = idle(trace.write_sqlite(tmp_path / "r.sqlite"))
    assert device["copies_cut_n"] <= 2  # the very last calls of all
    assert "copies_not_traced" in rules


def begun_late(random: Random, early_n: int) -> TraceBuilder:
    """Return a trace whose first kernels were launched before it began."""
    trace, at_ns = TraceBuilder(), 0
    # Numbers that the calls before had taken.
    trace.reserve_correlation_ids(early_n)
    for number in range(early_n):
        over_ns = at_ns + random.randint(40, 90) * US
        trace.kernel("k", start_ns=at_ns, end_ns=over_ns, correlation_id=1 + number)
        at_ns = over_ns + US
    trace.nvtx("step", 5 * US, at_ns + 900 * US)
    for number in range(10):
        call = (10 * US + number * US, 10 * US + number * US + 500)
        trace.kernel("k", start_ns=at_ns, end_ns=at_ns + 20 * US, launch=call)
        at_ns += 21 * US
    return trace


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("recipe", ["llm_hotspots", "nvtx_phase_attribution"])
def test_work_that_was_launched_before_the_capture_is_cut_and_named(tmp_path, seed, recipe):
    random = Random(seed)
    early_n = random.randint(20, 30)
    path = begun_late(random, early_n).write_sqlite(tmp_path / "r.sqlite")
    tables = quick(recipe, path)
    row = tables["coverage"].set_index("op").loc["kernel"]
    assert (row["api_missing_n"], row["api_cut_n"]) == (early_n, early_n)
    assert row["api_cut_ns"] == row["api_missing_ns"] == row["total_ns"] - 10 * 20 * US
    # Far more than half of the time was launched before, and nothing that could be recorded lacks.
    assert not {"low_api_coverage", "low_range_coverage"} & set(tables["findings"]["rule"])


def test_work_without_a_call_in_the_midst_is_missing_beside_what_is_cut(tmp_path):
    trace = begun_late(Random(7), 20)
    for number in range(20):
        start_ns = 9_000 * US + number * 100 * US
        trace.kernel("lost", start_ns=start_ns, duration_ns=80 * US)
    tables = quick("nvtx_phase_attribution", trace.write_sqlite(tmp_path / "r.sqlite"))
    row = tables["coverage"].set_index("op").loc["kernel"]
    assert (row["api_missing_n"], row["api_cut_n"]) == (40, 20)
    findings = tables["findings"].set_index("rule")
    for rule in ("low_api_coverage", "low_range_coverage"):
        # 200 us of 1.8 ms; the 20 cut ones are in neither number.
        assert "11.1 %" in findings.loc[rule, "title"]
        assert "launched before the capture began" in findings.loc[rule, "details"]


def marked_job(random: Random, begin_ns: int, nested: bool):
    """Run steps of layers, with a launch inside and outside of each, from `begin_ns` on.

    Returns:
        The trace, GPU time launched in the cut step outside of its layers, and that outside of
        steps behind the first whole one.
    """
    trace, now_ns, gpu_ns, cut_ns, outside_ns, whole = TraceBuilder(), 0, 0, 0, 0, False

    def launch(owner):
        nonlocal now_ns, gpu_ns, cut_ns, outside_ns
        call = (now_ns, now_ns + 2 * US)
        now_ns += random.randint(3, 9) * US
        start_ns = max(call[1] + US, gpu_ns)
        gpu_ns = start_ns + random.randint(5, 25) * US
        if call[0] >= begin_ns:
            trace.kernel("k", start_ns=start_ns, end_ns=gpu_ns, launch=call)
            cut_ns += (gpu_ns - start_ns) * (owner == "cut" or (owner == "outside" and not whole))
            outside_ns += (gpu_ns - start_ns) * (owner == "outside" and whole)
        elif gpu_ns > begin_ns:
            trace.kernel("k", start_ns=start_ns, end_ns=gpu_ns)

    for step in range(12):
        pushed_ns, marks = now_ns, []
        whole |= pushed_ns >= begin_ns
        for layer in range(4):
            launch("step" if pushed_ns >= begin_ns else "cut")
            if nested:
                marks.append((f"layer {layer}", now_ns))
                launch("layer" if now_ns >= begin_ns else "cut")
                marks[-1] = (*marks[-1], now_ns)
        for name, start_ns, end_ns in [(f"step {step}", pushed_ns, now_ns), *marks]:
            if start_ns >= begin_ns:
                trace.nvtx(name, start_ns, end_ns)
        if step % 3 == 0:
            launch("outside")
    return trace, cut_ns, outside_ns


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nested", [False, True])
def test_work_in_a_range_that_was_pushed_before_the_capture_is_cut(tmp_path, seed, nested):
    random = Random(seed)
    trace, cut_ns, outside_ns = marked_job(random, random.randint(40, 180) * US, nested)
    path = trace.write_sqlite(tmp_path / "r.sqlite")
    tables = quick("nvtx_phase_attribution", path)
    parts = tables["attribution"].set_index("part")["gpu_ns"].to_dict()
    assert parts.get("cut_range", 0) == cut_ns
    assert parts.get("outside_ranges", 0) == outside_ns


@pytest.mark.parametrize("running", [False, True])
def test_work_before_the_first_range_is_cut_for_no_longer_than_a_range_lasts(tmp_path, running):
    trace = TraceBuilder()
    if running:
        trace.kernel("k", start_ns=5 * US, end_ns=12 * US)
    for at in range(1, 41):
        trace.kernel(
            "k",
            start_ns=(10 * at + 5) * US,
            end_ns=(10 * at + 9) * US,
            launch=(10 * at * US, (10 * at + 2) * US),
        )
    for at in (210, 260, 310, 360):
        trace.nvtx("step", at * US, (at + 49) * US)
    tables = quick("nvtx_phase_attribution", trace.write_sqlite(tmp_path / "r.sqlite"))
    parts = tables["attribution"].set_index("part")["ops_n"].to_dict()
    # The capture begins with the first call, at 10 us; a step takes 49.
    assert parts.get("cut_range", 0) == (5 if running else 0)
    assert parts["outside_ranges"] == (15 if running else 20)
    assert parts["launch"] == 20


@pytest.mark.parametrize("seed", range(3))
def test_idle_time_before_what_was_launched_earlier_is_cut(tmp_path, seed):
    random = Random(seed)
    trace, at, cut_ns, open_ns = TraceBuilder(), 0, 0, 0
    early_n, lost_n = random.randint(2, 8), random.choice((0, 4))
    for number in range(early_n + lost_n + 6):
        gap_ns = random.randint(1, 4) * 1_000 * US
        start_ns, at = at + gap_ns, at + gap_ns + 20 * US
        if number < early_n:
            # Numbers count up: a smaller one than that of any call came before all calls.
            trace.kernel("k", start_ns=start_ns, end_ns=at, correlation_id=number + 1)
            cut_ns += gap_ns if number else 0
        elif number >= early_n + 6:
            trace.kernel("k", start_ns=start_ns, end_ns=at, correlation_id=900 + number)
            open_ns += gap_ns
        else:
            launch = (start_ns - 9 * US, start_ns - 5 * US)
            trace.kernel(
                "k", start_ns=start_ns, end_ns=at, correlation_id=99 + number, launch=launch
            )
    path = trace.write_sqlite(tmp_path / "r.sqlite")
    device, rules = idle(path)
    assert device["before_capture_ns"] == cut_ns
    share = open_ns / (device["idle_ns"] - cut_ns)
    assert ("idle_without_launch" in rules) is (share >= 0.3 and open_ns >= 1_000 * US)
    assert idle_by_cause(quick("idle_gaps", path))["no_api"] == cut_ns + open_ns


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_idle_time_in_which_cut_graphs_may_run_is_not_recorded(tmp_path, seed):
    random = Random(seed)
    trace, cut_n = TraceBuilder(duration_ns=900 * US), random.randint(1, 4)
    for number in range(6):
        at = 40 * number * US
        nodes = [("n", at + 10 * US, at + 15 * US), ("n", at + 16 * US, at + 30 * US)]
        trace.graph_launch(nodes, launch=(at, at + 2 * US))
    for number in range(cut_n):
        trace.api(
            "cudaGraphLaunch_v10000", start_ns=(240 + number) * US, end_ns=(240 + number) * US + 9
        )
    path, last_ns = trace.write_sqlite(tmp_path / "r.sqlite"), 240 * US
    for words, known in (
        ((), True),
        (("--whole-capture",), False),
        (("--filter-time", "0us/500us"), False),
        (("--filter-time", "0us/230us"), True),
    ):
        tables = quick("idle_gaps", path, *words)
        (device,) = tables["devices"].to_dict("records")
        assert device["not_recorded_ns"] == (0 if known else device["window_end_ns"] - last_ns)
        assert ("not recorded" in answer(tables)) is not known
        assert tables["capture"][["kind", "count_n", "limits"]].to_numpy().tolist() == [
            ["cut_work", cut_n, False]
        ]


def test_work_cut_by_the_begin_does_not_depend_on_a_damaged_call(tmp_path):
    """One kernel runs as the capture begins, one is launched before the first range, one in it."""
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=7 * US)
    for at_ns in (8 * US, 18 * US):
        trace.kernel("k", start_ns=at_ns + 20, duration_ns=5, launch=(at_ns, at_ns + 10))
    trace.nvtx("step", 17 * US, 45 * US)
    # In no range, and it is not known when.
    trace.kernel("k", start_ns=35 * US, duration_ns=7, launch=(NULL_INT + 1, NULL_INT + 11))
    tables = quick("nvtx_phase_attribution", trace.write_sqlite(tmp_path / "r.sqlite"))
    parts = tables["attribution"].set_index("part")["gpu_ns"]
    expected = {"launch": 5, "before_capture": 7 * US, "cut_range": 5, "outside_ranges": 7}
    assert parts[parts > 0].to_dict() == expected


@pytest.mark.parametrize("damaged_ns", [50, NULL_INT, NULL_INT + 1, -(2**62), 2**53, 2**62])
def test_what_was_launched_before_the_capture_does_not_depend_on_a_damaged_call(damaged_ns):
    """One operation begins before any call, one was launched by a call, one begins late."""
    calls = Table(
        {
            "start_ns": np.array([20, damaged_ns, 1_000], dtype=np.int64),
            "correlation_id": np.array([7, 8, 9]),
        }
    )
    start_ns, ids = np.array([15, 30, 2_000]), np.array([-1, 7, -1])
    cut = launched_before(start_ns, ids, np.array([-1, 0, -1], dtype=np.int32), calls)
    assert cut.tolist() == [True, False, False]
