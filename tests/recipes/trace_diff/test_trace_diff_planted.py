"""Planted changes, with the innocent beside the guilty: what is blamed, and by how much."""

from __future__ import annotations

import pytest
from diff_jobs import ATTENTION, BALANCED, GEMM, GPU_BOUND, HOST_BOUND, NORM, Job
from finding_numbers import checked
from results import read_frames, read_report

from nsys_llm.run.cli import main


def compare(folder, before, after, *options):
    """Compare two jobs; return report.json's report, its findings by rule, and the tables."""
    paths = [job.write(folder / f"run{seed}", seed) for seed, job in enumerate((before, after))]
    out = folder / "out"
    words = ["--mode", "none", "--output", out, "--baseline", paths[0], "--input", paths[1]]
    assert main(["trace_diff", *map(str, [*words, *options])]) == 0
    report = checked(read_report(out)["report"])
    rules = {
        finding["rule"]: finding for finding in report["findings"] if finding["kind"] != "capture"
    }
    return report, rules, read_frames(out)


def word(tables):
    return tables["verdict"]["word"].iloc[0]


def test_a_host_as_fast_as_before_is_not_blamed_where_the_gpu_got_faster(tmp_path):
    """Half of the time a kernel: idle time grows by what the kernels no longer hide."""
    report, rules, tables = compare(tmp_path, Job(BALANCED), Job(BALANCED, gpu=0.5))
    assert word(tables) == "FASTER"
    assert "slower_host" not in rules
    assert "the work of the GPUs takes less and no longer hides it" in report["answer"]


def test_a_slower_host_costs_no_more_than_it_is_slower(tmp_path):
    factor = 1.3
    _, rules, tables = compare(tmp_path, Job(BALANCED), Job(BALANCED, gpu=0.5, host=factor))
    # Behind kernels that take half of their time, the host is the whole step.
    (after_ns,) = tables["verdict"]["input_ns"]
    assert rules["slower_host"]["gain_step_ns"] == pytest.approx(
        after_ns * (1 - 1 / factor), rel=0.05
    )


@pytest.mark.slow
def test_the_rank_whose_host_is_slow_is_blamed_and_nobody_is_idle_less(tmp_path):
    four = Job(HOST_BOUND, ranks=4)
    slow = Job(HOST_BOUND, ranks=4, host=1.5, rank=2)
    report, rules, tables = compare(tmp_path, four, slow)
    assert word(tables) == "SLOWER"
    assert rules.keys() == {"idle_rank", "waiting"}
    assert rules["idle_rank"]["rank"] == 2
    # 21 launches, each 4.5 us later.
    assert rules["idle_rank"]["gain_step_ns"] == pytest.approx(21 * 4_500, rel=0.06)
    assert "rank 2 alone is idle 94.5 us longer (mostly `launch_api`)" in report["answer"]


@pytest.mark.slow
def test_the_rank_whose_gpu_is_slow_is_the_cause_and_not_the_waiting(tmp_path):
    report, rules, tables = compare(tmp_path, Job(ranks=4), Job(ranks=4, gpu=1.2, rank=2))
    assert word(tables) == "SLOWER"
    assert rules["one_rank"]["rank"] == 2
    # 336 us of kernels in a step, a fifth more.
    assert rules["one_rank"]["gain_step_ns"] == pytest.approx(336_000 / 5, rel=0.02)
    assert "on rank 2 alone 20.0 % longer (+0.0 % on the others)" in report["answer"]


def test_clocks_that_are_5_percent_lower_are_one_finding(tmp_path):
    report, rules, tables = compare(tmp_path, Job(), Job(gpu=1.05))
    assert word(tables) == "SLOWER"
    assert rules.keys() == {"slower_throughout"}
    assert rules["slower_throughout"]["gain_step_ns"] == pytest.approx(336_000 / 20, rel=0.03)
    assert ": nearly all kernels take 4.9 % longer" in report["answer"]


def test_kernels_of_which_half_got_slower_are_not_slower_alike(tmp_path):
    after = ((GEMM, 62_400, 64, 4), (NORM, 4_000, 64, 4), (ATTENTION, 40_000, 128, 2))
    _, rules, _ = compare(tmp_path, Job(), Job(after))
    assert rules.keys() == {"slower_calls"}


def test_fused_kernels_are_exchanged_for_those_that_they_replace(tmp_path):
    fused = (("triton_poi_fused_add_0", 50_000, 32, 4), ("triton_red_fused_1", 30_000, 16, 4))
    report, rules, tables = compare(tmp_path, Job(), Job(fused))
    assert word(tables) == "FASTER"
    assert "Other kernels for the same work" in report["answer"]
    assert {rule: finding["kind"] for rule, finding in rules.items()} == {
        "other_kernels": "improvement"
    }
    # 320 us of kernels where there were 336.
    assert "320 us, 3 kernels of 336 us gone" in rules["other_kernels"]["details"]


def test_one_long_step_may_be_chance_and_is_said(tmp_path):
    report, rules, tables = compare(tmp_path, Job(), Job(late_ns={12: 30_000_000}))
    assert word(tables) == "UNCERTAIN"
    assert rules == {}
    assert "1 of 30 steps takes more than twice the median (0 before)" in report["answer"]
    verdict = tables["verdict"].iloc[0]
    assert verdict["input_p50_ns"] == pytest.approx(verdict["baseline_p50_ns"], rel=0.005)
    assert -100 < verdict["low_pct"] < verdict["change_pct"] < verdict["high_pct"]


def _serving(every):
    """Return prefills, one in so many steps, and decodes."""
    return {
        "kernels": lambda step: GPU_BOUND if step % every else ((GEMM, 400_000, 512, 2),),
        "name": lambda step: "decode" if step % every else "prefill",
    }


def test_another_mix_of_steps_changes_no_kernel(tmp_path):
    def vllm(every):
        names = ("execute_context_1(1024)_generation_0(0)", "execute_context_0(0)_generation_8(8)")
        return _serving(every) | {"name": lambda step: names[bool(step % every)]}

    report, rules, tables = compare(tmp_path, Job(**vllm(10)), Job(**vllm(3)))
    assert word(tables) == "SAME"
    assert rules == {}
    assert "The mix of steps changed (" in report["answer"]
    assert "instead of" not in report["answer"]


def test_steps_of_several_names_are_compared_where_step_names_them_all(tmp_path):
    before, after = Job(**_serving(10)), Job(**_serving(3))
    report, rules, tables = compare(tmp_path, before, after, "--step", "re:^(prefill|decode)")
    assert word(tables) == "SAME"
    assert rules == {}
    assert "`prefill` 10 -> 33 % of the steps" in report["answer"]


@pytest.mark.parametrize("step", [(), ("--step", "re:^(step|iteration)")])
def test_renamed_steps_are_other_work_unless_step_names_both(tmp_path, step):
    _, _, tables = compare(tmp_path, Job(), Job(name="iteration"), *step)
    assert word(tables) == ("SAME" if step else "OTHER WORK")


@pytest.mark.slow
def test_more_ranks_are_missing_in_the_baseline(tmp_path):
    paths = [Job(ranks=n).write(tmp_path / str(n), n) for n in (2, 4)]
    out = tmp_path / "out"
    words = ["--mode", "none", "--output", out, "--baseline", paths[0], "--input", paths[1]]
    assert main(["trace_diff", *map(str, words)]) == 3
    assert word(read_frames(out)) == "SAME"
    answer = read_report(out)["report"]["answer"]
    assert "2 -> 4 ranks: ranks 2 and 3 are missing in the baseline; 2 compared" in answer


def test_a_change_within_the_noise_of_baselines_is_within_noise(tmp_path):
    again = Job(BALANCED, gpu=1.03).write(tmp_path / "again", 5)
    report, _, tables = compare(
        tmp_path, Job(BALANCED), Job(BALANCED, gpu=1.025), "--baselines", again, "--gate",
        "step_time:+1%",
    )  # fmt: skip
    assert word(tables) == "SAME"
    assert tables["gates"]["result"].tolist() == ["pass"]
    assert "; within noise)" in report["answer"].splitlines()[0]
