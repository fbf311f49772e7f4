"""What answer and findings of trace_diff say: true per step, and of what a median does not show."""

from __future__ import annotations

import pandas as pd
import pytest
from results import read_report

from nsys_llm.recipes.trace_diff.findings.change import times
from nsys_llm.run.cli import main
from nsys_llm.testing.trace_builder import TraceBuilder

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16 *)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def compared_runs(folder, before, after, options=()):
    """Compare; return the answer, findings by rule, and kernels by name."""
    out = folder / "out"
    words = ["--mode", "none", "--output", out, "--baseline", before, "--input", after, *options]
    assert main(["trace_diff", *map(str, words)]) == 0
    frames = {name: pd.read_parquet(out / f"{name}.parquet") for name in ("findings", "kernels")}
    answer = read_report(out)["report"]["answer"]
    return answer, frames["findings"].set_index("rule"), frames["kernels"]


def run(path, steps, *, gemm=50_000, copies=0, gap=1_000, ranged=True):
    """Write steps of a gemm and a norm of 8,000 ns, then copies of 1,000 ns, then a gap.

    `gemm` is its length, or says it for each step.
    """
    trace, at = TraceBuilder(hostname="node").process(pid=1, name="server"), 10_000
    for step in range(steps):
        begin = at - 500
        length = gemm(step) if callable(gemm) else gemm
        for name, duration in ((GEMM, length), (NORM, 8_000)):
            duration += 32 * (step % 3)
            launch = (at - 150, at - 100)
            trace.kernel(name, start_ns=at, duration_ns=duration, launch=launch)
            at += duration + 1_000
        for _ in range(copies):
            launch = (at - 150, at - 100)
            trace.memcpy("DtoD", start_ns=at, duration_ns=1_000, size_bytes=500, launch=launch)
            at += 1_500
        if ranged:
            trace.nvtx(f"step {step}", start_ns=begin, end_ns=at)
        at += gap
    return trace.write_sqlite(path)


def test_copies_and_idle_time_of_more_steps_are_told_per_step(tmp_path):
    # 15 then 30 copies of 1,000 ns in each step of 58,000 ns; the window is ten times as long.
    before = run(tmp_path / "before.sqlite", 20, copies=15)
    after = run(tmp_path / "after.sqlite", 200, copies=30, gap=9_000)
    answer, findings, kernels = compared_runs(tmp_path, before, after)
    assert "device-to-device copies 15 -> 30 a step and rank (+100.0 %), 7.5 kB -> 15 kB" in answer
    assert findings.loc["copies", "impact_ns"] == 15_000
    assert findings.loc["copies", "details"].endswith(
        "That is 15 us more a step on GPU 0 of rank 0."
    )
    assert findings.loc["copies", "gain_step_ns"] == pytest.approx(15_000, rel=0.001)
    # What is not comparable, sums, is not what the answer tells.
    assert answer.startswith("SLOWER  ")
    # Nor what is drawn: the way from one step to the other.
    parts = pd.read_parquet(tmp_path / "out" / "waterfall.parquet")
    assert parts["view"].nunique() == 2
    for _, view in parts.groupby("view"):
        totals = view.loc[view["kind"] == "total", "value_ns"].tolist()
        assert totals == pytest.approx([83_500, 114_000], rel=0.002)
        changes = view.loc[view["kind"] == "change", "value_ns"].sum()
        assert changes == pytest.approx(totals[1] - totals[0])
    assert set(kernels["basis"]) == {"a step and rank"}
    assert kernels["input_compared_ns"].tolist() == kernels["input_step_ns"].tolist()
    idle = findings.loc["more_idle", "details"]
    assert "host_no_cuda" in idle
    assert " points)" in idle


def test_a_cause_of_idle_time_is_that_of_a_larger_share_and_not_of_a_longer_window(tmp_path):
    # A tenth of the steps, each with more idle time: every sum of idle time shrank.
    before = run(tmp_path / "before.sqlite", 200)
    after = run(tmp_path / "after.sqlite", 20, gap=9_000)
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert "mostly `host_no_cuda`" in findings.loc["more_idle", "details"]
    assert "The host launches later than before: " in answer
    advice = findings.loc["more_idle", "recommendation"]
    assert "The GPU waits for the host more than before (`host_no_cuda`)" in advice


def test_shorter_kernels_are_no_slower_host(tmp_path):
    before = run(tmp_path / "before.sqlite", 30, gemm=90_000, ranged=False)
    after = run(tmp_path / "after.sqlite", 30, gemm=10_000, ranged=False)
    answer, findings, _ = compared_runs(tmp_path, before, after)
    # A larger share of shorter windows, and no more time.
    assert "more_idle" not in findings.index
    assert "host launches later" not in answer
    assert answer.startswith("FASTER  ")


def test_a_rank_that_changed_is_told_per_step(tmp_path):
    # Four ranks; twice the steps on all of them, and 20,000 ns more in each step of rank 2.
    for side, steps in (("before", 20), ("after", 40)):
        (tmp_path / side).mkdir()
        for rank in range(4):
            slow = 20_000 if (side, rank) == ("after", 2) else 0
            run(tmp_path / side / f"rank{rank}.sqlite", steps, gemm=50_000 + slow)
    answer, findings, _ = compared_runs(tmp_path, tmp_path / "before", tmp_path / "after")
    assert "computation on rank 2 takes +34.4 % where the median changes by +0.0 %" in answer
    # A quarter of 20,000 ns: a step and rank.
    assert findings.loc["one_rank", "impact_ns"] == pytest.approx(5_000, abs=10)


def test_calls_that_got_longer_under_the_same_median_are_told(tmp_path):
    before = run(tmp_path / "before.sqlite", 100)
    after = run(tmp_path / "after.sqlite", 100, gemm=lambda step: 50_000 * (1 + 4 * (step % 4 > 2)))
    answer, findings, kernels = compared_runs(tmp_path, before, after)
    assert kernels.set_index("name").loc[GEMM, "verdict"] == "none"
    assert f"some calls of `{GEMM}` (GEMM (cuBLAS)) changed, the typical call did not" in answer
    assert "in the mean it takes 2 times as long in the same 100 calls (+5 ms)" in answer
    assert findings.loc["uneven_calls", "severity"] == "high"
    assert findings.loc["uneven_calls", "name"] == GEMM


def test_one_long_call_is_told_as_what_may_be_chance(tmp_path):
    before = run(tmp_path / "before.sqlite", 100)
    after = run(tmp_path / "after.sqlite", 100, gemm=lambda step: 50_000 + 2_000_000 * (step == 9))
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert f"some calls of `{GEMM}`" in answer
    assert "at the same median, which may be chance" in answer
    assert answer.startswith("SAME  ")
    assert "not beyond chance" in answer
    assert "uneven_calls" not in findings.index


def test_a_mean_that_falls_under_a_longer_median_is_no_faster_kernel(tmp_path):
    before = run(tmp_path / "before.sqlite", 100, gemm=lambda step: 50_000 * (1 + 19 * (step < 9)))
    after = run(tmp_path / "after.sqlite", 100, gemm=60_000)
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert "faster_calls" not in findings.index
    assert "at a median that is 20.0 % longer" in answer


def test_few_calls_that_got_longer_are_told_as_too_few(tmp_path):
    before = run(tmp_path / "before.sqlite", 4)
    after = run(tmp_path / "after.sqlite", 4, gemm=150_000)
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert "3 times as long per call in the same 4 calls" in answer
    assert "too few to tell from chance" in answer
    assert answer.startswith("SLOWER, uncertain  ")
    assert "few_calls" not in findings.index


def test_copies_of_one_kind_are_told_apart_by_their_memory(tmp_path):
    paths = []
    for side, memory in (("before", "pageable"), ("after", "pinned")):
        trace = TraceBuilder().kernel(GEMM, start_ns=1_000, duration_ns=100)
        for index in range(9):
            at = 2_000 + 100 * index
            trace.memcpy("HtoD", start_ns=at, duration_ns=9, size_bytes=8, src_memory=memory)
        paths.append(trace.write_sqlite(tmp_path / f"{side}.sqlite"))
    answer, findings, _ = compared_runs(tmp_path, *paths)
    assert "host-to-device copies (pageable to device) 9 -> 0," in answer
    assert "host-to-device copies (pinned to device) 0 -> 9," in answer
    # They take as long as before.
    assert "copies" not in findings.index


def test_unmatched_communication_is_no_late_peer(tmp_path):
    # Two ranks meet in 20 collectives as before; one alone runs much other communication.
    for side, alone in (("before", 2_000), ("after", 50_000)):
        (tmp_path / side).mkdir()
        for rank in range(2):
            trace, at = TraceBuilder(hostname="node"), 10_000
            for index in range(20):
                late = 300 * rank * (side == "after")
                trace.kernel(NCCL, start_ns=at + late, end_ns=at + 5_000, stream_id=7)
                at += 6_000
                if rank == 0:
                    kernel_name = (
                        f"ncclDevKernel_Broadcast_{index}(ncclDevKernelArgsStorage<4096ul>)"
                    )
                    trace.kernel(kernel_name, start_ns=at, duration_ns=alone, stream_id=9)
                at += 60_000
            trace.write_sqlite(tmp_path / side / f"rank{rank}.sqlite")
    answer, findings, _ = compared_runs(tmp_path, tmp_path / "before", tmp_path / "after")
    assert "communication takes +954 us" in answer
    assert "late peer" not in " ".join(findings["recommendation"])
    assert "communication" in findings.index


@pytest.mark.parametrize(("kernels_n", "paired_n"), [(500, 1_000), (600, 0)])
def test_more_new_names_than_anyone_can_pair_are_left_alone(tmp_path, kernels_n, paired_n):
    paths = []
    for side in ("before", "after"):
        names = [f"triton_poi_fused_{side}_{index}" for index in range(kernels_n)]
        starts = [1_000 * index for index in range(kernels_n)]
        ends = [start + 500 for start in starts]
        trace = TraceBuilder().kernels(names, range(kernels_n), start_ns=starts, end_ns=ends)
        paths.append(trace.write_sqlite(tmp_path / f"{side}.sqlite"))
    _, _, kernels = compared_runs(tmp_path, *paths)
    assert kernels["rename"].notna().sum() == paired_n


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(5.15, "5.15 times as long"), (1.12, "12.0 % longer"), (0.25, "75.0 % less")],
)
def test_ratios_are_told_as_people_say_them(ratio, text):
    assert times(ratio) == text


def test_a_run_without_matched_collectives_is_compared_without_waiting(tmp_path):
    # One rank alone before, two that meet afterwards.
    for side, ranks_n in (("before", 1), ("after", 2)):
        (tmp_path / side).mkdir()
        for rank in range(ranks_n):
            trace = TraceBuilder(hostname="node")
            for index in range(20):
                at = 10_000 * index + 9
                trace.kernel(NCCL, start_ns=at, duration_ns=1_000 if ranks_n == 1 else 5_000)
            trace.write_sqlite(tmp_path / side / f"rank{rank}.sqlite")
    answer, findings, _ = compared_runs(tmp_path, tmp_path / "before", tmp_path / "after")
    assert answer.startswith("NOT COMPARABLE: ")
    assert set(findings["kind"]) == {"capture"}
    assert "waiting" not in answer
