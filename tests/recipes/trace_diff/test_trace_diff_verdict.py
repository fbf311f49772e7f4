"""The verdict of trace_diff on planted runs: faster, slower, the same, other work; the cause."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from finding_numbers import checked
from results import read_frames, read_report

from nsys_llm.run.cli import main
from nsys_llm.testing.trace_builder import TraceBuilder

GEMM, NORM, COPY = "sm90_xmma_gemm_bf16_tn_n", "rms_norm_kernel", "copy_kernel"
FULL = 30


def compare(folder, before, after, *options):
    """Compare; return the exit code, report.json's report, and the tables."""
    out = folder / f"out{len(list(folder.glob('out*')))}"
    words = ["--mode", "none", "--output", out, "--baseline", before, "--input", after, *options]
    code = main(["trace_diff", *map(str, words)])
    return code, checked(read_report(out)["report"]), read_frames(out)


def write(path, *, seed=0, steps=FULL, names="step", kernels=((GEMM, 60_000, 64, 4),), **host):
    """Write steps of kernels as (name, ns, grid x, calls), each launched when the last one ended.

    Args:
        path: Of the report.
        seed: Of the jitter, of about 1 % a step.
        steps: How many.
        names: Of the steps' ranges; a function of the number, or a text before it.
        kernels: See above.
        host: factor of all that the host does; late_ns, idle time in each step; flush_ns, time of
            the profiler in every fifth.
    """
    rng = np.random.default_rng(seed)
    factor, late_ns, flush_ns = (host.get(name, default) for name, default in
                                 (("factor", 1.0), ("late_ns", 0), ("flush_ns", 0)))  # fmt: skip
    trace, at = TraceBuilder(hostname="node").process(pid=1, name="server"), 100_000
    for step in range(steps):
        begin = at
        if flush_ns and step % 5 == 2:
            trace.overhead("CUPTI activity buffer flush", start_ns=at + 100, end_ns=at + flush_ns)
            at += flush_ns + 200
        for name, length, grid, calls in kernels:
            for _ in range(calls):
                view = round(factor * 3_000 * (1 + 0.01 * rng.standard_normal()))
                call = round(factor * 6_000 * (1 + 0.01 * rng.standard_normal()))
                trace.nvtx("aten::view", at, at + view)
                start = at + view + call
                took = round(length * (1 + 0.002 * rng.standard_normal()))
                trace.kernel(name, start_ns=start, duration_ns=took, grid=(grid, 1, 1),
                             launch=(at + view, start))  # fmt: skip
                at = start + took
        at += late_ns
        text = names(step) if callable(names) else f"{names} {step}"
        trace.nvtx(text, begin, at - 1)
    return trace.write_sqlite(path)


def classes(tables):
    """Return the changes by class of the mean GPU."""
    wall = tables["wall_change"]
    rows = wall[wall["rank"].isna() & wall["detail"].isna()]
    return rows.set_index("wall_class")


def check_sums(tables):
    """Check that classes add up to the step, and details to their class, on every GPU."""
    verdict, wall = tables["verdict"].iloc[0], tables["wall_change"]
    for key, gpu in wall.groupby(["rank", "device_id"], dropna=False):
        whole = gpu[gpu["detail"].isna()]
        for side in ("baseline", "input", "change"):
            if pd.isna(key[0]):
                assert whole[f"{side}_ns"].sum() == pytest.approx(verdict[f"{side}_ns"])
            for name, rows in gpu[gpu["detail"].notna()].groupby("wall_class"):
                whole_ns = whole.set_index("wall_class").loc[name, f"{side}_ns"]
                assert rows[f"{side}_ns"].sum() == pytest.approx(whole_ns, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_slower_kernel_is_slower_and_back_it_is_faster(tmp_path, seed):
    before = write(tmp_path / "a.sqlite", seed=seed)
    after = write(tmp_path / "b.sqlite", seed=seed + 10, kernels=((GEMM, 66_000, 64, 4),))
    _, report, tables = compare(tmp_path, before, after)
    there = tables["verdict"].iloc[0]
    assert (there["word"], there["unit"]) == ("SLOWER", "step")
    # Four launches of 60 us, 9 us of the host before each; 6 us more of each.
    assert there["baseline_ns"] == pytest.approx(4 * 69_000, rel=0.002)
    assert there["change_ns"] == pytest.approx(4 * 6_000, rel=0.05)
    assert there["low_pct"] < there["change_pct"] < there["high_pct"]
    assert classes(tables).loc["compute", "change_ns"] == pytest.approx(24_000, rel=0.05)
    check_sums(tables)
    (finding,) = [finding for finding in report["findings"] if finding["rule"] == "slower_calls"]
    assert finding["gain_step_ns"] == pytest.approx(24_000, rel=0.05)
    assert finding["severity"] == "medium"
    assert "slower_host" not in {finding["rule"] for finding in report["findings"]}
    _, report, tables = compare(tmp_path, after, before)
    back = tables["verdict"].iloc[0]
    assert back["word"] == "FASTER"
    assert back["change_ns"] == -there["change_ns"]
    (finding,) = [finding for finding in report["findings"] if finding["rule"] == "faster_calls"]
    assert (finding["kind"], finding["severity"]) == ("improvement", None)


@pytest.mark.slow
def test_a_run_and_itself_and_a_run_again_are_the_same(tmp_path):
    before = write(tmp_path / "a.sqlite")
    again = write(tmp_path / "b.sqlite", seed=5)
    for after in (before, again):
        _, report, tables = compare(tmp_path, before, after)
        assert tables["verdict"]["word"].tolist() == ["SAME"]
        assert report["answer"].startswith("SAME  ")
        assert not [finding for finding in report["findings"] if finding["kind"] != "capture"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.03, 1.5])
def test_a_slower_host_is_found_by_its_factor(tmp_path, seed, factor):
    # The GPU waits for the host for most of each step.
    kernels = ((NORM, 1_000, 64, 20),)
    before = write(tmp_path / "a.sqlite", seed=seed, kernels=kernels)
    after = write(tmp_path / "b.sqlite", seed=seed + 10, kernels=kernels, factor=factor)
    _, report, tables = compare(tmp_path, before, after)
    assert tables["verdict"]["word"].tolist() == ["SLOWER"]
    host = tables["host"].set_index("name")
    assert host.loc["cudaLaunchKernel", "p50_ratio"] == pytest.approx(factor, abs=0.005)
    assert host.loc["aten::view", "p50_ratio"] == pytest.approx(factor, abs=0.005)
    (finding,) = [finding for finding in report["findings"] if finding["rule"] == "slower_host"]
    change = classes(tables).loc["idle", "change_ns"]
    assert change == pytest.approx(20 * 9_000 * (factor - 1), rel=0.1)
    assert finding["gain_step_ns"] == pytest.approx(change, rel=0.02)
    assert "cause: the host: " in report["answer"]
    assert f"{factor:.3g} times as long" in report["answer"]
    check_sums(tables)


def test_a_host_that_does_more_is_no_slower_host(tmp_path):
    before = write(tmp_path / "a.sqlite")
    after = write(tmp_path / "b.sqlite", seed=3, late_ns=60_000)
    _, report, tables = compare(tmp_path, before, after)
    assert tables["verdict"]["word"].tolist() == ["SLOWER"]
    rules = {finding["rule"] for finding in report["findings"]}
    assert "slower_host" not in rules
    assert "more_idle" in rules
    assert "cause: the host" not in report["answer"]


def test_a_slower_host_that_nobody_waits_for_is_no_cause(tmp_path):
    """Launches run ahead of the GPU: they take twice as long, and steps as long as before."""
    paths = []
    for side, call in (("a", 4_000), ("b", 8_000)):
        trace, at, host = TraceBuilder().process(pid=1, name="x"), 200_000, 100_000
        for step in range(FULL):
            begin = host
            for index in range(4):
                trace.kernel(GEMM, start_ns=at, duration_ns=20_000 + 32 * (index % 3),
                             launch=(host, host + call + index))  # fmt: skip
                host, at = host + 10_000, at + 20_100
            trace.nvtx(f"step {step}", begin, host - 1)
        paths.append(trace.write_sqlite(tmp_path / f"{side}.sqlite"))
    _, report, tables = compare(tmp_path, *paths)
    assert tables["host"].set_index("name").loc["cudaLaunchKernel", "p50_ratio"] > 1.9
    assert tables["verdict"]["word"].tolist() == ["SAME"]
    assert "slower_host" not in {finding["rule"] for finding in report["findings"]}


def test_the_profilers_flushes_are_no_slower_program(tmp_path):
    before = write(tmp_path / "a.sqlite")
    after = write(tmp_path / "b.sqlite", seed=4, flush_ns=200_000)
    _, report, tables = compare(tmp_path, before, after)
    verdict = tables["verdict"].iloc[0]
    assert verdict["word"] == "SAME"
    assert verdict["change_pct"] > 10
    assert abs(verdict["program_change_pct"]) < 1
    assert "without the profiler's flushes" in report["answer"].splitlines()[0]
    assert classes(tables).loc["profiler", "change_ns"] == pytest.approx(40_000, rel=0.05)


@pytest.mark.parametrize("named", [True, False])
def test_a_doubled_batch_is_told_by_token_or_is_other_work(tmp_path, named):
    def side(path, batch, ns, seed):
        names = (lambda _: f"decode bs={batch}") if named else "decode"
        kernels = ((GEMM, ns, 64 * batch, 4), (NORM, ns // 10, batch, 8))
        return write(path, names=names, kernels=kernels, seed=seed)

    before = side(tmp_path / "a.sqlite", 16, 60_000, 1)
    after = side(tmp_path / "b.sqlite", 32, 90_000, 2)
    _, report, tables = compare(tmp_path, before, after)
    verdict = tables["verdict"].iloc[0]
    if not named:
        assert verdict["word"] == "OTHER WORK"
        assert "problem sizes changed" in report["answer"]
        assert not [finding for finding in report["findings"] if finding["severity"]]
        return
    assert (verdict["word"], verdict["unit"]) == ("OTHER WORK", "decode step")
    # 4 x 60 + 8 x 6 us and 12 x 9 us of the host, by 16; then 4 x 90 + 8 x 9 and 12 x 9, by 32.
    assert verdict["baseline_token_ns"] == pytest.approx((288_000 + 108_000) / 16, rel=0.01)
    assert verdict["input_token_ns"] == pytest.approx((432_000 + 108_000) / 32, rel=0.01)
    assert verdict["low_pct"] < verdict["change_pct"] < verdict["high_pct"]
    assert report["answer"].startswith("OTHER WORK: batch 16 -> 32; -31.8 % a token; ")
    check_sums(tables)


def test_a_launch_in_sixteen_parts_is_the_same_work_and_more_of_it_is_not(tmp_path):
    before = write(tmp_path / "a.sqlite", kernels=((GEMM, 320_000, 4_096, 1), (NORM, 9_000, 8, 2)))
    split = ((GEMM, 20_000, 256, 16), (NORM, 9_000, 8, 2))
    after = write(tmp_path / "b.sqlite", seed=2, kernels=split)
    _, report, tables = compare(tmp_path, before, after)
    # 15 more launches, each of 9 us on the host.
    verdict = tables["verdict"].iloc[0]
    assert verdict["word"] == "SLOWER"
    assert verdict["change_ns"] == pytest.approx(15 * 9_000, rel=0.05)
    more = ((GEMM, 320_000, 4_096, 2), (NORM, 9_000, 8, 4))
    other = write(tmp_path / "c.sqlite", seed=3, kernels=more)
    _, report, tables = compare(tmp_path, before, other)
    assert tables["verdict"]["word"].tolist() == ["OTHER WORK"]
    assert "aunches a step changed" in report["answer"]


def test_other_kernels_for_the_same_work_get_a_verdict(tmp_path):
    before = write(tmp_path / "a.sqlite", kernels=(("flash_fwd_v2", 90_000, 64, 4),))
    after = write(tmp_path / "b.sqlite", seed=2, kernels=(("flash_fwd_v3", 60_000, 132, 4),))
    _, _, tables = compare(tmp_path, before, after)
    assert tables["verdict"]["word"].tolist() == ["FASTER"]


def test_another_mix_of_steps_is_said_and_equal_steps_are_compared(tmp_path):
    """One prefill in ten steps, then one in three: nothing got slower."""

    def side(path, every, seed, decode_ns=40_000):
        rng = np.random.default_rng(seed)
        trace, at = TraceBuilder().process(pid=1, name="x"), 100_000
        for step in range(60):
            prefill = step % every == 1
            took = round((400_000 if prefill else decode_ns) * (1 + 0.01 * rng.standard_normal()))
            trace.kernel(GEMM, start_ns=at + 9_000, duration_ns=took, launch=(at + 100, at + 5_000))
            amounts = (2, 1024, 0, 0) if prefill else (0, 0, 8, 8)
            text = "execute_context_{}({})_generation_{}({})".format(*amounts)
            trace.nvtx(text, at, at + 9_000 + took)
            at += 10_000 + took
        return trace.write_sqlite(path)

    before, after = side(tmp_path / "a.sqlite", 10, 1), side(tmp_path / "b.sqlite", 3, 2)
    _, report, tables = compare(tmp_path, before, after)
    verdict = tables["verdict"].iloc[0]
    assert verdict["word"] == "SAME"
    assert abs(verdict["change_pct"]) < 1
    assert "The mix of steps changed (" in report["answer"].splitlines()[1]
    check_sums(tables)
    slower = side(tmp_path / "c.sqlite", 3, 3, decode_ns=44_000)
    _, _, tables = compare(tmp_path, before, slower)
    assert tables["verdict"]["word"].tolist() == ["SLOWER"]


def test_few_steps_tell_a_size_and_no_steps_need_equal_launches(tmp_path):
    few = [write(tmp_path / f"{ns}.sqlite", steps=4, kernels=((GEMM, ns, 64, 4),))
           for ns in (60_000, 90_000)]  # fmt: skip
    _, report, tables = compare(tmp_path, *few)
    assert tables["verdict"]["uncertain"].tolist() == [True]
    assert report["answer"].startswith("UNCERTAIN  ")
    once = [
        TraceBuilder()
        .kernel("a", start_ns=9, duration_ns=ns)
        .write_sqlite(tmp_path / f"x{ns}.sqlite")
        for ns in (1_000, 1_500)
    ]
    _, _, tables = compare(tmp_path, *once)
    verdict = tables["verdict"].iloc[0]
    assert (verdict["word"], verdict["basis"], verdict["change_ns"]) == ("SLOWER", "window", 500)
    assert verdict["uncertain"]
    other = (
        TraceBuilder()
        .kernel("b", start_ns=1_000, duration_ns=9)
        .write_sqlite(tmp_path / "z.sqlite")
    )
    _, report, _ = compare(tmp_path, once[0], other)
    assert report["answer"].startswith("NOT COMPARABLE: ")
    assert "give --step" in report["answer"]


def test_gates_on_the_time_of_a_step(tmp_path):
    before = write(tmp_path / "a.sqlite")
    after = write(tmp_path / "b.sqlite", seed=1, kernels=((GEMM, 66_000, 64, 4),))
    gates = ["--gate", "step_time:+3%", "steps_per_second:-3%", "window:+3%"]
    code, _, tables = compare(tmp_path, before, after, *gates)
    assert code == 1
    assert tables["gates"]["result"].tolist() == ["fail"] * 3
    code, _, tables = compare(tmp_path, before, after, "--gate", "step_time:+10%",
                              "steps_per_second:-10%")  # fmt: skip
    assert (code, tables["gates"]["result"].tolist()) == (0, ["pass", "pass"])
    code, _, tables = compare(tmp_path, after, before, *gates)
    assert code == 0
    # Runs of the baseline differ by more than the limit.
    other = write(tmp_path / "c.sqlite", seed=2, kernels=((GEMM, 68_000, 64, 4),))
    code, _, tables = compare(tmp_path, before, after, "--baselines", other, *gates[:3])
    assert code == 0
    assert tables["verdict"]["word"].tolist() == ["SAME"]


def test_gates_on_steps_need_steps(tmp_path):
    once = [TraceBuilder().kernel("a", start_ns=1_000, duration_ns=9).write_sqlite(
        tmp_path / f"{side}.sqlite") for side in "xy"]  # fmt: skip
    code, _, tables = compare(tmp_path, *once, "--gate", "step_time:+3%", "window:+3%")
    assert code == 3
    assert tables["gates"]["result"].tolist() == ["not_comparable", "pass"]
    assert tables["gates"]["reason"][0] == "no step found; give --step"
    assert main(["trace_diff", "--baseline", str(once[0]), "--input", str(once[1]), "--output",
                 str(tmp_path / "o"), "--gate", "steps_per_second:+3%"]) == 2  # fmt: skip


def test_factors_are_told_as_factors(tmp_path):
    before = write(tmp_path / "a.sqlite")
    after = write(tmp_path / "b.sqlite", seed=1, kernels=((GEMM, 14_400_000, 64, 4),))
    _, report, _ = compare(tmp_path, before, after)
    assert "(209 times)" in report["answer"].splitlines()[0]
    assert "%" not in report["answer"].splitlines()[0]
