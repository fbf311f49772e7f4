"""What a gain is of where a GPU did more than whole steps: steps that are cut, and other work."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from gain_checks import check_findings
from machine import changes, parts, simulate, write_profiles
from machine.program import Program, Sync
from machine.scenarios import late_host
from path_truth import STEP, budget
from quick_run import quick

from nsys_llm.recipes.step_budget.findings.gains import findings
from nsys_llm.recipes.step_budget.findings.replays import cut_steps_ns
from nsys_llm.report.findings import ranked
from nsys_llm.view.text import format_ns

STEPS_N, LATE_RANK = 6, 2
#: Steps of a job whose capture leaves out the first, and a part of the second.
CUT_OF_N = 10


def late(capture_ns=0, steps_n=STEPS_N):
    """Return a job with a late host; `capture_ns` is when all captures start."""
    program = late_host(4, steps_n, 0, rank=LATE_RANK, late_ns=500_000)
    return Program(tuple(replace(rank, capture_ns=capture_ns) for rank in program.ranks))


def with_start_up(program, start_ns):
    """Return a job whose ranks do other work of so many ns before their first step."""
    ranks = []
    for rank in program.ranks:
        make = parts.Maker(0, 1)
        kernels = [make.kernel(parts.POINTWISE, start_ns // 8) for _ in range(8)]
        first = (*kernels, Sync("device"))
        ranks.append(replace(rank, threads=((*first, *rank.threads[0]), *rank.threads[1:])))
    return Program(tuple(ranks))


def straggler(tables):
    listed = ranked(findings(tables))
    check_findings(listed, tables)
    return next(finding for finding in listed if finding.rule == "path_straggler")


def gained_pct(program):
    """Return what the job gains without its fault, percent of its time."""
    wall_ns = simulate(program).wall_ns
    healed_ns = simulate(changes.without_fault(program, "late_host")).wall_ns
    return 100 * (wall_ns - healed_ns) / wall_ns


@pytest.mark.parametrize("start_steps", [0.8, 1.8, 2.5])
def test_a_start_up_is_no_cut_step(tmp_path, start_steps):
    step_ns = simulate(late()).wall_ns / STEPS_N
    program = with_start_up(late(), int(start_steps * step_ns))
    _, tables = budget(tmp_path, program)
    assert not tables["rank_edges"]["begins_in_step"].any()
    finding, truth_pct = straggler(tables), gained_pct(program)
    assert finding.gain.gain_pct == pytest.approx(truth_pct, rel=0.02)
    whole_ns = int(tables["job_steps"]["wall_ns"].sum())
    assert f"The gain is that of {STEPS_N} whole steps, which take {format_ns(whole_ns)}; the" in (
        finding.details
    )
    first = quick("llm_overview", tmp_path, *STEP)["opportunities"].iloc[0]
    assert first["gain_pct"] == pytest.approx(truth_pct, rel=0.05)


def test_a_step_that_the_capture_cuts_at_its_begin_counts_in_proportion(tmp_path):
    whole, tables = budget(tmp_path / "whole", late(steps_n=CUT_OF_N))
    assert not tables["rank_edges"]["begins_in_step"].any()
    edges_ns = tables["job_steps"][["start_ns", "end_ns"]]
    # The capture starts amid the kernels of the second step, after half a millisecond of lateness.
    at_ns = int(edges_ns["start_ns"][1] + 0.8 * (edges_ns["end_ns"][1] - edges_ns["start_ns"][1]))
    write_profiles(simulate(late(at_ns, CUT_OF_N)), tmp_path / "cut")
    cut = quick("step_budget", tmp_path / "cut", *STEP)
    assert cut["rank_edges"]["begins_in_step"].all()
    assert len(cut["job_steps"]) == CUT_OF_N - 2
    gain = straggler(cut).gain
    row = cut["ceilings"].query("change == 'straggler' and name == 'rank2'").iloc[0]
    assert gain.gain_pct == pytest.approx(100 * row["path_ns"] / row["wall_ns"], rel=0.01)
    assert gain.gain_ns > row["path_ns"] * (CUT_OF_N - 2)
    assert whole.wall_ns > gain.span_ns


def frames(*, begins, marks=("", "", "cut"), ends_ns=(1000, 1100, 1200, 1230), span=(950, 1230)):
    """Return tables of a GPU; steps lie between ends."""
    steps = pd.DataFrame({"start_ns": ends_ns[:-1], "end_ns": ends_ns[1:], "mark": marks})
    times = steps["end_ns"] - steps["start_ns"]
    wall = {"span_start_ns": span[0], "span_end_ns": span[1], "span_ns": span[1] - span[0]}
    gpu = {"file": "rank0", "device_id": 0}
    return {
        "device_steps": steps.assign(**gpu, window_ns=times),
        "job_steps": steps.assign(wall_ns=times),
        "wall": pd.DataFrame([{**gpu, **wall}]),
        "rank_edges": pd.DataFrame([{"file": "rank0", "begins_in_step": begins}]),
    }


@pytest.mark.parametrize(
    ("rows", "cut_ns"),
    [
        (frames(begins=False), 30),
        (frames(begins=True), 80),
        # A rest is no longer than a step, nor is what comes before the first.
        (frames(begins=True, ends_ns=(1000, 1100, 1200, 1450), span=(800, 1450)), 200),
        (frames(begins=True, marks=("", "", "")), 50),
        (frames(begins=True, marks=("warm-up", "", "partial")), 50),
        # A filter ends the span within the cut step.
        (frames(begins=False, span=(1000, 1210)), 10),
        (frames(begins=True, span=(1050, 1240)), 30),
    ],
)
def test_only_steps_that_are_cut_count_in_proportion(rows, cut_ns):
    assert cut_steps_ns("rank0", 0, rows) == cut_ns
    assert cut_steps_ns("rank0", 1, rows) == 0
