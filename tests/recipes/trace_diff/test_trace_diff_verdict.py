"""The verdict of trace_diff on planted runs: faster, slower, the same, other work; the cause."""

from __future__ import annotations

import pandas as pd
import pytest
from diff_jobs import GEMM, HOST_BOUND, NORM, Job, compare
from trace_builder import TraceBuilder

ONE_GEMM = ((GEMM, 60_000, 64, 4),)


def check_sums(said):
    """Check that classes add up to the step, and details to their class, on every GPU."""
    verdict, wall = said.verdict, said.tables["wall_change"]
    for key, gpu in wall.groupby(["rank", "device_id"], dropna=False):
        whole = gpu[gpu["detail"].isna()]
        for side in ("baseline", "input", "change"):
            if pd.isna(key[0]):
                assert whole[f"{side}_ns"].sum() == pytest.approx(verdict[f"{side}_ns"])
            for name, rows in gpu[gpu["detail"].notna()].groupby("wall_class"):
                whole_ns = whole.set_index("wall_class").loc[name, f"{side}_ns"]
                assert rows[f"{side}_ns"].sum() == pytest.approx(whole_ns, abs=1e-3)


@pytest.mark.slow
def test_a_slower_kernel_is_slower_and_back_it_is_faster(tmp_path):
    said = compare(tmp_path, Job(ONE_GEMM), Job(((GEMM, 66_000, 64, 4),)))
    there = said.verdict
    assert (said.word, there["unit"]) == ("SLOWER", "step")
    # Four launches of 6 us more.
    assert there["change_ns"] == pytest.approx(24_000, rel=0.05)
    assert there["low_pct"] < there["change_pct"] < there["high_pct"]
    assert said.classes()["compute"] == pytest.approx(24_000, rel=0.05)
    check_sums(said)
    finding = said.rules["slower_calls"]
    assert finding["gain_step_ns"] == pytest.approx(24_000, rel=0.05)
    assert finding["severity"] == "medium"
    assert "slower_host" not in said.rules
    back = compare(tmp_path, tmp_path / "run1", tmp_path / "run0")
    assert (back.word, back.verdict["change_ns"]) == ("FASTER", -there["change_ns"])
    finding = back.rules["faster_calls"]
    assert (finding["kind"], finding["severity"]) == ("improvement", None)


@pytest.mark.slow
def test_a_run_and_itself_and_a_run_again_are_the_same(tmp_path):
    paths = [Job(steps=20).write(tmp_path / str(seed), seed) for seed in (0, 5)]
    for after in paths:
        said = compare(tmp_path, paths[0], after)
        assert said.lines[0].startswith("SAME  ")
        assert said.rules == {}
    said = compare(tmp_path, paths[0], paths[0])
    for table in said.tables.values():
        for column in table.columns:
            if "change" in column and pd.api.types.is_numeric_dtype(table[column]):
                assert (table[column].dropna() == 0).all(), column


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.03, 1.5])
def test_a_slower_host_is_found_by_its_factor(tmp_path, factor):
    """The GPU waits for the host for most of each step."""
    said = compare(tmp_path, Job(HOST_BOUND), Job(HOST_BOUND, host=factor))
    assert said.word == "SLOWER"
    host = said.tables["host"].set_index("name")
    assert host.loc["cudaLaunchKernel", "p50_ratio"] == pytest.approx(factor, abs=0.005)
    assert host.loc["aten::view", "p50_ratio"] == pytest.approx(factor, abs=0.005)
    change = said.classes()["idle"]
    assert change == pytest.approx(20 * 9_000 * (factor - 1), rel=0.1)
    assert said.rules["slower_host"]["gain_step_ns"] == pytest.approx(change, rel=0.02)
    assert "cause: the host: " in said.answer
    assert f"{factor:.3g} times as long" in said.answer
    check_sums(said)


@pytest.mark.slow
def test_a_host_that_does_more_is_no_slower_host(tmp_path):
    said = compare(tmp_path, Job(), Job(late_ns=dict.fromkeys(range(30), 60_000)))
    assert said.word == "SLOWER"
    assert "slower_host" not in said.rules
    assert "mostly `host_no_cuda`" in said.rules["more_idle"]["details"]
    assert "cause: the host" not in said.answer


@pytest.mark.slow
def test_a_slower_host_that_nobody_waits_for_is_no_cause(tmp_path):
    """Launches run ahead of the GPU: they take twice as long, and steps as long as before."""
    long = ((GEMM, 900_000, 64, 4),)
    said = compare(tmp_path, Job(long), Job(long, host=2.0))
    host = said.tables["host"].set_index("name")
    assert host.loc["cudaLaunchKernel", "p50_ratio"] > 1.9
    assert (said.word, said.rules) == ("SAME", {})


@pytest.mark.slow
def test_the_profilers_flushes_are_no_slower_program(tmp_path):
    said = compare(tmp_path, Job(), Job(flush_ns=200_000))
    assert said.word == "SAME"
    assert said.verdict["change_pct"] > 8
    assert abs(said.verdict["program_change_pct"]) < 1
    assert "without the profiler's flushes" in said.lines[0]
    assert said.classes()["profiler"] == pytest.approx(40_000, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_a_doubled_batch_is_told_by_token_or_is_other_work(tmp_path, named):
    def side(batch, ns):
        kernels = ((GEMM, ns, 64 * batch, 4), (NORM, ns // 10, batch, 8))
        return Job(kernels, name=(lambda _: f"decode bs={batch}") if named else "decode")

    said = compare(tmp_path, side(16, 60_000), side(32, 90_000))
    assert said.word == "OTHER WORK"
    assert said.rules == {}
    if not named:
        assert "problem sizes changed" in said.answer
        return
    assert said.verdict["unit"] == "decode step"
    # 4 x 60 + 8 x 6 us of kernels by 16; then 4 x 90 + 8 x 9 by 32; 500 ns from one to the next.
    tokens = said.verdict[["baseline_token_ns", "input_token_ns"]].tolist()
    assert tokens == pytest.approx([294_000 / 16, 438_000 / 32], rel=0.05)
    assert said.lines[0].startswith("OTHER WORK: batch 16 -> 32; -2")
    check_sums(said)


@pytest.mark.slow
def test_a_launch_in_sixteen_parts_is_the_same_work_and_more_of_it_is_not(tmp_path):
    before = Job(((GEMM, 320_000, 4_096, 1), (NORM, 9_000, 8, 2)))
    split = ((GEMM, 22_000, 256, 16), (NORM, 9_000, 8, 2))
    said = compare(tmp_path, before, Job(split))
    # 15 more launches, 500 ns from one to the next, and 32 us of kernels.
    assert said.word == "SLOWER"
    assert said.verdict["change_ns"] == pytest.approx(32_000 + 15 * 500, rel=0.05)
    assert "split_launches" in said.rules
    more = Job(((GEMM, 320_000, 4_096, 2), (NORM, 9_000, 8, 4))).write(tmp_path / "more", 3)
    said = compare(tmp_path, tmp_path / "run0", more)
    assert said.word == "OTHER WORK"
    assert "aunches a step changed" in said.answer


def once(folder, name, ns):
    trace = TraceBuilder().kernel(name, start_ns=1_000, duration_ns=ns)
    return trace.write_sqlite(folder / f"{name}{ns}.sqlite")


def test_runs_without_steps_need_equal_launches(tmp_path):
    before, after, other = (once(tmp_path, *run) for run in (("a", 1_000), ("a", 1_500), ("b", 9)))
    row = compare(tmp_path, before, after).verdict
    assert (row["word"], row["basis"], row["change_ns"]) == ("SLOWER", "window", 500)
    assert row["uncertain"]
    said = compare(tmp_path, before, other)
    assert said.lines[0].startswith("NOT COMPARABLE: ")
    assert "give --step" in said.answer


@pytest.mark.slow
def test_factors_are_told_as_factors(tmp_path):
    said = compare(tmp_path, Job(ONE_GEMM), Job(((GEMM, 14_400_000, 64, 4),)))
    assert " times)" in said.lines[0]
    assert "%" not in said.lines[0]
    assert " times as long per call" in said.answer


@pytest.mark.slow
def test_few_steps_of_which_one_is_slow_have_no_median(tmp_path):
    before, after = (Job(steps=5, late_ns={2: 900_000}, gpu=gpu) for gpu in (1.0, 1.3))
    said = compare(tmp_path, before, after)
    assert said.word == "UNCERTAIN"
    assert "5 -> 5 full steps per GPU: fewer than 5 without slow ones" in said.answer
    assert "median" not in said.answer


@pytest.mark.slow
def test_a_run_that_is_slower_from_a_step_on_says_so(tmp_path):
    def throttled(step):
        return ((GEMM, 60_000 if step < 24 else 78_000, 64, 4),)

    said = compare(tmp_path, Job(ONE_GEMM, steps=60), Job(throttled, steps=60))
    assert said.verdict["since"] == "slower from step 24 on"
    assert "Slower from step 24 on." in said.lines
    # All steps alike are no time of their own, and a baseline that changes tells none.
    after = Job(((GEMM, 66_000, 64, 4),), steps=60).write(tmp_path / "alike")
    alike = compare(tmp_path, tmp_path / "run0", after)
    assert alike.word == "SLOWER"
    assert pd.isna(alike.verdict["since"])
