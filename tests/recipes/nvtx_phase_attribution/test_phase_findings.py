"""Findings of nvtx_phase_attribution: when they fire, on what evidence, and when they do not."""

from __future__ import annotations

import pytest
from phase_run import RECIPE
from planted import frame_of
from results import analyse, read_frames, read_report

from nsys_llm.analyses.nvtx.attributed_ops import METHODS, NO_RANGE
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.nvtx_phase_attribution.findings.answer import answer, findings
from nsys_llm.recipes.nvtx_phase_attribution.findings.caveats import caveats
from nsys_llm.recipes.nvtx_phase_attribution.per_rank.attribution_coverage import PARTS
from nsys_llm.testing.demo import write_demo

MS = 1_000_000


def told(**tables):
    """Return tables with the given rows, the others empty."""
    names = [one.file for one in load_manifest(RECIPE).writes]
    return {name: frame_of(name, tables.get(name, []), RECIPE) for name in names}


def rules(**tables):
    return {one.rule: one for one in findings(told(**tables))}


def phase(name="decode", gpu_ns=90 * MS, gpu_pct=90.0, **others):
    row = {"phase": name, "gpu_ns": gpu_ns, "gpu_pct": gpu_pct, "work_ns": gpu_ns, **others}
    return {"mapped": name not in ("unmapped", "no_range", "no_api"), "instances_n": 9, **row}


def inside(name="decode"):
    return {
        "phase_categories": [{"phase": name, "category": "gemm", "phase_pct": 60.0}],
        "phase_kernels": [{"phase": name, "name": "nvjet_tst", "phase_pct": 50.0}],
    }


def test_a_phase_that_takes_most_of_the_time_is_told_with_what_it_is_made_of():
    found = rules(phases=[phase(gpu_pct=70.0)], **inside())["dominant_phase"]
    assert (found.severity, found.name) == ("medium", "decode")
    assert "`gemm` 60.0 %" in found.details
    assert "`nvjet_tst`" in found.details
    assert "KV cache" in found.recommendation
    assert "dominant_phase" not in rules(phases=[phase(gpu_pct=69.9)], **inside())
    assert "dominant_phase" not in rules(phases=[phase("unmapped", gpu_pct=99.0)], **inside())


def rank_phase(rank, work_ns, above_ns, waits_ns=0):
    return {
        **{"rank": rank, "file": f"rank{rank}", "phase": "decode", "ops_n": 7},
        **{"gpu_ns": work_ns + waits_ns, "work_ns": work_ns, "communication_ns": waits_ns},
        "above_median_ns": above_ns,
    }


def ranks(slow_ns):
    return [
        rank_phase(0, 100 * MS, 0, 50 * MS),
        rank_phase(1, 100 * MS, 0, 50 * MS),
        rank_phase(2, slow_ns, slow_ns - 100 * MS, 9 * MS),
    ]


@pytest.mark.parametrize(
    ("slow_ns", "severity"), [(130 * MS, "high"), (110 * MS, "medium"), (105 * MS, "low")]
)
def test_a_rank_that_works_longer_is_told_and_not_one_that_waits(slow_ns, severity):
    instance = {"rank": 2, "phase": "decode", "gpu_start_ns": 5, "gpu_end_ns": 9}
    found = rules(
        phases=[phase(gpu_pct=50.0)], rank_phases=ranks(slow_ns), phase_instances=[instance]
    )["phase_imbalance"]
    assert (found.rank, found.severity, found.window_ns) == (2, severity, (5, 9))
    assert "the others wait for it" in found.details
    assert found.impact_ns == slow_ns - 100 * MS


def test_ranks_that_differ_little_are_alike():
    for slow_ns in (104 * MS, 100 * MS):
        found = rules(phases=[phase(gpu_pct=50.0)], rank_phases=ranks(slow_ns))
        assert "phase_imbalance" not in found
    assert "phase_imbalance" not in rules(
        phases=[phase(gpu_pct=50.0)], rank_phases=ranks(130 * MS)[2:]
    )


def host_bound(idle_ns=10 * MS, gpu_ns=5 * MS, wall_ns=20 * MS):
    idle = {"phase": "sampling", "idle_ns": idle_ns, "gpu_ns": gpu_ns, "within_ns": idle_ns}
    return rules(
        phases=[phase("sampling", gpu_ns, 5.0, wall_ns=wall_ns)],
        phase_idle=[idle],
        rank_phases=[{"rank": 3, "phase": "sampling", "idle_ns": idle_ns}],
        devices=[{"rank": 3, "window_ns": 100 * MS}],
    )


def test_a_phase_for_which_the_gpu_waits_longer_than_it_works_is_host_bound():
    found = host_bound()["host_bound_phase"]
    assert (found.severity, found.rank, found.impact_ns) == ("medium", 3, 10 * MS)
    assert "10.0 %" in found.details
    # Host time far above GPU time is no evidence by itself, and neither is idle time.
    assert "host_bound_phase" not in host_bound(idle_ns=5 * MS)
    assert "host_bound_phase" not in host_bound(wall_ns=10 * MS)


def test_communication_that_nothing_hides_is_told_by_its_share_of_all():
    row = {"phase": "decode", "operation": "all_reduce", "exposed_ns": 30 * MS, "most_rank": 1}
    found = rules(phases=[phase(gpu_pct=50.0)], phase_collectives=[row])["exposed_communication"]
    # 30 of 90 ms of a phase that is half of everything.
    assert found.severity == "medium"
    assert "33.3 %" in found.title
    row["exposed_ns"] = 8 * MS
    assert "exposed_communication" not in rules(
        phases=[phase(gpu_pct=50.0)], phase_collectives=[row]
    )


def tail(n, p50, p99, most, **others):
    return {
        **{"steps_n": n, "p50_ns": float(p50), "p99_ns": float(p99), "max_ns": most},
        **{"total_ns": n * p50, **others},
    }


@pytest.mark.parametrize(
    ("row", "severity"),
    [
        (tail(100, 10, 15.1, 16), "medium"),
        (tail(100, 10, 15, 16), None),
        (tail(99, 10, 19, 20), None),
        (tail(10, 10, 15, 21), "low"),
        (tail(9, 10, 15, 21), None),
        # Far longer, and nothing beside all the others.
        (tail(2000, 10, 11, 21), None),
    ],
)
def test_phases_with_a_tail_are_told_by_the_thresholds_of_the_design(row, severity):
    total = {"which": "steady", "phase": None, "measure": "gpu", "total_ns": row["total_ns"]}
    found = rules(phase_steps=[{"phase": "decode", **row}], step_stats=[total]).get("phase_tail")
    assert (found and found.severity) == severity


def test_slow_steps_are_shown_where_they_are():
    wall = tail(100, 10, 20, 25, which="steady", phase="decode", measure="wall")
    step = {"rank": 1, "step": 7, "phase": "decode", "warmup": False, "wall_ns": 25}
    slow = {**step, "start_ns": 100, "end_ns": 125}
    found = rules(step_stats=[wall], steps=[{**step, "wall_ns": 10}, slow])["slow_steps"]
    assert (found.rank, found.window_ns) == (1, (100, 125))
    assert "2.5 times the median" in found.title


def test_warm_up_is_a_note():
    step = {"rank": 0, "step": 0, "warmup": True, "wall_ns": 60, "start_ns": 1, "end_ns": 61}
    found = rules(steps=[step, {**step, "warmup": False, "wall_ns": 40}])["warm_up_steps"]
    assert found.severity == "note"
    assert "60.0 %" in found.details


def lost(part, gpu_ns, rank=0):
    known = PARTS[part]
    return {
        **{"rank": rank, "file": f"rank{rank}", "part": part, "attributed": known.attributed},
        **{"gpu_ns": gpu_ns, "meaning": known.meaning, "capture": known.capture},
    }


def test_low_coverage_names_the_largest_loss_and_the_flag_for_it():
    rows = [lost("launch", 69), lost("outside_ranges", 11), lost("no_call", 20)]
    found = rules(attribution=rows)["low_range_coverage"]
    assert "69.0 %" in found.title
    assert PARTS["no_call"].meaning in found.details
    assert found.record == "--trace=cuda"
    assert "low_range_coverage" not in rules(attribution=[lost("launch", 70), lost("no_call", 30)])


def test_threads_that_mark_nothing_are_told_with_pytorch_s_flag():
    rows = [lost("launch", 90), lost("unmarked_thread", 10, rank=1)]
    found = rules(attribution=rows)["unmarked_thread"]
    assert (found.rank, found.impact_ns) == (1, 10)
    assert "--pytorch=autograd-nvtx" in found.record
    assert "unmarked_thread" not in rules(
        attribution=[lost("launch", 960), lost("unmarked_thread", 40)]
    )


def test_ranges_of_no_phase_ask_for_a_map_and_name_candidates():
    tree = {"label": "step #", "depth": 0, "inclusive_ns": 5, "inclusive_pct": 80.0}
    found = rules(phases=[phase("unmapped", gpu_pct=50.0)], range_tree=[tree])["unmapped_ranges"]
    assert "`step #` 80.0 %" in found.details
    assert "--phase-map" in found.recommendation
    assert "unmapped_ranges" not in rules(phases=[phase("unmapped", gpu_pct=49.9)])


def test_every_way_of_attribution_has_a_meaning():
    assert tuple(PARTS)[:NO_RANGE] == METHODS[:NO_RANGE]
    assert all(part.attributed == (name in METHODS) for name, part in PARTS.items())


def test_nothing_is_told_of_nothing():
    empty = told()
    assert findings(empty) == []
    assert caveats(empty) == []
    assert answer(empty).startswith("No GPU operation")


def test_caveats_tell_how_ranges_were_found_and_steps():
    marks = {"rank": 0, "push_pop_n": 4, "without_end_n": 2}
    said = caveats(told(attribution=[lost("launch", 50), lost("delegated", 50)], marks=[marks]))
    assert "50.0 %" in said[0]
    assert "backward" in said[0]
    assert said[1].startswith("2 ranges were never closed")
    assert "`--step RANGE`" in said[2]
    steps = {"rank": 0, "name": "step #", "gpu_pct": 40.0}
    said = caveats(
        told(marks=[{**marks, "without_end_n": 0, "steps": "step #"}], rank_steps=[steps])
    )
    assert len(said) == 1
    assert "40.0 %" in said[0]


@pytest.mark.parametrize(
    ("engine", "own", "other", "flag"),
    [
        ("vllm", "execute_context_#(#)_generation_#(#)", "step #", "--profiler-config"),
        ("sglang", "step[DECODE bs=#]", "train_step", "emit_nvtx"),
        ("trtllm", "[Executor] _forward_step #: # ctx reqs", "_forward", "--trace=nvtx"),
    ],
)
def test_where_an_engine_s_ranges_are_absent_it_is_told_what_records_them(engine, own, other, flag):
    def said(name, **more):
        rows = {"phase_categories": [{"engine": engine}], "marks": [{"steps": name}], **more}
        return "\n".join(caveats(told(**rows)))

    assert flag in said(other)
    assert flag in said(None)
    assert flag not in said(own)
    assert flag not in said(other, ranges=[{"name": own.replace("#", "7")}])  # with --step
    assert caveats(told(phase_categories=[{"engine": "generic"}])) == []


def test_the_demo_is_told_as_it_was_planted(tmp_path):
    demo = write_demo(tmp_path, scale=0.5)
    out = analyse(tmp_path / "out", *demo.baseline, recipe=RECIPE)
    found = read_frames(out)["findings"]
    uneven = found[found["rule"] == "phase_imbalance"]
    assert set(uneven["rank"]) == {demo.planted.slow_rank}
    assert "host_bound_phase" in set(found["rule"])
    said = read_report(out)["report"]
    assert said["answer"].startswith("Of ")
    assert "`execute_context_#(#)_generation_#(#)`" in said["answer"]
