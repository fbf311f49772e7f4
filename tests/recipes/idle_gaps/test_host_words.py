"""What findings say of host threads: a reader of five steps, and who does not repeat."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from quick_run import quick, quick_run
from trace_builder import TraceBuilder

from nsys_llm.facts.timeline.rank_timeline import host_tracks
from nsys_llm.facts.timeline.step_lanes import LaneInputs, LaneWindow, rank_lanes
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.idle_gaps.findings.answer import answer
from nsys_llm.report.findings import Evidence
from nsys_llm.report.host_tables import host_tables
from nsys_llm.report.host_words import Waited, host_case, host_sentence
from nsys_llm.report.outputs import declared_frames
from nsys_llm.report.records import records
from nsys_llm.taxonomy.categories import load_rules
from nsys_llm.trace.host_part import HostModule, HostPart, HostState
from nsys_llm.trace.identity import Rank, RankKey

US = 1_000
PYTHON = "/usr/bin/python3.12"


def reader(steps_n=5):
    """Return steps of 1 ms: 600 us in `data`, 500 of these in `read`, off its core; a kernel."""
    trace = TraceBuilder().thread_switch(start_ns=0, goes_on=True)
    for step in range(steps_n):
        at = 1000 * step * US
        trace.nvtx(f"step {step}", at, at + 1000 * US).nvtx("data", at, at + 600 * US)
        trace.osrt("read", start_ns=at + 50 * US, end_ns=at + 550 * US)
        trace.thread_switch(start_ns=at + 60 * US, goes_on=False)
        trace.thread_switch(start_ns=at + 550 * US, goes_on=True)
        launch = at + 600 * US, at + 605 * US
        trace.kernel("k", start_ns=launch[1] + 1, end_ns=at + 900 * US, launch=launch)
    return trace


def states_of(tables):
    names = ("range", "state", "detail", "time_ns", "on_core_ns", "steps_n")
    return {tuple(row[name] for name in names) for row in records(tables["host_states"])}


def test_the_range_and_the_call_of_the_c_library_are_in_the_title(tmp_path):
    tables = quick("idle_gaps", reader().write_sqlite(tmp_path / "a.sqlite"))
    # Four gaps, from 900 to 1605 us: the first step's data is before the first kernel.
    assert states_of(tables) == {
        ("data", "os_call", "read", 2_000 * US, 40 * US, 5),
        ("data", "running", None, 400 * US, 400 * US, 5),
        ("step #", "running", None, 400 * US, 400 * US, 5),
        ("step #", "cuda_call", "cudaLaunchKernel", 20 * US, 20 * US, 5),
    }
    finding = next(row for row in records(tables["findings"]) if row["rule"] == "host_work")
    said = "Rank 0's host: 480 us a step in `data`, 83.3 % in `read`: its GPU idles "
    assert finding["title"].startswith(said)
    assert "prefetch" in finding["recommendation"]
    assert "--sample=process-tree" in finding["record"]


def test_garbage_collected_elsewhere_is_no_advice(tmp_path):
    trace = reader(11)
    for step in range(11):
        for at in range(4):
            collecting, launching = (1000 * step + 910 + at) * US, (1000 * step + 601 + at) * US
            trace.cpu_sample([("gc_collect_main", PYTHON)], start_ns=collecting)
            trace.cpu_sample([("cuLaunch", "/usr/lib/libcuda.so.1")], start_ns=launching)
    tables = quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite"))
    finding = next(row for row in records(tables["findings"]) if row["rule"] == "host_work")
    assert "83.3 % in `read`" in finding["title"]
    assert "prefetch" in finding["recommendation"]


def test_the_path_of_step_budget_says_the_same(tmp_path):
    tables = quick("step_budget", reader(9).write_sqlite(tmp_path / "a.sqlite"))
    classes = {
        row["name"]: round(row["path_ns"] * 9)
        for row in records(tables["ceilings"])
        if row["change"] == "class"
    }
    sums = tables["host_states"].groupby("cause")["time_ns"].sum().to_dict()
    assert sums.keys() == {"host_no_cuda", "launch_api", "launch_latency"}
    assert sums == {name: classes[name] for name in sums}
    title = next(row["title"] for row in records(tables["findings"]) if row["rule"] == "path_host")
    whole_us = sum(sums.values()) / 9 / US
    parts = "500 us of it in `read` in `data`, 351 us in `step #`"
    assert title == f"Rank 0's host: {whole_us:.0f} us a step, {parts}"


@pytest.mark.traces
def test_a_start_up_is_nothing_to_gain_and_few_samples_say_nothing(traces):
    tables = quick("idle_gaps", traces / "public" / "training_rtx3070ti.sqlite")
    said = answer(tables)
    assert "509 ms of the 589 ms of waiting for the host are in `Warm-up Step 1`: start-up" in said
    assert "start-up, nothing to gain later; 10 steps: 14.7 ms, 82.4 % running (too few" in said
    assert "python" not in said
    assert not [title for title in tables["findings"]["title"] if "tart-up" in title]
    wall = tables["wall"].groupby("wall_class")["share_pct"].sum()
    assert wall["start_up"] == pytest.approx(26.3, abs=0.05)


def waits(lead_us, step_us, *, slow_us=0, call_us=50, late_us=0):
    """Return 6 steps that wait, the first two longer, each with one launch and 400 us of work."""
    trace, at = TraceBuilder().thread_switch(start_ns=0, goes_on=True), 0
    for step in range(6):
        more = slow_us * (step < 2)
        trace.nvtx("step", at, at + (step_us + more) * US)
        launch = at + (lead_us + more) * US, at + (lead_us + more + call_us) * US
        start_ns = launch[1] + late_us * US
        trace.kernel("k", start_ns=start_ns, duration_ns=400 * US, launch=launch)
        at += (step_us + more) * US
    return trace


@pytest.mark.parametrize(
    ("trace", "title", "advice", "gain_us"),
    [
        # Begins of gaps to launch to start, us: 8,000 + 50 + 50 of a slow step; 4 times 500 + 50
        # + 50. The first launch is before the first gap.
        (
            waits(500, 1_000, slow_us=7_500, late_us=50),
            "late in `step`: its GPU idles 62.4 % meanwhile",
            "8.05 ms of the 10.5 ms is start-up",
            2_450,
        ),
        # Steps wait for long, too: 550 us each, beside 3,050 of a warm-up, of 7,650.
        (
            waits(500, 950, slow_us=2_500),
            "550 us a step in `step`, 90.9 % running: its GPU idles 68.6 % meanwhile "
            "(start-up 39.9 %)",
            "Move what the host does",
            2_200,
        ),
        # Few slow launches are not to be fewer.
        (waits(100, 2_000, call_us=1_400), "in `cudaLaunchKernel`", "driver lock", None),
    ],
)
def test_a_start_up_and_steps_that_wait_have_their_shares(tmp_path, trace, title, advice, gain_us):
    tables = quick("idle_gaps", trace.write_sqlite(tmp_path / "a.sqlite"))
    finding = next(row for row in records(tables["findings"]) if row["rule"] == "host_work")
    assert title in finding["title"]
    assert advice in finding["recommendation"]
    assert gain_us is None or finding["gain_ns"] == gain_us * US


COLUMNS = (
    *("rank", "device_id", "cause", "part", "range", "state", "detail", "time_ns", "steps_n"),
    *("on_core_ns", "module_class", "samples_n", "collecting_n", "period_ns", "user_mode"),
)


def sampled(counts, state="running", detail=None, time_ns=100, collecting_n=0, user_mode=True):
    row = {"rank": 0, "device_id": 0, "cause": "host_no_cuda", "part": "step", "range": "a"}
    row |= {"state": state, "detail": detail, "time_ns": time_ns, "steps_n": 10}
    of = {"collecting_n": collecting_n, "period_ns": 10, "user_mode": user_mode}
    modules = [{**row, **of, "module_class": name, "samples_n": n} for name, n in counts.items()]
    return Waited([{**row, "on_core_ns": 10 * sum(counts.values())}], modules)


def launching(counts, detail="cudaLaunchKernel", time_ns=6):
    """Return time in which a thread ran, and some of it in launch calls."""
    runs, calls = sampled(counts), sampled({}, "cuda_call", detail, time_ns)
    return Waited([*runs.states, *calls.states], runs.modules)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"python": 29}, "100.0 % running"),
        ({"python": 22, "driver": 8}, "100.0 % running, 73.3 % of its user-mode samples python"),
        ({"python": 20, "other": 10}, "100.0 % running"),  # 48.8 % or more
        (
            {"python": 30, "not_sampled": 10},
            "100.0 % running, 100.0 % of its user-mode samples python",
        ),
        ({"python": 30, "not_sampled": 11}, "100.0 % running"),
        ({"python": 11, "c_library": 10, "other": 10}, "100.0 % running"),  # most is in none
        ({"unresolved": 40}, "100.0 % running"),
    ],
)
def test_samples_say_what_ran_from_thirty_on_with_a_quarter_missing_at_most(counts, words):
    assert sampled(counts).words == words
    if "user-mode" in words:
        every = sampled(counts, user_mode=False)
        assert every.words == words.replace("user-mode samples", "samples")


@pytest.mark.parametrize(
    ("level", "kernel_n", "user_mode"),
    [
        # Any level but 2 decides, whatever was counted; at 2, and without one, the count.
        *((level, 0, False) for level in (-1, 0, 1)),
        (2, 0, True),
        (None, 0, True),
        (None, 1, False),
        # Root may.
        (2, 1, False),
        (4, 0, False),
    ],
)
def test_what_linux_allows_says_whether_samples_are_of_user_mode(level, kernel_n, user_mode):
    where = (0, 1, "host_no_cuda", "step", None, "running")
    modules = [HostModule(*where, "python", 30, 0), HostModule(*where, "kernel", kernel_n, 0)]
    part = HostPart((), tuple(modules[: 1 + kernel_n]), period_ns=100, steps_n=10)
    facts = SimpleNamespace(sample_period_ns=0, paranoid_level=level)
    columns = host_tables([(Rank(RankKey("a", 0), 0, "0", None, facts), part)])["host_modules"]
    assert columns["user_mode"].tolist() == (1 + kernel_n) * [user_mode]


@pytest.mark.parametrize(
    ("ranges_n", "on_core_ns", "sampled_n", "each_n", "said"),
    [
        (60, 145, 60, 1, "100.0 % running"),  # 31 % are missing, and 1.45 are rounded to 1
        (400, 49, 40, 1, "100.0 % running"),  # 80 %, and each 0.49 to 0
        (80, 100, 40, 2, "100.0 % running, 100.0 % of its user-mode samples python"),  # none
    ],
)
def test_what_is_missing_is_counted_over_all_ranges(ranges_n, on_core_ns, sampled_n, each_n, said):
    where = [(0, 1, "host_no_cuda", "step", f"r{at}", "running") for at in range(ranges_n)]
    part = HostPart(
        tuple(HostState(*of, None, on_core_ns, on_core_ns, None, 0) for of in where),
        tuple(HostModule(*of, "python", each_n, 0) for of in where[:sampled_n]),
        period_ns=100,
        steps_n=10,
    )
    rank = Rank(RankKey("a", 0), 0, "0", None, None)
    tables = declared_frames(load_manifest("idle_gaps"), host_tables([(rank, part)]))
    assert Waited.of(tables, (0, 0)).words == said


def said_of(states):
    """Return the sentence on states of one GPU: time in ns, and samples by class, of each."""
    parts = [sampled(counts, state, time_ns=ns) for state, (ns, counts) in states.items()]
    tables = {
        "host_states": [row for part in parts for row in part.states],
        "host_modules": [row for part in parts for row in part.modules],
    }
    frames = {name: pd.DataFrame(rows, columns=COLUMNS) for name, rows in tables.items()}
    return host_sentence(frames, (0, 0))


def test_samples_of_another_state_are_not_counted():
    said = said_of({"running": (10 * US, {"python": 4}), "cuda_call": (US, {"driver": 1})})
    assert (
        said
        == " 10 steps: 11 us, 90.9 % running (too few samples to show the code: 4 of at least 30)."
    )


def test_what_is_not_known_is_no_sentence():
    assert said_of({"unknown": (9 * US, {}), "cuda_call": (US, {})}) == ""


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({"python": 29}, " (too few samples to show the code: 29 of at least 30)"),
        (
            {"python": 80, "not_sampled": 64},
            " (too few samples to show the code: 80 of at least 108)",
        ),
        ({"python": 15, "other": 14, "driver": 2}, ""),
    ],
)
def test_why_samples_say_nothing_is_said(counts, why):
    assert said_of({"running": (US, counts)}).endswith(f"running{why}.")


@pytest.mark.parametrize(
    ("waited", "advice"),
    [
        (sampled({}, "os_call", "poll"), "prefetch"),
        (sampled({"python": 40}, "cuda_call", "cudaFree", collecting_n=40), None),
        (sampled({"python": 40}, collecting_n=24), None),  # 44 % or more
        (sampled({}, "cuda_call", "cudaLaunchKernel"), "Launch less often: CUDA graphs"),
        (sampled({}, "cuda_call", "cuLaunchKernelEx"), "Launch less often: CUDA graphs"),
        (sampled({"driver": 40}, "cuda_call", "cudaGraphLaunch"), "CUDA graphs already"),
        (sampled({"driver": 40}, "cuda_call", "cudaLaunchHostFunc"), None),
        (sampled({"driver": 40}, "cuda_call", "cudaStreamSynchronize"), None),
        (sampled({}, "os_call", "interpreter lock"), "separate processes"),
        (launching({"python": 40}), "CUDA graphs"),
        (launching({"python": 22, "other": 8}), "CUDA graphs"),  # 55.6 % or more
        (launching({"python": 20, "other": 10}), None),  # 48.8 % or more
        (launching({"python": 40}, time_ns=4), None),  # it launches hardly anything
        (launching({"python": 40}, detail="cudaGraphLaunch"), None),  # graphs already
        (sampled({}, "os_call", "futex"), "another thread or process"),
        (sampled({}, "os_call", "pthread_cond_timedwait"), "another thread or process"),
        (sampled({}, "os_call", "write"), None),
        (sampled({"python": 40}, collecting_n=30), "gc.freeze"),
        (sampled({}, "off_core"), None),
        (sampled({"framework": 40}), None),
    ],
)
def test_advice_follows_from_what_it_did_most(waited, advice):
    said = waited.advice
    assert said is None if advice is None else advice in said


def test_timelines_have_a_line_of_the_thread_that_the_gpu_waited_for(tmp_path):
    seen = []

    def keep(view):
        rows = LaneInputs.of(view)
        window = LaneWindow(1, 0, 1_900 * US, 2_900 * US, 1, {})
        seen.append([lane.host for lane in rank_lanes(rows, [window], load_rules("generic"))])
        seen.append(list(host_tracks(view, np.array([[1_000 * US, 1_300 * US]]))))

    quick_run("idle_gaps", reader().write_sqlite(tmp_path / "a.sqlite"), keep=keep)
    (lane,), (track,) = seen
    told = Counter()
    for at, ns in zip(
        lane.segments.state.tolist(), lane.segments.time_ns.sum(axis=1).tolist(), strict=True
    ):
        told[lane.states[at]] += ns
    # One gap, from 1900 to 2605 us; the launch takes 5 of them.
    assert told == {"running": 200 * US, "os_call": 500 * US, "cuda_call": 5 * US}
    names = [track.texts[code] for code in track.name.tolist()]
    lengths = (track.end_ns - track.start_ns).tolist()
    assert [*dict.fromkeys(names)] == ["running", "os_call read", "cuda_call cudaLaunchKernel"]
    assert sum(lengths) == 705 * US


@pytest.mark.parametrize(("most_ns", "where", "step_ns"), [(40, "", 11), (80, " in `a`", 8)])
def test_a_range_of_steps_is_named_if_it_has_half_of_what_the_gpu_idles(most_ns, where, step_ns):
    times = {"a": most_ns, "b": (110 - most_ns) // 2, "c": (111 - most_ns) // 2}
    same = {"rank": 0, "part": "step", "state": "running", "detail": None, "steps_n": 10}
    waited = Waited([{**same, "range": name, "time_ns": ns} for name, ns in times.items()])
    span = Evidence("wall", (("rank", 0),), "span_ns", 1_000, "span_ns")
    case, fields, numbers = host_case(waited, 120, span)
    assert (case, fields["host_where"]) == ("states", where)
    assert numbers[0].value == step_ns
    assert (("range", "a") in numbers[0].where) == bool(where)
