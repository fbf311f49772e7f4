"""Gates of trace_diff on what a capture does not hold, or does not compare: never a pass."""

from __future__ import annotations

import json

import pytest
from trace_builder import TraceBuilder

from nsys_llm.run.cli import main


def gated(folder, before, after, *gates, options=()):
    """Run gates on two reports; return exit code, results by gate, reasons by gate, answer."""
    out = folder / f"out{len(list(folder.glob('out*')))}"
    words = ["--baseline", before, "--input", after, *options, "--gate", *gates]
    code = main(["trace_diff", "--mode", "none", "--output", str(out), *map(str, words)])
    verdict = json.loads((out / "verdict.json").read_text("utf-8"))
    results = {gate["gate"]: gate["result"] for gate in verdict["gates"]}
    reasons = {gate["gate"]: gate["reason"] for gate in verdict["gates"]}
    return code, results, reasons, verdict["answer"]


def run(path, lengths, *, name="k", steps=None, outside=0):
    """Write kernels of these lengths; `steps`: each in a range of the name; before them `outside`.

    The kernels of `outside` are 1,000 ns long, and in no step.
    """
    trace = TraceBuilder(hostname="node").process(pid=1, name="server")
    at = 10_000
    for _ in range(outside):
        trace.kernel("load", start_ns=at, duration_ns=1_000, launch=(at - 50, at - 20))
        at += 2_000
    for index, length in enumerate(lengths):
        trace.kernel(name, start_ns=at, duration_ns=length, launch=(at - 50, at - 20))
        if steps:
            trace.nvtx(f"{steps} {index}", start_ns=at - 60, end_ns=at - 10)
        at += length + 1_000
    return trace.write_sqlite(path)


def test_kernels_in_whole_graphs_pass_no_gate_and_are_told(tmp_path):
    # Graphs of 100 and of 300 ns, each one row, and a kernel of 50 outside of them.
    paths = []
    for side, length in (("before", 100), ("after", 300)):
        trace, at = TraceBuilder(hostname="node").process(pid=1, name="server"), 10_000
        for _ in range(10):
            node = [("inside", at, at + length)]
            trace.graph_launch(node, launch=(at - 90, at - 80), mode="graph")
            trace.kernel("k", start_ns=at + 400, duration_ns=50, launch=(at + 320, at + 330))
            at += 1_000
        paths.append(trace.write_sqlite(tmp_path / f"{side}.sqlite"))
    unseen = ["kernel(*):+3%", "kernel(k):+3%", "exposed_comm:+1ms"]
    code, results, reasons, answer = gated(tmp_path, *paths, *unseen, "idle_pct:+2pp")
    assert code == 3
    assert {results[gate] for gate in unseen} == {"not_comparable"}
    assert "--cuda-graph-trace=node" in reasons["kernel(*):+3%"]
    assert results["idle_pct:+2pp"] == "pass"
    assert "(10 and 10 graphs were traced as a whole" in answer
    assert "busy for 1.5 us in the baseline and 3.5 us in the input" in answer


@pytest.mark.parametrize(
    ("option", "name"), [("--step-kernel", "nothere"), ("--step", "nothere #")]
)
def test_steps_of_one_run_alone_pass_no_gate_on_steps(tmp_path, option, name):
    before = run(tmp_path / "before.sqlite", [100] * 9)
    after = run(tmp_path / "after.sqlite", [100] * 9, name="nothere", steps="nothere")
    gate, options = "idle_time_per_step:+3%", [option, name]
    _, _, reasons, _ = gated(tmp_path, before, after, gate, options=options)
    assert reasons[gate] == "no step found in the baseline; give --step"


def test_less_of_the_same_work_in_as_long_a_window_passes_no_gate_on_sums(tmp_path):
    # A window of a given length: each call takes a quarter longer, so there are fewer of them.
    before = run(tmp_path / "before.sqlite", [1_000] * 50)
    after = run(tmp_path / "after.sqlite", [1_250] * 44)
    gates = ["kernel(*):+12%", "kernel_per_call(k):+3%", "idle_pct:+2pp"]
    code, results, reasons, answer = gated(tmp_path, before, after, *gates)
    assert (code, list(results.values())) == (3, ["not_comparable", "fail", "pass"])
    assert reasons["kernel(*):+12%"] == "sums over the runs are not comparable: kernels"
    assert "nearly all kernels launched 12.0 % less often, in proportion" in answer


@pytest.mark.slow
def test_work_outside_of_steps_hides_no_slower_step(tmp_path):
    # 10 x 1,000 ns outside: 1,000 a step of 10, and 250 a step of 40, which would hide 500 more.
    before = run(tmp_path / "before.sqlite", [1_000] * 10, steps="step", outside=10)
    after = run(tmp_path / "after.sqlite", [1_500] * 40, steps="step", outside=10)
    gates = ["kernel(*):+3%", "kernel(k):+3%", "idle_pct:+50pp"]
    gates += ["kernel(load):+3%", "exposed_comm:+3%"]
    code, results, reasons, _ = gated(tmp_path, before, after, *gates)
    assert (code, list(results.values())[:3]) == (3, ["fail", "fail", "pass"])
    assert reasons["kernel(load):+3%"] == (
        "no kernel is called 'load' in what the compared steps launch"
    )
    assert reasons["exposed_comm:+3%"] == "sums over the runs are not comparable: steps, window"


@pytest.mark.slow
@pytest.mark.parametrize(
    "repeat",
    [
        {"lengths": [1_000] * 100, "steps": "step"},
        {"lengths": [9_000] * 3, "steps": "epoch"},
        {"lengths": [9_000] * 10},
    ],
    ids=["longer", "other steps", "no steps"],
)
def test_a_further_run_of_other_work_tells_no_noise_that_would_hide_a_change(tmp_path, repeat):
    before = run(tmp_path / "before.sqlite", [1_000] * 10, steps="step")
    after = run(tmp_path / "after.sqlite", [2_000] * 10, steps="step")
    again = run(tmp_path / "again.sqlite", **repeat)
    options = ["--baselines", again]
    gates = ["window:+3%", "kernel(*):+3%"]
    code, results, _, _ = gated(tmp_path, before, after, *gates, options=options)
    assert (code, set(results.values())) == (1, {"fail"})
