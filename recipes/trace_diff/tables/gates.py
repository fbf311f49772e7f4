"""The table gates: whether each gate fails, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from nsys_llm.manifest.declared import Metric
from nsys_llm.manifest.gates import (
    FAIL,
    NOT_COMPARABLE,
    PASS,
    PROBABLY_FAIL,
    Gate,
    Judgement,
    judge,
)
from nsys_llm.report.columns import Columns

from .metrics import EQUAL, SLOW_STEPS, TESTED, MetricChange, Metrics, shown, value_columns
from .step_verdict import MIXED, PROBABLY, SLOWER, UNCERTAIN, StepVerdict

_HIDDEN: Final = "most steps are slower by more than the limit, the mean of all is not"
_AS_MEASURED: Final = "as measured; --baselines shows how far equal runs differ"


def gate_columns(
    metrics: Metrics, gates: Sequence[Gate], declared: Sequence[Metric], verdict: StepVerdict
) -> Columns:
    """Return the table gates, in the order given."""
    unit_of = {metric.name: metric.unit for metric in declared}
    changes = [metrics.of(gate.metric, gate.argument) for gate in gates]
    judged = [_judged(gate, item, verdict) for gate, item in zip(gates, changes, strict=True)]
    return {
        "gate": [gate.text for gate in gates],
        "result": [item.result for item in judged],
        "metric": [
            gate.metric if gate.argument is None else f"{gate.metric}({gate.argument})"
            for gate in gates
        ],
        **value_columns(changes, [unit_of[gate.metric] for gate in gates]),
        "allowed": [shown(item.allowed) for item in judged],
        "reason": [item.reason for item in judged],
    }


def _judged(gate: Gate, change: MetricChange, verdict: StepVerdict) -> Judgement:
    """Return what a gate says: by runs of the baseline if they tell, else by the steps."""
    if change.reason is not None:
        return Judgement(NOT_COMPARABLE, None, change.reason)
    judged = judge(gate, change.before, change.after, change.noise)
    if judged.result == PASS and _is_hidden(gate, change.noise, verdict):
        return Judgement(FAIL, judged.allowed, _HIDDEN)
    if judged.result != FAIL or change.is_beyond:
        return judged
    if gate.metric in TESTED:
        result, reason = _by_steps(gate.metric, verdict)
    elif change.is_beyond is not None:
        result, reason = PROBABLY_FAIL, "runs of the baseline differ nearly as much"
    else:
        unsure = verdict.word.startswith((UNCERTAIN, PROBABLY)) and change.noise is None
        result, reason = FAIL, _AS_MEASURED if unsure else None
    return Judgement(result, judged.allowed, reason)


def _is_hidden(gate: Gate, noise: Fraction | None, verdict: StepVerdict) -> bool:
    """Tell whether typical steps surely pass the limit, which slow ones of the baseline hide."""
    figure, looks = verdict.figure, verdict.looks
    if gate.metric not in {*TESTED} - {EQUAL, SLOW_STEPS} or not figure or not looks:
        return False
    values = (Fraction(ns) for ns in figure.step_ns)
    before, after = (10**9 / value if gate.falls else value for value in values)
    return looks.moved > 0 and judge(gate, before, after, noise).result == FAIL


def _by_steps(metric: str, verdict: StepVerdict) -> tuple[str, str | None]:
    """Return whether steps are worse, or more of them slow, and why that is not sure."""
    looks = verdict.looks
    if looks is None or looks.slow_p is None:
        return PROBABLY_FAIL, "fewer than 5 steps show only a size"
    is_longer = verdict.word == SLOWER or looks.moved > 0
    if looks.is_burst if metric == SLOW_STEPS else is_longer:
        return FAIL, None
    if metric != SLOW_STEPS and verdict.word == PROBABLY + SLOWER:
        return PROBABLY_FAIL, None
    is_less = verdict.figure is not None and verdict.figure.change < 0
    if metric != EQUAL and (is_less or verdict.word_reason == MIXED or looks.more_slow > 0):
        return PROBABLY_FAIL, f"above the limit by some slow steps: the verdict is {verdict.word}"
    return PASS, f"above the limit, which may be chance: the verdict is {verdict.word}"
