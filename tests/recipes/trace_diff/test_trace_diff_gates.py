"""Gates of trace_diff: exit codes, verdict.json, and what never passes."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ExitCode
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.run_record import gated
from nsys_llm.run.cli import main


def run(folder, *words):
    """Run the command and return exit code and verdict.json, None without one."""
    out = folder / f"out{len(list(folder.glob('out*')))}"
    code = main(["trace_diff", "--mode", "none", "--output", str(out), *map(str, words)])
    file = out / "verdict.json"
    return code, json.loads(file.read_text("utf-8")) if file.exists() else None


def report(path, *lengths, name="k", **others):
    """Write a report with kernels of these lengths, 1,000 ns apart."""
    trace = TraceBuilder(**others)
    for index, length in enumerate(lengths):
        at = 1_000 * (index + 1)
        trace.kernel(name, start_ns=at, duration_ns=length, launch=(at - 50, at - 20))
    return trace.write_sqlite(path)


@pytest.fixture
def pair(tmp_path):
    """Two kernels of 100 ns; then two of 103."""
    return report(tmp_path / "before.sqlite", 100, 100), report(tmp_path / "after.sqlite", 103, 103)


def sides(pair):
    return ["--baseline", pair[0], "--input", pair[1]]


def test_a_change_of_just_the_limit_passes_and_a_larger_one_is_exit_1(tmp_path, pair, capsys):
    code, verdict = run(tmp_path, *sides(pair), "--gate", "kernel(*):+3%", "kernel(k):+6ns")
    assert (code, verdict["verdict"], verdict["exit_code"]) == (0, "pass", 0)
    assert [gate["result"] for gate in verdict["gates"]] == ["pass", "pass"]
    assert verdict["gates"][0]["allowed"] == 6.0
    gates = "--gate", "kernel(*):+2%", "--gate", "kernel(*):+3%"
    code, verdict = run(tmp_path, *sides(pair), *gates)
    assert (code, verdict["verdict"]) == (1, "fail")
    assert [gate["result"] for gate in verdict["gates"]] == ["fail", "pass"]
    shown = capsys.readouterr()
    assert "error: gate failed: kernel(*):+2%: 200 ns -> 206 ns (+6 ns, +3.0 %)" in shown.err
    assert "Gates: fail (exit 1), 1 fail, 1 pass" in shown.out


def test_quiet_runs_print_what_did_not_pass_and_nothing_else(tmp_path, pair, capsys):
    run(tmp_path, *sides(pair), "--quiet", "--gate", "kernel(*):+2%", "idle_pct:+2pp")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1


def test_a_metric_that_cannot_be_computed_is_exit_3(tmp_path, pair):
    code, verdict = run(
        tmp_path,
        *sides(pair),
        "--gate",
        "kernel(*):+2%",
        "idle_time_per_step:+2%",
        "kernel(x*):+2%",
    )
    assert (code, verdict["verdict"], verdict["exit_code"]) == (3, "not_comparable", 3)
    reasons = [gate["reason"] for gate in verdict["gates"]]
    assert reasons[0] is None
    assert "--step-kernel" in reasons[1]
    assert reasons[2] == "no kernel is called 'x*' in what is compared"


@pytest.mark.parametrize("gate", ["speed:+3%", "step_time:3%", "idle_pct:+3ms", "@/nowhere"])
def test_a_gate_that_means_nothing_is_exit_2_and_nothing_is_read(tmp_path, gate, capsys):
    words = ["--baseline", tmp_path / "no", "--input", tmp_path / "no", "--gate", gate]
    try:
        code, verdict = run(tmp_path, *words)
    except SystemExit as error:  # argparse's own, for what a word means by itself
        code, verdict = error.code, None
    assert (code, verdict) == (2, None)
    assert ("/nowhere: cannot be read" if gate[0] == "@" else "gate") in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


def test_without_gates_there_is_a_verdict_all_the_same(tmp_path, pair):
    code, verdict = run(tmp_path, *sides(pair))
    assert (code, verdict["verdict"], verdict["gates"]) == (0, "none", [])
    assert set(verdict) == set(load_manifest("trace_diff").verdict)


EMPTY = TraceBuilder().nvtx("nothing", start_ns=1, end_ns=2)


@pytest.mark.parametrize("empty_side", [0, 1])
def test_an_empty_run_never_passes(tmp_path, pair, empty_side):
    empty = EMPTY.write_sqlite(tmp_path / "empty.sqlite")
    both = list(pair)
    both[empty_side] = empty
    code, verdict = run(tmp_path, *sides(both), "--gate", "kernel(*):+1000%", "kernel(*):+10s")
    assert code == 3
    assert {gate["result"] for gate in verdict["gates"]} == {"not_comparable"}
    assert "kernels" in [row["check"] for row in verdict["not_comparable"]]


@pytest.mark.parametrize("allowed", [[], ["--allow-missing-ranks"]])
def test_a_run_of_which_a_report_failed_never_passes(tmp_path, pair, allowed):
    broken = tmp_path / "rank1.sqlite"
    broken.write_bytes(b"no database")
    words = ["--baseline", pair[0], "--input", pair[0], broken, *allowed]
    code, verdict = run(tmp_path, *words, "--gate", "kernel(*):+1000%")
    assert code == 3
    assert verdict["gates"][0]["result"] == "not_comparable"
    assert "reports read" in verdict["gates"][0]["reason"]


def test_another_gpu_is_not_comparable(tmp_path):
    paths = [report(tmp_path / f"{gpu}.sqlite", 100, 100, gpu_name=gpu) for gpu in ("H100", "H200")]
    code, verdict = run(tmp_path, *sides(paths), "--gate", "kernel(*):+50%")
    assert code == 3
    assert [(row["check"], row["baseline"], row["input"]) for row in verdict["not_comparable"]] == [
        ("GPU", "H100", "H200")
    ]
    assert verdict["answer"].startswith(
        "NOT COMPARABLE: other hardware (`H100`, then `H200`); a window 1.10 -> 1.10 us (+0.0 %)"
    )


def test_sums_of_another_number_of_ranks_are_not_comparable_and_shares_are(tmp_path, pair):
    words = ["--baseline", pair[0], "--input", *pair]
    code, verdict = run(tmp_path, *words, "--gate", "kernel(*):+500%", "kernel_per_call(k):+5%")
    assert code == 3
    assert [gate["result"] for gate in verdict["gates"]] == ["not_comparable", "pass"]
    assert "ranks" in verdict["gates"][0]["reason"]


def test_further_runs_of_the_baseline_tell_its_noise(tmp_path, pair):
    # Baseline 200 ns; its repeats 196 and 204: 8 ns of noise, more than the 6 of the change.
    repeats = [
        report(tmp_path / "again.sqlite", 98, 98),
        report(tmp_path / "and_again.sqlite", 102, 102),
    ]
    words = [*sides(pair), "--baselines", *repeats, "--gate", "kernel(*):+2%"]
    code, verdict = run(tmp_path, *words)
    assert code == 0
    assert verdict["noise_runs"] == 2
    assert verdict["gates"][0]["noise"] == 8.0
    assert "runs of the baseline differ as much" in verdict["gates"][0]["reason"]
    tables = {
        name: pd.read_parquet(tmp_path / "out0" / f"{name}.parquet")
        for name in ("metrics", "kernels", "runs")
    }
    metrics = tables["metrics"].set_index("metric")
    assert metrics.loc["window", "noise"] == 4.0
    assert tables["kernels"]["noise_pct"].tolist() == [4.0]
    assert tables["runs"]["run"].tolist() == ["baseline", "input", "baseline-1", "baseline-2"]


@pytest.mark.slow
def test_noise_keeps_a_verdict_from_a_change_that_is_significant(tmp_path):
    def long_run(name, longer):
        lengths = [1_000 + 10 * index + longer for index in range(9)]
        trace = TraceBuilder()
        for index, length in enumerate(lengths):
            trace.kernel("k", start_ns=5_000 * index, duration_ns=length)
        return trace.write_sqlite(tmp_path / f"{name}.sqlite")

    before, after, again = long_run("a", 0), long_run("b", 150), long_run("c", 200)
    run(tmp_path, "--baseline", before, "--input", after)
    run(tmp_path, "--baseline", before, "--input", after, "--baselines", again)
    verdicts = [
        pd.read_parquet(tmp_path / out / "kernels.parquet")["verdict"].tolist()
        for out in ("out0", "out1")
    ]
    assert verdicts == [["regress"], ["none"]]


@pytest.mark.parametrize(
    ("before", "results", "after"),
    [
        (ExitCode.DONE, ["pass"], ExitCode.DONE),
        (ExitCode.DONE, ["pass", "fail"], ExitCode.GATE_FAILED),
        (ExitCode.DONE, ["fail", "not_comparable"], ExitCode.INCOMPLETE),
        (ExitCode.INCOMPLETE, ["fail"], ExitCode.INCOMPLETE),
        (ExitCode.FAULT, ["fail"], ExitCode.FAULT),
        (ExitCode.DONE, ["pass", "fail (probably)"], ExitCode.DONE),
        (ExitCode.DONE, ["fail", "fail (probably)"], ExitCode.GATE_FAILED),
        (ExitCode.DONE, [], ExitCode.DONE),
    ],
)
def test_the_code_that_weighs_most_wins(before, results, after):
    assert gated(before, results, "sure") is after
    if before is ExitCode.DONE and "fail (probably)" in results:
        assert gated(before, results, "probably") is ExitCode.GATE_FAILED


def test_an_empty_a_partial_and_another_run_tell_no_noise(tmp_path, pair):
    empty, folder = EMPTY.write_sqlite(tmp_path / "empty.sqlite"), tmp_path / "broken"
    folder.mkdir()
    report(folder / "rank0.sqlite", 900, 900)
    (folder / "rank1.sqlite").write_bytes(b"no database")
    other = report(tmp_path / "other.sqlite", 100, 100, name="other")
    words = [*sides(pair), "--baselines", empty, folder, other, "--allow-missing-ranks"]
    code, verdict = run(tmp_path, *words, "--gate", "kernel(k):+2%")
    assert (code, verdict["noise_runs"], verdict["gates"][0]["noise"]) == (1, 1, None)
