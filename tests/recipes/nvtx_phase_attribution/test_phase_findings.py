"""Findings of nvtx_phase_attribution: when they fire, on what evidence, and when they do not."""

from __future__ import annotations

import pytest
from gain_checks import check_findings
from phase_run import RECIPE
from planted import frame_of
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.facts.nvtx.attributed_ops import METHODS, NO_RANGE
from nsys_llm.facts.phases.attribution_coverage import PARTS
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.nvtx_phase_attribution.findings.answer import answer, caveats
from nsys_llm.recipes.nvtx_phase_attribution.findings.answer import findings as unpriced
from nsys_llm.report.prices.pricing import priced


def findings(tables):
    return priced(unpriced(tables), tables)


MS = 1_000_000


def tables_with(**tables):
    """Return tables with the given rows, the others empty."""
    names = [table.file for table in load_manifest(RECIPE).writes]
    return {name: frame_of(name, tables.get(name, []), RECIPE) for name in names}


def rules(**tables):
    return {finding.rule: finding for finding in findings(tables_with(**tables))}


def phase(name="decode", gpu_ns=90 * MS, gpu_pct=90.0, **others):
    row = {"phase": name, "gpu_ns": gpu_ns, "gpu_pct": gpu_pct, "work_ns": gpu_ns, **others}
    return {"mapped": name not in ("unmapped", "no_range", "no_api"), "instances_n": 9, **row}


def walls(*gpus, span_ns=1_000 * MS):
    """Return the table wall: for each GPU its rank, device, and time by class."""
    return [
        {"rank": rank, "device_id": device, "wall_class": name, "time_ns": ns, "span_ns": span_ns}
        for rank, device, times in gpus
        for name, ns in times.items()
    ]


def rank_phase(rank, work_ns, **others):
    row = {"rank": rank, "file": f"rank{rank}", "phase": "decode", "ops_n": 7}
    return {**row, "gpu_ns": work_ns, "work_ns": work_ns, "kernel_ns": work_ns, **others}


def idle_before(idle_ns, *, mapped=True, span_ns=100 * MS, steps=()):
    name = "sampling" if mapped else "unmapped"
    idle = {"phase": name, "idle_ns": 2 * idle_ns, "before_ns": idle_ns, "gpu_ns": 10 * MS}
    return rules(
        phases=[phase(name, 10 * MS, 5.0)],
        phase_idle=[idle],
        rank_phases=[
            *(rank_phase(rank, 5 * MS, phase=name, idle_ns=idle_ns // (4 - rank))
              for rank in (2, 3)),
            *(rank_phase(rank, 5 * MS, phase="no_range", idle_ns=40 * MS - idle_ns // (4 - rank))
              for rank in (2, 3)),
        ],
        wall=walls(*((rank, 0, {"idle": 40 * MS}) for rank in (2, 3)), span_ns=span_ns),
        steps=list(steps),
    ).get("idle_before_phase")  # fmt: skip


def test_idle_time_before_a_phase_is_that_of_the_gpu_that_waits_longest():
    finding = idle_before(10 * MS)
    assert (finding.rank, finding.severity, finding.ranks) == (3, "medium", (2, 3))
    assert (finding.price.bound_ns, finding.price.about_ns) == (10 * MS, None)
    assert "50.0 % of this idle time" in finding.details
    assert "idle_gaps" in finding.recommendation


def test_idle_time_before_a_phase_is_shown_in_the_step_that_has_most_of_it():
    columns = ("rank", "phase", "idle_inside_ns", "gpu_start_ns", "gpu_end_ns", "warmup")
    cells = [
        (3, "decode", 9, 100, 200, False),
        (3, "sampling", 5, 300, 400, False),
        (3, "sampling", 7, 500, 600, False),
        (3, "sampling", None, None, None, False),
        (2, "sampling", 8, 700, 800, False),
    ]
    steps = [dict(zip(columns, values, strict=True)) for values in cells]
    assert idle_before(10 * MS, steps=steps).window_ns == (500, 600)
    # A phase that is the larger part of no step: any step of the rank.
    assert idle_before(10 * MS, steps=steps[:1] + steps[4:]).window_ns == (100, 200)
    assert idle_before(10 * MS).window_ns is None


def test_little_idle_time_and_that_of_no_phase_is_no_finding():
    assert idle_before(MS - 1).severity is None
    assert idle_before(10 * MS, mapped=False) is None


STEP = {"rank": 1, "phase": "decode", "warmup": False, "gpu_ns": 8 * MS}


def steps_of(*lengths, **others):
    """Return steps one after the other, by their lengths."""
    steps, at = [], 0
    for number, length in enumerate(lengths):
        window = {"start_ns": at, "end_ns": at + length, "ns": length, "own_ns": 8 * MS}
        window |= {"other_ns": 0, "idle_ns": length - 8 * MS}
        steps.append(
            {**STEP, "step": number, **{f"window_{k}": v for k, v in window.items()}, **others}
        )
        at += length
    return steps


def slow_steps(steps, span_ns=1_000 * MS):
    classes = {"compute": span_ns // 2, "idle": span_ns // 2}
    return rules(
        steps=steps,
        rank_steps=[{"rank": 1, "unit": "step", "counted": True, "steps_n": len(steps)}],
        wall=walls((1, 0, classes), span_ns=span_ns),
    ).get("slow_steps")


def test_slow_steps_gain_what_they_take_beyond_the_median():
    finding = slow_steps(steps_of(*[10 * MS] * 15, 30 * MS, 40 * MS))
    assert finding.price.gain_ns == 50 * MS
    assert (finding.severity, finding.rank) == ("medium", 1)
    assert finding.price.tail_pct == 75.0
    assert finding.window_ns == (180 * MS, 220 * MS)
    assert "4.0 times" in finding.title
    assert finding.details == (
        "Of 17 steps on rank 1 the median takes 10 ms, the worst, step 16, 40 ms. For 32 ms of it, "
        "2 ms in the median, the GPU was idle. 2 steps took more than 2 times the median."
    )
    assert finding.price.wall_classes == ("idle",)


def test_a_rare_slow_step_is_a_tail():
    finding = slow_steps(steps_of(*[10 * MS] * 15, 25 * MS), span_ns=2_000 * MS)
    # 0.75 % of the time, and 60 % of that step.
    assert (finding.severity, finding.price.tail_pct) == ("tail", 60.0)
    # Of a hundred, less is no other kind of step.
    finding = slow_steps(steps_of(*[10 * MS] * 100, 16 * MS), span_ns=2_000 * MS)
    assert (finding.severity, finding.price.tail_pct) == ("tail", 37.5)


def planted(cause):
    """Return 16 steps of 10 ms, of which one takes 40 ms for some cause; 2 ms between them."""
    trace, at = TraceBuilder(), MS
    for number in range(16):
        slow = 30 * MS * (number == 12)
        own_ns = 9 * MS + slow * (cause == "work")
        trace.nvtx(f"decode_{number}", at, at + 10 * MS + slow)
        trace.kernel("gemm", start_ns=at + MS // 2, duration_ns=4 * MS, launch=(at, at + 1_000))
        start_ns = at + MS // 2 + 4 * MS + slow * (cause != "work")
        trace.kernel("gemm", start_ns=start_ns, duration_ns=own_ns - 4 * MS,
                     launch=(at + 2_000, at + 3_000))  # fmt: skip
        if slow and cause == "other":
            launch = (at - 500_000, at - 400_000)
            trace.nvtx("checkpoint", at - MS, at + 35 * MS, tid=9)
            trace.kernel("pack", start_ns=at + 4_600_000, duration_ns=29_800_000, launch=launch,
                         stream_id=9, tid=9)  # fmt: skip
        at += 12 * MS + slow
    return trace


@pytest.mark.parametrize(
    ("cause", "words", "wall_classes"),
    [
        (
            "work",
            "Its own work took longer: 39 ms, 9 ms in the median.",
            ("compute", "communication", "copies"),
        ),
        (
            "other",
            "For 29.8 ms of it, 0 ns in the median, the GPU ran work launched outside the "
            "steps, mostly `pack` launched in `checkpoint`.",
            ("compute", "communication", "copies"),
        ),
        ("idle", "For 31 ms of it, 1 ms in the median, the GPU was idle.", ("idle",)),
    ],
)
def test_a_slow_step_says_what_its_gpu_did_in_it(cause, words, wall_classes, tmp_path):
    tables = quick(RECIPE, planted(cause).write_sqlite(tmp_path / "rank0.sqlite"))
    (finding,) = [finding for finding in findings(tables) if finding.rule == "slow_steps"]
    assert words in finding.details
    assert finding.price.wall_classes == wall_classes
    gained_ns = 29_800_000 if cause == "other" else 30 * MS
    assert finding.price.gain_ns == gained_ns
    check_findings([finding], tables)
    steps = tables["steps"]
    parts = steps[["window_own_ns", "window_other_ns", "window_idle_ns"]].sum(axis=1)
    assert parts.tolist() == steps["window_ns"].tolist()


@pytest.mark.parametrize("ahead", [False, True], ids=["no requests", "host ahead"])
def test_what_is_between_steps_makes_none_slow(ahead, tmp_path):
    trace = TraceBuilder()
    for number in range(16):
        # Ranges of 1 ms on the host, while the GPU works 10 ms on each; or one pause of a server.
        at = MS + number * (MS if ahead else 12 * MS) + 200 * MS * (number > 9 and not ahead)
        runs_ns = 2 * MS + number * 10 * MS if ahead else at + 1_000
        trace.nvtx(f"decode_{number}", at, at + (MS if ahead else 10 * MS))
        trace.kernel("gemm", start_ns=runs_ns, duration_ns=9_999_000, launch=(at, at + 1_000))
    tables = quick(RECIPE, trace.write_sqlite(tmp_path / "rank0.sqlite"))
    begins, ends = (tables["steps"][f"window_{edge}_ns"].tolist() for edge in ("start", "end"))
    assert len(ends) == 16
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert "slow_steps" not in {finding.rule for finding in findings(tables)}


@pytest.mark.parametrize(
    "steps",
    [
        steps_of(*[10 * MS] * 15, 20 * MS),
        steps_of(*[10 * MS] * 100, 15 * MS),
        steps_of(*[10 * MS] * 8, 30 * MS),
        [*steps_of(30 * MS, warmup=True), *steps_of(*[10 * MS] * 15)],
        [*steps_of(30 * MS, full=False), *steps_of(*[10 * MS] * 15)],
    ],
    ids=["twice", "1.5 times", "few steps", "warm-up", "cut"],
)
def test_steps_that_are_not_slow(steps):
    assert slow_steps(steps) is None


def lost(part, gpu_ns, rank=0, gpu_pct=None):
    known = PARTS[part]
    return {
        **{"rank": rank, "file": f"rank{rank}", "part": part, "attributed": known.attributed},
        **{"gpu_ns": gpu_ns, "gpu_pct": gpu_pct, "meaning": known.meaning},
        "capture": known.capture,
    }


def test_low_coverage_names_the_largest_loss_and_the_flag_for_it():
    rows = [lost("launch", 69), lost("outside_ranges", 11), lost("no_call", 20)]
    finding = rules(attribution=rows)["low_range_coverage"]
    assert "69.0 %" in finding.title
    assert PARTS["no_call"].meaning in finding.details
    assert finding.record == "--trace=cuda"
    assert "low_range_coverage" not in rules(attribution=[lost("launch", 70), lost("no_call", 30)])


def test_threads_that_mark_nothing_are_told_with_pytorch_s_flag():
    finding = rules(attribution=[lost("launch", 90), lost("unmarked_thread", 10, 1, 5.0)])
    assert finding["unmarked_thread"].title.startswith("Rank 1: 5.0 % of the GPU time")
    assert finding["unmarked_thread"].impact_ns == 10
    assert "--pytorch=autograd-nvtx" in finding["unmarked_thread"].record
    rows = [lost("launch", 960), lost("unmarked_thread", 40, gpu_pct=4.0)]
    assert "unmarked_thread" not in rules(attribution=rows)


def test_ranges_of_no_phase_ask_for_a_map_and_name_candidates():
    tree = {"label": "step #", "depth": 0, "inclusive_ns": 5, "inclusive_pct": 80.0}
    finding = rules(phases=[phase("unmapped", gpu_pct=50.0)], range_tree=[tree])["unmapped_ranges"]
    assert "`step #` 80.0 %" in finding.details
    assert "--phase-map" in finding.recommendation
    assert "unmapped_ranges" not in rules(phases=[phase("unmapped", gpu_pct=49.9)])


def test_every_way_of_attribution_has_a_meaning():
    assert tuple(PARTS)[:NO_RANGE] == METHODS[:NO_RANGE]
    assert all(part.attributed == (name in METHODS) for name, part in PARTS.items())


def test_nothing_is_told_of_nothing():
    empty = tables_with()
    assert findings(empty) == []
    assert caveats(empty) == []
    assert answer(empty).startswith("No GPU operation")


def test_caveats_tell_how_ranges_were_found_and_steps():
    marks, rank = {"rank": 0, "push_pop_n": 4, "without_end_n": 2}, {"rank": 0}
    attribution = [lost("launch", 50), lost("delegated", 50)]
    said = caveats(tables_with(attribution=attribution, marks=[marks], rank_steps=[rank]))
    assert "50.0 %" in said[0]
    assert "backward" in said[0]
    assert said[1].startswith("2 ranges were never closed")
    assert "`--step RANGE`" in said[2]
    steps = {**rank, "name": "step #", "gpu_pct": 40.0}
    said = caveats(tables_with(marks=[{**marks, "without_end_n": 0}], rank_steps=[steps]))
    assert len(said) == 1
    assert "40.0 %" in said[0]


@pytest.mark.parametrize(
    ("engine", "range_name", "other", "flag"),
    [
        ("vllm", "execute_context_#(#)_generation_#(#)", "step #", "--profiler-config"),
        ("sglang", "step[DECODE bs=#]", "train_step", "emit_nvtx"),
        ("trtllm", "[Executor] _forward_step #: # ctx reqs", "_forward", "--trace=nvtx"),
    ],
)
def test_where_an_engine_s_ranges_are_absent_it_is_told_what_records_them(
    engine, range_name, other, flag
):
    def said(name, **more):
        ranks = [{"name": name}]
        rows = {"phase_categories": [{"engine": engine}], "rank_steps": ranks, **more}
        return "\n".join(caveats(tables_with(**rows)))

    assert flag in said(other)
    assert flag in said(None)
    assert flag not in said(range_name)
    assert flag not in said(other, ranges=[{"name": range_name.replace("#", "7")}])  # with --step
    assert caveats(tables_with(phase_categories=[{"engine": "generic"}])) == []
