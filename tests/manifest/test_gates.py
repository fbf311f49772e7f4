"""Gates: what can be typed, what it means, and when it passes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.declared import Metric
from nsys_llm.manifest.gates import FAIL, NOT_COMPARABLE, PASS, gate_texts, judge, parse_gates
from nsys_llm.manifest.manifest import load_manifest

METRICS = (
    Metric("gpu_time", "ns", "Time."),
    Metric("idle_pct", "%", "Share."),
    Metric("copy_bytes", "bytes", "Bytes."),
    Metric("launches", "count", "Number."),
    Metric("kernel", "ns", "Kernels.", "GLOB"),
)


def gate(text):
    (parsed,) = parse_gates([text], METRICS)
    return parsed


@pytest.mark.parametrize(
    ("text", "metric", "argument", "limit", "relative"),
    [
        ("gpu_time:+3%", "gpu_time", None, 3, True),
        (" gpu_time : + 2.5 % ", "gpu_time", None, Fraction(5, 2), True),
        ("gpu_time:+10ms", "gpu_time", None, 10_000_000, False),
        ("gpu_time:+0.5us", "gpu_time", None, 500, False),
        ("idle_pct:+2pp", "idle_pct", None, 2, False),
        ("idle_pct:+2%", "idle_pct", None, 2, True),
        ("copy_bytes:+1.5MB", "copy_bytes", None, 1_500_000, False),
        ("launches:+100", "launches", None, 100, False),
        ("kernel(flash*):+2%", "kernel", "flash*", 2, True),
        ("kernel(void f<int>(a, b)):+0ns", "kernel", "void f<int>(a, b)", 0, False),
        ("kernel(a:+1%):+2%", "kernel", "a:+1%", 2, True),
    ],
)
def test_what_can_be_typed(text, metric, argument, limit, relative):
    parsed = gate(text)
    assert (parsed.metric, parsed.argument, parsed.limit, parsed.relative) == (
        metric,
        argument,
        limit,
        relative,
    )
    assert parsed.text == text.strip()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu_time", r"is not METRIC:\+LIMIT"),
        ("gpu_time:-3%", r"is not METRIC:\+LIMIT"),
        ("", r"is not METRIC:\+LIMIT"),
        ("speed:+3%", "there is no metric 'speed'"),
        ("kernel:+3%", r"write kernel\(GLOB\):\+LIMIT"),
        ("kernel():+3%", r"write kernel\(GLOB\):\+LIMIT"),
        ("gpu_time(x):+3%", r"write gpu_time:\+LIMIT"),
    ],
)
def test_what_is_no_gate_is_told_with_the_legal_metrics(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        gate(text)
    assert "gpu_time, idle_pct, copy_bytes, launches, kernel(GLOB)" in caught.value.message


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("gpu_time:+3pp", "% or ns, us, ms, s, not 'pp'"),
        ("idle_pct:+3ms", "% or pp, not 'ms'"),
        ("launches:+3ms", "% or a plain number, not 'ms'"),
        ("gpu_time:+3", "% or ns, us, ms, s, not ''"),
    ],
)
def test_a_limit_has_the_units_of_its_metric(text, units):
    with pytest.raises(UsageError) as caught:
        gate(text)
    assert units in caught.value.message


@pytest.mark.parametrize(
    ("text", "before", "after", "result"),
    [
        ("gpu_time:+3%", 100, 103, PASS),
        ("gpu_time:+3%", 100, Fraction(10_300_001, 100_000), FAIL),
        ("gpu_time:+0%", 100, 100, PASS),
        ("gpu_time:+10ns", 100, 110, PASS),
        ("gpu_time:+10ns", 100, 111, FAIL),
        ("idle_pct:+2pp", 10, 12, PASS),
        ("idle_pct:+2pp", 10, 13, FAIL),
        ("idle_pct:+50%", 10, 15, PASS),
        # A share of nothing is no limit; nothing that stays nothing is no change.
        ("gpu_time:+3%", 0, 1, NOT_COMPARABLE),
        ("gpu_time:+3%", 0, 0, PASS),
        ("gpu_time:+10ns", 0, 5, PASS),
        ("gpu_time:+3%", None, 5, NOT_COMPARABLE),
        ("gpu_time:+3%", 5, None, NOT_COMPARABLE),
    ],
)
def test_when_a_gate_passes(text, before, after, result):
    values = [None if value is None else Fraction(value) for value in (before, after)]
    assert judge(gate(text), *values, None).result == result


def test_what_equal_runs_differ_by_passes_and_says_so():
    judgment = judge(gate("gpu_time:+3%"), Fraction(100), Fraction(105), Fraction(6))
    assert judgment.result == PASS
    assert "runs of the baseline differ as much" in judgment.reason
    assert judge(gate("gpu_time:+3%"), Fraction(100), Fraction(107), Fraction(6)).result == FAIL


def test_a_file_holds_gates_one_a_line(tmp_path):
    file = tmp_path / "gates.txt"
    file.write_text("# of the nightly run\ngpu_time:+3%   # of all\n\nidle_pct:+2pp\n")
    assert gate_texts(f"@{file}") == ("gpu_time:+3%", "idle_pct:+2pp")
    assert gate_texts("gpu_time:+3%") == ("gpu_time:+3%",)


def test_a_file_without_gates_or_no_file_is_refused(tmp_path):
    file = tmp_path / "gates.txt"
    file.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no gate"):
        gate_texts(f"@{file}")
    with pytest.raises(UsageError, match="cannot be read"):
        gate_texts(f"@{tmp_path / 'absent'}")


def test_every_metric_of_the_manifest_can_be_gated():
    metrics = load_manifest("trace_diff").metrics
    assert {"idle_time_per_step", "idle_pct", "exposed_comm", "kernel"} <= {
        metric.name for metric in metrics
    }
    for metric in metrics:
        text = metric.name if metric.argument is None else f"{metric.name}(x)"
        (parsed,) = parse_gates([f"{text}:{'-' if metric.falls else '+'}1%"], metrics)
        assert (parsed.metric, parsed.falls) == (metric.name, metric.falls)
        assert metric.meaning.endswith(".")


def test_a_metric_that_gets_worse_as_it_falls_has_its_limit_downwards():
    metric = Metric("steps_per_second", "count", "Steps.", falls=True)
    (gate,) = parse_gates(["steps_per_second:-3%"], [metric])
    for after, result in ((97, PASS), (96, FAIL), (200, PASS)):
        assert judge(gate, Fraction(100), Fraction(after), None).result == result
    assert judge(gate, Fraction(100), Fraction(96), Fraction(4)).result == PASS
    with pytest.raises(UsageError, match="gets worse as it falls"):
        parse_gates(["steps_per_second:+3%"], [metric])
