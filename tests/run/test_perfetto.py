"""Timelines for Perfetto: planted rows come back exactly, and add up to the tables."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from clock_world import EPOCH_NS, KERNEL
from command_line import run
from hostile import write_hostile
from perfetto_file import NAME, read_file
from quick_run import quick, quick_part
from rendered import HOSTILE_NAMES
from results import analyse, idle_by_cause, read_frames
from trace_builder import TraceBuilder

from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.report.perfetto import TracedRank, write_trace
from nsys_llm.run import perfetto
from nsys_llm.run.perfetto import write_perfetto
from nsys_llm.testing.demo import write_demo
from nsys_llm.trace.timeline import RankTimeline

ALL = ("--perfetto", "--perfetto-window", "all")
STEP_NS = 10_000
AHEAD_NS = 5_000_001
#: Length of the first kernel of each step.
LENGTHS_NS = (2_000, 2_000, 2_002, 2_001, 7_000, 2_000)


def planted(path, *, system_clock_ns=1_000_000_000_000, hostname="node1"):
    """Write steps of two kernels that overlap in part, a copy and a fill; return path and rows."""
    builder = TraceBuilder(system_clock_ns=system_clock_ns, hostname=hostname)
    rows = []
    for step, length_ns in enumerate(LENGTHS_NS):
        at_ns = 1_001 + STEP_NS * step
        builder.nvtx("step", at_ns, at_ns + 900)
        rows.append(("range", "step", at_ns, at_ns + 900))
        for name, begin_ns, took_ns, stream in (
            ("first", 1_000, length_ns, 7),
            ("second", 1_500, length_ns, 7),
            ("other", 1_100, 333, 8),
        ):
            launch = at_ns + begin_ns // 10, at_ns + begin_ns // 10 + 30
            start_ns = at_ns + begin_ns
            builder.kernel(
                name, start_ns=start_ns, duration_ns=took_ns, launch=launch, stream_id=stream
            )
            rows.append(("kernel", name, start_ns, start_ns + took_ns))
            rows.append(("call", "cudaLaunchKernel_v7000", *launch))
        builder.memcpy("HtoD", start_ns=at_ns + 950, duration_ns=40, size_bytes=1 << 20)
        builder.memset(start_ns=at_ns + 990, duration_ns=0, size_bytes=64)
        rows.append(("memcpy", "memcpy HtoD", at_ns + 950, at_ns + 990))
        rows.append(("memset", "memset", at_ns + 990, at_ns + 990))
    builder.write_sqlite(path)
    return rows


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two ranks of one host, the second one's capture started later, and their whole timeline."""
    folder = tmp_path_factory.mktemp("pair")
    rows = [
        planted(folder / f"rank{rank}.sqlite", system_clock_ns=10**12 + rank * AHEAD_NS)
        for rank in (0, 1)
    ]
    out = analyse(folder / "out", folder, options=ALL, recipe="llm_hotspots")
    return folder, out, rows


RECORDED = ("range", "kernel", "call", "memcpy", "memset")


def test_every_row_is_there_once_to_the_nanosecond_on_one_axis(pair):
    _, out, rows = pair
    shown = read_file(out)
    for rank, shift_ns in enumerate((0, AHEAD_NS)):
        wanted = Counter(
            (kind, name, s + shift_ns, e + shift_ns) for kind, name, s, e in rows[rank]
        )
        slices = shown.of(*RECORDED, process=f"rank {rank} ")
        assert Counter(slot.row for slot in slices) == wanted
    assert shown.remarks == []


def test_slices_of_one_line_nest_and_streams_stay_apart(pair):
    shown = read_file(pair[1])
    lines = defaultdict(list)
    for slot in shown.slices:
        lines[slot.pid, slot.tid].append(slot)
    for slices in lines.values():
        for at, slot in enumerate(slices):
            for other in slices[:at]:
                assert not other.start_ns < slot.start_ns < other.end_ns < slot.end_ns
    kernels = {slot.name: slot.track for slot in shown.of("kernel", process="rank 0 ")}
    assert kernels["other"] == "GPU 0 stream 8"
    assert {kernels["first"], kernels["second"]} <= {"GPU 0 stream 7", "GPU 0 stream 7 (2)"}
    assert kernels["first"] != kernels["second"]


def test_arrows_lead_from_each_launch_to_its_operation_with_ids_of_their_own(pair):
    shown = read_file(pair[1])
    calls, kernels = shown.of("call"), shown.of("kernel")
    assert all(call.leaves for call in calls)
    assert len({call.leaves for call in calls}) == len(calls) == len(kernels)
    of_call = {call.leaves: call for call in calls}
    for kernel in kernels:
        call = of_call[kernel.arrives]
        assert call.pid == kernel.pid
        begin_ns = {"first": 900, "second": 1_350, "other": 990}[kernel.name]
        assert kernel.start_ns - call.start_ns == begin_ns
    assert not any(slot.arrives for slot in shown.of("memcpy", "memset"))


@pytest.mark.nightly
def test_sums_are_those_of_the_tables(pair):
    folder, out, _ = pair
    tables, shown = read_frames(out), read_file(out)
    for rank in (0, 1):
        coverage = tables["coverage"].query("rank == @rank").set_index("op")
        for op in ("kernel", "memcpy", "memset"):
            slices = shown.of(op, process=f"rank {rank} ")
            assert sum(slot.end_ns - slot.start_ns for slot in slices) == coverage.total_ns[op]
            assert len(slices) == coverage.total_n[op]
        wall = tables["wall"].query("rank == @rank").groupby("wall_class").time_ns.sum()
        _assert_sums(shown.of("wall", process=f"rank {rank} "), wall)
    reports = [folder / f"rank{rank}.sqlite" for rank in (0, 1)]
    causes = idle_by_cause(quick("idle_gaps", *reports))
    gaps = shown.of("gap")
    sums = Counter()
    for gap in gaps:
        assert sum(gap.args.values()) == gap.end_ns - gap.start_ns
        assert gap.args[f"{gap.name}_ns"] == max(gap.args.values())
        sums.update(gap.args)
    assert sums == {f"{cause}_ns": n for cause, n in causes.items() if n}
    assert len(sums) > 1


def _assert_sums(slices, wanted):
    sums = Counter()
    for slot in slices:
        sums[slot.name] += slot.end_ns - slot.start_ns
    assert sums == {name: time_ns for name, time_ns in wanted.items() if time_ns}


def test_counters_say_at_each_nanosecond_what_ran_and_what_waited(pair):
    shown = read_file(pair[1])
    process = shown.processes[1]
    ops = shown.of("kernel", "memcpy", "memset", process="rank 0 ")
    calls = {call.leaves: call for call in shown.of("call", process="rank 0 ")}
    waits = [(calls[op.arrives].start_ns, op.start_ns) for op in ops if op.arrives]
    for name, spans in (
        ("GPU 0 running", [(op.start_ns, op.end_ns) for op in ops]),
        ("GPU 0 queue depth", waits),
    ):
        at_ns, values = map(np.array, zip(*shown.counters[process, name], strict=True))
        assert (np.diff(at_ns) > 0).all()
        assert (np.diff(values) != 0).all()
        every_ns = np.arange(at_ns[0], STEP_NS * len(LENGTHS_NS) + 3_000)
        open_n = sum(((every_ns >= start) & (every_ns < end)).astype(int) for start, end in spans)
        counted = values[np.searchsorted(at_ns, every_ns, side="right") - 1]
        assert (counted == open_n).all()
        assert open_n.max() == {"GPU 0 running": 2, "GPU 0 queue depth": 3}[name]


@pytest.mark.slow
def test_too_many_events_are_left_out_and_told(pair, tmp_path, monkeypatch):
    folder, _, rows = pair
    monkeypatch.setattr(perfetto, "MOST_EVENTS", 120)
    out = tmp_path / "out"
    ended = run("--mode", "none", *ALL, "--output", out, "--input", folder / "rank0.sqlite")
    shown = read_file(out)
    assert 60 < len(shown.slices) + sum(map(len, shown.counters.values())) <= 120
    left_n = len(rows[0]) - len(shown.of(*RECORDED))
    assert left_n > 0
    (remark,) = shown.remarks
    assert remark.startswith(f"{left_n} operations, calls and ranges left out")
    assert f"{NAME}: {remark}." in ended.said


@pytest.mark.slow
def test_all_is_shown_if_it_fits_else_slices_mark_what_is_not(pair, tmp_path, monkeypatch):
    folder, _, rows = pair
    words = ("--mode", "none", "--perfetto", "--input", folder / "rank0.sqlite", "--output")
    assert run(*words, tmp_path / "all").code == 0
    shown = read_file(tmp_path / "all")
    assert sorted(piece.row for piece in shown.of(*RECORDED)) == sorted(rows[0])
    assert shown.of("absent") == []
    monkeypatch.setattr(perfetto, "MOST_EVENTS", 200)
    assert run(*words, tmp_path / "part").code == 0
    shown = read_file(tmp_path / "part")
    absent = sorted((piece.start_ns, piece.end_ns) for piece in shown.of("absent"))
    assert {piece.name for piece in shown.of("absent")} == {"not in this file"}
    assert absent[0][0] == min(start_ns for *_, start_ns, _ in rows[0])
    # Rows start inside of a mark or are there.
    there = {piece.row for piece in shown.of(*RECORDED)}
    for row in rows[0]:
        assert (row in there) or any(start <= row[2] < end for start, end in absent)
    assert 0 < len(there) < len(rows[0])
    begins = [piece.start_ns for piece in shown.of("kernel")]
    assert not [at for at in begins if any(low <= at < high for low, high in absent)]


@pytest.mark.slow
def test_of_many_ranks_those_of_the_findings_are_shown_or_those_that_are_named(tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(10):
        planted(folder / f"rank{rank}.sqlite", hostname=f"node{rank}")
    out = analyse(tmp_path / "out", folder, options=["--perfetto"])
    shown = read_file(out)
    assert len(shown.processes) == 8
    assert shown.remarks == ["2 ranks left out (select others with --ranks)"]
    assert all(name.endswith(", clock as exact as NTP") for name in shown.processes.values())
    named = analyse(tmp_path / "named", folder, options=["--perfetto", "--ranks", "0-8"])
    assert len(read_file(named).processes) == 9


#: When each rank fills memory, in its own clock.
EARLY_NS = 40_000


def write_meetings(folder, rng, *, later_ns, meet_ns, ppm=0.0, wrong_ns=1_000_000, scatter_ns=900):
    """Write two ranks on two hosts that leave collectives together, one clock wrong and fast."""
    for rank in (0, 1):
        epoch_ns = EPOCH_NS + rank * (later_ns + wrong_ns)
        builder = TraceBuilder(hostname=f"node{rank}", utc_epoch_ns=epoch_ns)
        ends_ns = meet_ns - rank * later_ns + rng.integers(0, scatter_ns, meet_ns.size)
        starts_ns = ends_ns - rng.integers(20_000, 60_000, meet_ns.size)
        fast = 1 + rank * ppm * 1e-6
        for start_ns, end_ns in zip(starts_ns.tolist(), ends_ns.tolist(), strict=True):
            builder.kernel(KERNEL, start_ns=round(start_ns * fast), end_ns=round(end_ns * fast))
        builder.memset(start_ns=EARLY_NS, duration_ns=10, size_bytes=1)
        builder.write_sqlite(folder / f"rank{rank}.sqlite")
    return [folder / f"rank{rank}.sqlite" for rank in (0, 1)]


def ends_of(shown):
    return (
        np.sort([slot.end_ns for slot in shown.of("kernel", process=f"rank {rank} ")])
        for rank in (0, 1)
    )


@pytest.mark.slow
@pytest.mark.nightly("-6000000-step_budget", "-6000000-tail_stats", "2000000-tail_stats")
@pytest.mark.parametrize("recipe", ["tail_stats", "step_budget"])
@pytest.mark.parametrize("later_ns", [2_000_000, -6_000_000])
def test_ranks_that_meet_stand_on_one_axis_though_their_hosts_clocks_are_wrong(
    tmp_path, later_ns, recipe
):
    rng = np.random.default_rng(later_ns % 1_000)
    meet_ns = 5_000_000 + np.cumsum(rng.integers(150_000, 250_000, 60))
    paths = write_meetings(tmp_path, rng, later_ns=later_ns, meet_ns=meet_ns)
    shown = read_file(analyse(tmp_path / "out", *paths, options=ALL, recipe=recipe))
    left, right = ends_of(shown)
    assert left.size == right.size == meet_ns.size
    assert np.abs(left - right).max() < 2 * 900
    assert ", clock within " in shown.processes[2]
    assert ", clock within " not in shown.processes[1]
    # Perfetto drops what is before 0: that is where the capture that began first begins.
    early = {slot.process.split()[1]: slot.start_ns for slot in shown.of("memset")}
    assert early["0" if later_ns > 0 else "1"] == EARLY_NS
    assert min(slot.start_ns for slot in shown.slices) >= 0
    assert min(at_ns for changes in shown.counters.values() for at_ns, _ in changes) >= 0


@pytest.mark.nightly
@pytest.mark.parametrize("window", ["all", "6s/9s"])
def test_a_clock_that_runs_fast_is_put_right_over_all_the_time(tmp_path, window):
    rng = np.random.default_rng(7)
    meet_ns = 5_000_000 + np.cumsum(rng.integers(18_000_000, 22_000_000, 700))
    assert meet_ns[-1] > 12_000_000_000
    paths = write_meetings(tmp_path, rng, later_ns=2_000_000, meet_ns=meet_ns, ppm=20.0)
    out = analyse(
        tmp_path / "out",
        *paths,
        options=["--perfetto", "--perfetto-window", window],
        recipe="tail_stats",
    )
    (clock,) = read_frames(out)["rank_clocks"].query("rank == 1").itertuples()
    assert clock.rate_ppm == pytest.approx(20.0, abs=0.1)
    shown = read_file(out)
    left, right = ends_of(shown)
    assert left.size == right.size > 100
    apart_ns = np.abs(left - right)
    # 20 ppm are 240 us at the end of it.
    assert apart_ns.max() < 2 * 900
    if window == "all":
        assert lower_median(apart_ns) <= clock.residual_ns


@pytest.mark.slow
def test_hostile_names_stay_text(tmp_path):
    write_hostile(tmp_path / "ranks")
    out = tmp_path / "out"
    run(
        "--mode",
        "none",
        "--allow-missing-ranks",
        *ALL,
        "--output",
        out,
        "--input",
        tmp_path / "ranks",
    )
    shown = read_file(out)
    names = {slot.name for slot in shown.of("kernel")}
    assert {name for name in HOSTILE_NAMES if len(name) < 1_000} <= names
    assert all(len(slot.name) <= 1_000 for slot in shown.slices)


@pytest.mark.slow
def test_both_sides_of_a_comparison_are_shown(pair, tmp_path):
    folder, _, _ = pair
    sides = ["--baseline", str(folder / "rank0.sqlite"), "--allow-missing-ranks"]
    out = analyse(
        tmp_path / "out", folder / "rank1.sqlite", options=[*sides, *ALL], recipe="trace_diff"
    )
    names = [name.split(" (")[0] for name in read_file(out).processes.values()]
    assert sorted(names) == ["baseline rank 0", "input rank 1"]


@pytest.mark.slow
def test_a_profile_that_is_replaced_between_the_reads_is_in_no_timeline(tmp_path):
    write_demo(tmp_path, scale=0.02)
    ranks, other = tmp_path / "after", tmp_path / "baseline" / "rank1.sqlite"
    part, said = quick_part("tail_stats", ranks), []
    console = SimpleNamespace(warn=said.append, note=said.append)
    os.replace(other, ranks / "rank1.sqlite")
    write_perfetto(tmp_path, part, console)
    shown = {name.split(" (")[0] for name in read_file(tmp_path).processes.values()}
    assert f"{NAME}: rank1.sqlite: changed since it was first read; run again." in said
    assert shown == {"rank 0", "rank 2", "rank 3"}


def test_ranks_stand_in_their_order_however_they_are_read(tmp_path):
    nothing = RankTimeline((), ())
    ranks = [TracedRank(number, f"rank {number}", abs, nothing) for number in (3, 1, 2)]
    write_trace(tmp_path / NAME, ranks, [])
    assert read_file(tmp_path).processes == {n: f"rank {n}" for n in (1, 2, 3)}


def test_a_window_without_the_flag_is_an_error(pair, tmp_path):
    words = ["--mode", "none", "--perfetto-window", "all", "--output", tmp_path / "out"]
    ended = run(*words, "--input", pair[0] / "rank0.sqlite")
    assert ended.code == 2
    assert "--perfetto-window says what --perfetto shows; add --perfetto." in " ".join(ended.said)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_window_in_which_nothing_was_recorded_is_told(pair, tmp_path):
    out = tmp_path / "out"
    words = ["--perfetto", "--perfetto-window", "900s/901s", "--output", out, "--input", pair[0]]
    ended = run("--mode", "none", *words)
    assert ended.code == 0
    shown = read_file(out)
    assert shown.slices == []
    assert shown.remarks == ["--perfetto-window is outside the recording of 2 ranks"]
    assert f"{NAME}: {shown.remarks[0]}." in ended.said
