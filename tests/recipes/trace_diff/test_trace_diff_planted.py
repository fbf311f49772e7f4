"""Planted changes, with the innocent beside the guilty: what is blamed, and by how much."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from diff_jobs import ATTENTION, BALANCED, GEMM, GPU_BOUND, HOST_BOUND, NORM, Job, compare
from machine.changes import with_fast_host, without_waits
from machine.profile_writer import write_profiles
from machine.scenarios import host_bound_decode, sync_in_step
from machine.simulation import simulate
from quick_run import quick

from nsys_llm.recipes.trace_diff.findings.change import pair_words


@pytest.mark.slow
def test_a_host_as_fast_as_before_is_not_blamed_where_the_gpu_got_faster(tmp_path):
    """Half of the time a kernel: idle time grows by what the kernels no longer hide."""
    said = compare(tmp_path, Job(BALANCED), Job(BALANCED, gpu=0.5))
    assert said.word == "FASTER"
    assert "slower_host" not in said.rules
    assert "the work of the GPUs takes less and no longer hides it" in said.answer


@pytest.mark.slow
def test_a_slower_host_costs_no_more_than_it_is_slower(tmp_path):
    factor = 1.3
    said = compare(tmp_path, Job(BALANCED), Job(BALANCED, gpu=0.5, host=factor))
    # Behind kernels that take half of their time, the host is the whole step.
    (after_ns,) = said.tables["verdict"]["input_ns"]
    assert said.rules["slower_host"]["gain_step_ns"] == pytest.approx(
        after_ns * (1 - 1 / factor), rel=0.05
    )


@pytest.mark.slow
def test_the_rank_whose_host_is_slow_is_blamed_and_nobody_is_idle_less(tmp_path):
    four = Job(HOST_BOUND, ranks=4, steps=12)
    slow = Job(HOST_BOUND, ranks=4, steps=12, host=1.5, rank=2)
    said = compare(tmp_path, four, slow)
    assert said.word == "SLOWER"
    assert said.rules.keys() == {"idle_rank", "waiting"}
    assert said.rules["idle_rank"]["rank"] == 2
    # 21 launches, each 4.5 us later.
    assert said.rules["idle_rank"]["gain_step_ns"] == pytest.approx(21 * 4_500, rel=0.06)
    assert "rank 2 alone is idle 94.5 us longer (mostly `launch_api`)" in said.answer


@pytest.mark.slow
def test_the_rank_whose_gpu_is_slow_is_the_cause_and_not_the_waiting(tmp_path):
    four = Job(ranks=4, steps=20)
    said = compare(tmp_path, four, replace(four, gpu=1.2, rank=2))
    assert said.word == "SLOWER"
    assert said.rules["one_rank"]["rank"] == 2
    # 336 us of kernels in a step, a fifth more.
    assert said.rules["one_rank"]["gain_step_ns"] == pytest.approx(336_000 / 5, rel=0.02)
    assert "on rank 2 alone 20.0 % longer (+0.0 % on the others)" in said.answer


@pytest.mark.slow
def test_clocks_that_are_5_percent_lower_are_one_finding(tmp_path):
    said = compare(tmp_path, Job(), Job(gpu=1.05))
    assert said.word == "SLOWER"
    assert said.rules.keys() == {"slower_throughout"}
    assert said.rules["slower_throughout"]["gain_step_ns"] == pytest.approx(336_000 / 20, rel=0.03)
    assert ": nearly all kernels take 4.9 % longer" in said.answer


@pytest.mark.slow
def test_kernels_of_which_half_got_slower_are_not_slower_alike(tmp_path):
    after = ((GEMM, 62_400, 64, 4), (NORM, 4_000, 64, 4), (ATTENTION, 40_000, 128, 2))
    said = compare(tmp_path, Job(), Job(after))
    assert said.rules.keys() == {"slower_calls"}


@pytest.mark.slow
def test_another_gpu_has_its_times_beside_without_a_verdict(tmp_path):
    """Kernels of other names and grids; the host is as fast as before, and hidden."""
    after = (
        ("sm100_xmma_gemm_bf16_tn_n", 30_000, 148, 4),
        (NORM, 4_000, 64, 4),
        ("flash_fwd_sm100_kernel", 20_000, 148, 2),
    )
    jobs = Job(ranks=2, steps=12), Job(after, ranks=2, steps=12, model="NVIDIA B200")
    said = compare(tmp_path, *jobs, "--gate", "step_time:+50%", code=3)
    assert (said.word, said.rules) == ("NOT COMPARABLE", {})
    row = said.verdict
    times = pair_words(row["baseline_ns"], row["input_ns"])
    assert said.lines[0] == (
        "NOT COMPARABLE: other hardware (`NVIDIA H100 80GB HBM3`, then `NVIDIA B200`); "
        f"a step {times} ({row['change_pct']:+.1f} %)"
    )
    classes, categories = said.lines[1:3]
    # 336 us of kernels, then 176; of them 240 and 120 of products.
    assert classes.startswith("by class: compute 33")
    assert " | communication 20" in classes
    assert categories.startswith("by category: gemm 24")
    assert "-50.0 %) | attention 80" in categories
    # More or less in a step is not asked where grids are those of another GPU.
    assert pd.isna(row["work"])
    (tmp_path / "apart").mkdir()
    renamed = replace(jobs[1], name="iteration").write(tmp_path / "renamed", 3)
    said = compare(tmp_path / "apart", tmp_path / "run0", renamed)
    assert said.lines[0].startswith("NOT COMPARABLE: other hardware (")
    assert said.lines[0].endswith(").")


@pytest.mark.slow
def test_fused_kernels_are_exchanged_for_those_that_they_replace(tmp_path):
    fused = (("triton_poi_fused_add_0", 50_000, 32, 4), ("triton_red_fused_1", 30_000, 16, 4))
    said = compare(tmp_path, Job(), Job(fused))
    assert said.word == "FASTER"
    assert "Other kernels for the same work" in said.answer
    assert {rule: finding["kind"] for rule, finding in said.rules.items()} == {
        "other_kernels": "improvement"
    }
    # 320 us of kernels where there were 336.
    assert "320 us, 3 kernels of 336 us gone" in said.rules["other_kernels"]["details"]


@pytest.mark.slow
def test_one_long_step_may_be_chance_and_is_said(tmp_path):
    said = compare(tmp_path, Job(), Job(late_ns={12: 30_000_000}))
    assert said.word == "UNCERTAIN"
    assert said.rules == {}
    assert "1 of 30 steps takes more than twice the median (0 before)" in said.answer
    row = said.verdict
    assert -100 < row["low_pct"] < row["change_pct"] < row["high_pct"]


def _serving(every):
    """Return prefills, one in so many steps, and decodes."""
    return {
        "kernels": lambda step: GPU_BOUND if step % every else ((GEMM, 400_000, 512, 2),),
        "name": lambda step: "decode" if step % every else "prefill",
    }


@pytest.mark.slow
def test_steps_of_several_names_are_compared_where_step_names_them_all(tmp_path):
    before, after = Job(**_serving(10)), Job(**_serving(3))
    said = compare(tmp_path, before, after, "--step", "re:^(prefill|decode)")
    assert said.word == "SAME"
    assert said.rules == {}
    assert "`prefill` 10 -> 33 % of the steps" in said.answer


@pytest.mark.slow
@pytest.mark.parametrize("step", [(), ("--step", "re:^(step|iteration)")])
def test_renamed_steps_are_other_work_unless_step_names_both(tmp_path, step):
    said = compare(tmp_path, Job(), Job(name="iteration"), *step)
    assert said.word == ("SAME" if step else "OTHER WORK")


@pytest.mark.slow
def test_a_change_within_the_noise_of_baselines_is_within_noise(tmp_path):
    again = Job(BALANCED, gpu=1.03).write(tmp_path / "again", 5)
    said = compare(
        tmp_path, Job(BALANCED), Job(BALANCED, gpu=1.025), "--baselines", again, "--gate",
        "step_time:+1%",
    )  # fmt: skip
    assert said.word == "SAME"
    assert said.tables["gates"]["result"].tolist() == ["pass"]
    assert "; within noise)" in said.lines[0]


@pytest.mark.slow
def test_new_waits_are_named_where_the_gpu_runs_dry_behind_them(tmp_path):
    """Launches that a wait held back find an empty GPU: its idle time is their latency."""
    jobs = [sync_in_step(steps_n=20, seed=seed) for seed in (1, 2)]
    rules = simulated(tmp_path, without_waits(jobs[0], "sync"), jobs[1])
    assert rules.index.tolist() == ["new_waits"]
    assert "new waits: `cudaDeviceSynchronize` 0 -> 3 a step" in rules.loc["new_waits", "details"]


def test_a_host_whose_calls_take_no_time_any_more_is_faster(tmp_path):
    jobs = [host_bound_decode(steps_n=9, seed=seed) for seed in (1, 2)]
    assert "faster_host" in simulated(tmp_path, jobs[0], with_fast_host(jobs[1])).index


def simulated(folder, before, after):
    for name, program in (("a", before), ("b", after)):
        (folder / name).mkdir()
        write_profiles(simulate(program), folder / name)
    return quick("trace_diff", f"--baseline={folder / 'a'}", folder / "b")["findings"].set_index(
        "rule"
    )
