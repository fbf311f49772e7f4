"""--unprofiled-step: a job and the same one with a cost for each launch are said to be alike."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from command_line import run
from effort import at_night
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.taxonomy.wall_classes import IDLE

KERNELS_N, STEPS_N, KERNEL_NS = 20, 30, 10_000


def job(gap_ns, cost_ns, kernel_ns=KERNEL_NS, pause_ns=0, odd_ns=None):
    """Return a rank whose host launches each kernel when the one before has ended.

    Args:
        pause_ns: At the begin of one step.
        odd_ns: Of the kernels of every other step.
    """
    trace, at_ns = TraceBuilder(), 10_000
    for step in range(STEPS_N):
        begin_ns = at_ns
        at_ns += pause_ns if step == STEPS_N // 2 else 0
        took_ns = odd_ns if odd_ns and step % 2 else kernel_ns
        for _ in range(KERNELS_N):
            launch = at_ns + gap_ns - 100 + cost_ns - 1_000, at_ns + gap_ns - 100 + cost_ns
            start_ns = at_ns + gap_ns + cost_ns
            trace.kernel("gemm", start_ns=start_ns, duration_ns=took_ns, launch=launch)
            at_ns = start_ns + took_ns
        trace.nvtx(f"step {step}", begin_ns, at_ns - took_ns + 50)
    return trace


def written(trace, folder, name):
    return trace.write_sqlite(folder / f"{name}.sqlite")


def times(tables, column="time_ns"):
    return tables["wall"].groupby("wall_class")[column].sum()


@pytest.mark.slow
@pytest.mark.parametrize(("gap_ns", "cost_ns"), [(1_500, 2_000), (1_200, 0)])
def test_what_is_left_is_the_job_without_the_cost(tmp_path, gap_ns, cost_ns):
    step_ns = KERNELS_N * (KERNEL_NS + gap_ns)
    truth = quick("step_budget", written(job(gap_ns, 0), tmp_path, "plain"))
    path = written(job(gap_ns, cost_ns), tmp_path, "profiled")
    tables = quick("step_budget", path, "--unprofiled-step", f"{step_ns}ns")
    left, plain = times(tables, "unprofiled_ns"), times(truth)
    for name in plain.index:
        assert left[name] == pytest.approx(plain[name], rel=0.01, abs=STEPS_N * 100)
    profiled = quick("step_budget", path)
    gains = [
        some["findings"][some["findings"]["kind"] != "capture"].set_index("rule")["gain_pct"]
        for some in (truth, tables, profiled)
    ]
    for rule, gain_pct in gains[0].items():
        # Each cause of idle time loses alike: of the host, which has all of the cost, too little.
        assert gain_pct - 0.1 <= gains[1][rule] <= gains[2][rule] + 0.1
        assert cost_ns == 0 or gains[1][rule] < gains[2][rule]


def test_beyond_idle_time_all_else_is_less_alike(tmp_path):
    path = written(job(1_200, 0), tmp_path, "profiled")
    half_ns = KERNELS_N * (KERNEL_NS + 1_200) // 2
    tables = quick("step_budget", path, "--unprofiled-step", f"{half_ns}ns")
    left = times(tables, "unprofiled_ns")
    assert left[IDLE] == 0
    assert left.sum() == pytest.approx(times(tables).sum() / 2, rel=0.001)


def test_a_step_that_takes_no_longer_changes_nothing(tmp_path):
    path = written(job(4_000, 0), tmp_path, "plain")
    tables = quick("step_budget", path, "--unprofiled-step", "1s")
    assert times(tables, "unprofiled_ns").to_dict() == times(tables).to_dict()
    rows = tables["findings"].set_index("rule")
    assert "no longer" in rows.loc["unprofiled_step", "title"]
    plain = quick("step_budget", path)["findings"].set_index("rule")
    assert rows.loc[plain.index, "gain_ns"].equals(plain["gain_ns"])


@pytest.mark.parametrize("cost_ns", [0, 2_000])
def test_a_pause_in_one_step_is_no_cost_of_the_profiler(tmp_path, cost_ns):
    path = written(job(1_500, cost_ns, pause_ns=3_000_000), tmp_path, "profiled")
    tables = quick("step_budget", path, "--unprofiled-step", f"{KERNELS_N * (KERNEL_NS + 1_500)}ns")
    taken_ns = times(tables).sum() - times(tables, "unprofiled_ns").sum()
    assert taken_ns == pytest.approx(STEPS_N * KERNELS_N * cost_ns, rel=0.05)
    title = tables["findings"].set_index("rule").loc["unprofiled_step", "title"]
    assert ("no longer" in title) == (cost_ns == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd_ns", "step", "said"),
    [
        (None, "5", "of 5 ns is ignored: the GPU computes for 200 us in a mean step"),
        (60_000, "320us", "of 320 us is ignored: steps take "),
        *at_night((None, "0", "of 0 ns is ignored: the GPU computes for 200 us in a mean step")),
    ],
)
def test_a_length_that_no_step_has_is_ignored_and_said(tmp_path, odd_ns, step, said):
    path = written(job(4_000, 2_000, odd_ns=odd_ns), tmp_path, "profiled")
    done = run(
        *("--input", path, "--output", tmp_path / "o", "--unprofiled-step", step),
        recipe="llm_overview",
    )
    assert f"trust --unprofiled-step {said}" in " ".join(" ".join(done.printed).split())
    assert f"`--unprofiled-step` {said}" in (tmp_path / "o" / "report.md").read_text()
    tables = quick("step_budget", path, "--unprofiled-step", step)
    plain = quick("step_budget", path)
    assert tables["wall"]["unprofiled_ns"].isna().all()
    columns = ["rule", "title", "gain_ns"]
    assert tables["findings"][columns].equals(plain["findings"][columns])


@pytest.mark.slow
def test_the_rule_and_the_first_screen_say_factor_and_cost_of_a_launch(tmp_path):
    path = written(job(100, 2_000), tmp_path, "profiled")
    step_ns = KERNELS_N * (KERNEL_NS + 100)
    done = run(
        *("--input", path, "--output", tmp_path / "o", "--unprofiled-step", f"{step_ns}ns"),
        recipe="llm_overview",
    )
    title = "Under the profiler steps take 1.20 times as long, 2 us more for each GPU operation"
    printed = " ".join(" ".join(done.printed).split())
    assert f"trust {title}" in printed
    assert "nothing left without the profiler: " in printed
    report = json.loads((tmp_path / "o" / "report.json").read_text())
    assert report["options"]["unprofiled_step"] == step_ns
    part = tmp_path / "o" / "parts" / "step_budget" / "findings.parquet"
    rows = pd.read_parquet(part).set_index("rule")
    assert rows.loc["unprofiled_step", "title"] == title
    gone = rows[rows["severity"].isna() & (rows["kind"] == "performance")]
    assert len(gone)
    for name in gone["title"]:
        assert name in rows.loc["unprofiled_step", "details"]
