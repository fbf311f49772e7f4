"""Other work is no slower kernel: batches, launch sizes, other programs, and one rank's change."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from finding_numbers import checked
from results import analyse, read_frames, read_report

from nsys_llm.recipes.trace_diff.per_rank.step_numbers import (
    named_numbers,
    step_numbers,
    step_tokens,
    tokens_of,
)
from nsys_llm.recipes.trace_diff.tables.sizes import GEOMETRY, sizes_of
from nsys_llm.testing.trace_builder import TraceBuilder

GEMM, NORM, ATTENTION = "sm90_xmma_gemm_bf16_tn_n", "rms_norm_kernel", "flash_fwd_kernel"
#: Words that blame a kernel or the machine.
BLAME = {"slower_calls", "faster_calls", "uneven_calls", "few_calls", "slower_throughout"}


def compared_runs(folder, before, after):
    """Return the answer, the findings by rule, and the tables."""
    words = ["--baseline", *map(str, before)]
    out = analyse(folder / "out", *after, options=words, recipe="trace_diff")
    report = checked(read_report(out)["report"])
    findings = {}
    for finding in report["findings"]:
        findings.setdefault(finding["rule"], []).append(finding)
    return report["answer"], findings, read_frames(out)


def run(path, steps, seed=0):
    """Write a run; each step is a name, or None, and kernels as (name, ns, grid x)."""
    rng = np.random.default_rng(seed)
    trace = TraceBuilder(hostname="node").process(pid=1, name="server")
    at = 100_000
    for name, kernels in steps:
        begin = at - 3_000
        for kernel, length, grid in kernels:
            noisy = int(length * (1 + 0.005 * rng.standard_normal())) // 32 * 32
            call = (at - 2_000, at - 1_500)
            trace.kernel(kernel, start_ns=at, duration_ns=noisy, launch=call, grid=(grid, 1, 1))
            last, at = at, at + noisy + 3_000
        if name is not None:
            trace.nvtx(name, begin, last)
    return trace.write_sqlite(path)


@pytest.mark.parametrize(
    ("name", "numbers", "tokens"),
    [
        (
            "execute_context_4(8192)_generation_2(2)",
            {
                "context requests": 4,
                "context tokens": 8192,
                "generation requests": 2,
                "generation tokens": 2,
            },
            8194,
        ),
        ("decode bs=32", {"bs": 32}, 32),
        (
            "_forward_step 12: 3 ctx reqs, 512 ctx tokens, 8 gen reqs",
            {"ctx reqs": 3, "ctx tokens": 512, "gen reqs": 8},
            520,
        ),
        ("train batch_size=8, seq_len: 2048", {"batch_size": 8, "seq_len": 2048}, 16_384),
        ("forward: num_tokens=96 bs=4", {"num_tokens": 96, "bs": 4}, 96),
        ("prefill tokens: 512, decode tokens: 8", {"prefill tokens": 512, "decode tokens": 8}, 520),
        ("step 12", {}, None),
        ("iteration=7 rank: 3 layer_4", {}, None),
        ("ProfilerStep#12", {}, None),
        ("lr=0.125 loss: 2.5", {}, None),
    ],
)
def test_numbers_of_step_names_are_read(name, numbers, tokens):
    assert dict(named_numbers(name)) == numbers
    assert step_tokens(name) == tokens


def test_what_counts_up_is_no_work():
    assert step_numbers([f"phase: {n} size: {4 + n % 2}" for n in range(9)]) == (
        ("size", 9, 4 * 5 + 5 * 4),
    )
    assert tokens_of(["decode bs=4", "decode bs=8"]) == 12
    assert tokens_of(["decode bs=4", "decode"]) is None
    assert tokens_of([]) is None


@pytest.mark.parametrize("seed", range(20))
def test_size_effects_are_those_of_a_brute_force_sum(seed):
    rng = np.random.default_rng(seed)
    names, grids = ["a", "b", "c"], [1, 2, 4, 8]
    rows = [(name, grid, block) for name in names for grid in grids for block in (32, 64)]
    n = rng.integers(0, 5, (2, len(rows)))
    total = n * rng.integers(1, 1_000, (2, len(rows)))
    frame = pd.DataFrame(rows, columns=["name", "grid_x", "block_x"])
    for column in GEOMETRY:
        if column not in frame:
            frame[column] = 1
    frame = frame.assign(
        baseline_launches_n=n[0],
        input_launches_n=n[1],
        baseline_total_ns=total[0],
        input_total_ns=total[1],
        per_call_effect_ns=0,
        verdict="none",
    ).sample(frac=1, random_state=seed)
    sizes = sizes_of(frame)
    for name in names:
        of_name = [at for at, row in enumerate(rows) if row[0] == name]
        both = [at for at in of_name if n[0, at] and n[1, at]]
        # Exact up to the rounding of each row.
        same = sum(total[1, at] - n[1, at] * total[0, at] / n[0, at] for at in both)
        assert sizes.loc[name, "same_ns"] == pytest.approx(same, abs=0.5 * len(both))
        threads = [
            sum(n[side, at] * rows[at][1] * rows[at][2] for at in of_name) for side in (0, 1)
        ]
        assert sizes.loc[name, ["baseline_threads", "input_threads"]].tolist() == threads
        common = min(sum(n[side, at] for at in both) / n[side, of_name].sum() for side in (0, 1))
        assert sizes.loc[name, "common"] == pytest.approx(common)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_doubled_batch_is_more_work_and_no_slower_kernel(tmp_path, seed):
    # 40 steps of 16 and 20 of 32: as many tokens, each kernel 1.56 times as long at twice the grid;
    # attention keeps its grid, as persistent kernels do.
    def step(batch, factor):
        kernels = [(GEMM, 50_000, batch), (NORM, 8_000, batch), (ATTENTION, 30_000, 132)]
        return f"decode bs={batch}", [(name, ns * factor, grid) for name, ns, grid in kernels]

    before = run(tmp_path / "a.sqlite", [step(16, 1)] * 40, seed)
    after = run(tmp_path / "b.sqlite", [step(32, 1.56)] * 20, seed + 10)
    answer, findings, tables = compared_runs(tmp_path, [before], [after])
    assert answer.startswith("FASTER  ")
    assert "A step does 16 -> 32 tokens in the mean." in answer.splitlines()[1]
    runs = tables["runs"].set_index("run")
    assert runs["tokens_n"].tolist() == [640, 640]
    change_pct = 100 * (runs.loc["input", "kernel_ns"] / runs.loc["baseline", "kernel_ns"] - 1)
    assert change_pct == pytest.approx(-22, abs=0.5)
    verdict = tables["verdict"].iloc[0]
    assert (verdict["word"], verdict["basis"]) == ("FASTER", "token")
    wall = tables["wall_change"]
    compute = wall[wall["rank"].isna() & wall["detail"].isna()].set_index("wall_class")
    compute_row = compute.loc["compute"]
    assert 100 * compute_row["change_ns"] / compute_row["baseline_ns"] == pytest.approx(
        change_pct, abs=0.5
    )
    assert not findings.keys() & BLAME
    assert not [
        finding for of_rule in findings.values() for finding in of_rule if finding["severity"]
    ]
    checks = tables["comparability"].set_index("check")["status"]
    assert (checks["work of a step"], checks["steps"]) == ("per_step", "differs")


def test_the_same_batch_and_a_slower_kernel_is_a_slower_kernel(tmp_path):
    def step(norm):
        return "decode bs=16", [(GEMM, 50_000, 16), (NORM, norm, 16), (ATTENTION, 30_000, 132)]

    before = run(tmp_path / "a.sqlite", [step(8_000)] * 20)
    after = run(tmp_path / "b.sqlite", [step(24_000)] * 20, 7)
    answer, findings, _ = compared_runs(tmp_path, [before], [after])
    assert "work of a step" not in answer
    (finding,) = findings["slower_calls"]
    assert (finding["name"], finding["severity"]) == (NORM, "high")
    assert "other_sizes" not in findings


def test_a_launch_split_into_sixteen_is_the_same_work(tmp_path):
    before = run(tmp_path / "a.sqlite", [(None, [(GEMM, 400_000, 4_096), (NORM, 8_000, 16)])] * 20)
    split = [(GEMM, 26_000, 256)] * 16 + [(NORM, 8_000, 16)]
    after = run(tmp_path / "b.sqlite", [(None, split)] * 20, 3)
    answer, findings, _ = compared_runs(tmp_path, [before], [after])
    assert "split into more, smaller launches of the same total grid: 320 calls instead of 20" in (
        answer
    )
    for false in ("more often", "per call", "roblem sizes", "OTHER WORK"):
        assert false not in answer
    assert not findings.keys() & (BLAME | {"more_calls", "more_of_all", "other_sizes"})


def test_other_programs_are_not_more_of_the_same_work(tmp_path):
    # 7 % of the time in a kernel of both, which runs twice as often.
    before = run(tmp_path / "a.sqlite", [(None, [("one", 93_000, 8), (NORM, 7_000, 16)])] * 20)
    after = run(tmp_path / "b.sqlite", [(None, [("two", 93_000, 8), (NORM, 7_000, 16)])] * 40, 3)
    answer, findings, tables = compared_runs(tmp_path, [before], [after])
    assert "of the same work" not in answer
    assert answer.startswith("NOT COMPARABLE: no step with a name, and mostly other kernels")
    assert not findings.keys() & (BLAME | {"more_of_all"})
    assert tables["comparability"].set_index("check").loc["kernels", "status"] == "differs"


def test_twice_the_steps_of_one_program_are_more_of_the_same_work(tmp_path):
    work = [(None, [(GEMM, 93_000, 8), (NORM, 7_000, 16)])]
    before = run(tmp_path / "a.sqlite", work * 20)
    after = run(tmp_path / "b.sqlite", work * 40, 3)
    answer, findings, _ = compared_runs(tmp_path, [before], [after])
    assert answer.startswith("SAME  ")
    assert not [
        finding for of_rule in findings.values() for finding in of_rule if finding["severity"]
    ]


@pytest.mark.parametrize("ranks_n", [2, 4])
def test_a_kernel_that_changed_on_one_rank_is_one_fact(tmp_path, ranks_n):
    def ranks(folder, norm):
        folder.mkdir()
        return [
            run(
                folder / f"rank{rank}.sqlite",
                [(None, [(GEMM, 50_000, 16), (NORM, norm if rank == 1 else 8_000, 16)])] * 20,
                rank,
            )
            for rank in range(ranks_n)
        ]

    answer, findings, _ = compared_runs(
        tmp_path, ranks(tmp_path / "a", 8_000), ranks(tmp_path / "b", 24_000)
    )
    (finding,) = findings["one_rank"]
    assert (finding["rank"], finding["name"]) == (1, NORM)
    assert f"`{NORM}`" in answer
    assert "on this rank alone" in answer
    assert not findings.keys() & BLAME


@pytest.mark.parametrize("ranks_n", [2, 4])
@pytest.mark.parametrize("slow", ["one", "all"])
def test_all_kernels_of_one_rank_are_that_rank_and_not_every_machine(tmp_path, ranks_n, slow):
    def ranks(folder, factor):
        folder.mkdir()
        return [
            run(
                folder / f"rank{rank}.sqlite",
                [(None, [(name, round(ns * (factor if rank == 1 or slow == "all" else 1)), 16)
                         for name, ns in ((GEMM, 50_000), (ATTENTION, 30_000), (NORM, 9_000))])]
                * 20,
                rank,
            )
            for rank in range(ranks_n)
        ]  # fmt: skip

    answer, findings, _ = compared_runs(
        tmp_path, ranks(tmp_path / "a", 1.0), ranks(tmp_path / "b", 1.4)
    )
    assert ("slower_throughout" in findings) is (slow == "all")
    assert ("the machine rather than the code" in answer) is (slow == "all")
    if slow == "one":
        assert [finding["rank"] for finding in findings["one_rank"]] == [1]
    else:
        assert "one_rank" not in findings
