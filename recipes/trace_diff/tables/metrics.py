"""What gates are put on: every metric of every run as an exact fraction, and whether it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from typing import Final

from nsys_llm.manifest.declared import Metric
from nsys_llm.manifest.gates import NOT_COMPARABLE, Gate, Judgement, judge
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED
from nsys_llm.view.kernel_names import kernel_label
from nsys_llm.view.text import format_change, format_value

from .checks import ALL, STEP_TIMES, TOTALS, WORK
from .chosen_steps import choices
from .collectives import CollectiveSums
from .comparability import STEP, other_work
from .composition import inter_token_ns
from .metric_values import PER_STEP, PLAIN, SHARES, Value, needs_kernels
from .runs import Run, Runs
from .step_splits import RunSteps
from .step_verdict import StepVerdict

_PERCENTILES: Final = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
STEP_TIME: Final = "step_time"
EQUAL: Final = "step_time_equal"
INTER_TOKEN: Final = "inter_token_p99"
SLOW_STEPS: Final = "slow_steps"
#: Metrics of the wall-clock time of full steps.
_OF_STEPS: Final = (STEP_TIME, EQUAL, SLOW_STEPS, INTER_TOKEN, "steps_per_second")
_SECOND_NS: Final = 1_000_000_000
#: What stands for GPU time without a phase: it may be 0.
_NO_PHASES: Final = (UNMAPPED, NO_RANGE, NO_API)


@dataclass(frozen=True)
class Measured:
    """One metric in both runs.

    Attributes:
        before: Of the baseline; None where it cannot be computed.
        after: Of the input.
        noise: How far runs of the baseline differ; None where that is not known.
        reason: Why a gate on it cannot be decided; None if it can.
    """

    before: Value
    after: Value
    noise: Value
    reason: str | None

    @property
    def change(self) -> Value:
        """How much greater it is in the input."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before


@dataclass(frozen=True)
class Measures:
    """All that metrics are computed from.

    Attributes:
        runs: All runs.
        collectives: Waiting and transfer of each, by side.
        classes: What each shown kernel name says.
        blocked: Statuses of the table comparability.
        verdict: What steps are compared by.
        steps: Full steps of each run, by side.
    """

    runs: Runs
    collectives: Mapping[str, CollectiveSums]
    classes: Mapping[str, Classification]
    blocked: Mapping[str, Sequence[str]]
    verdict: StepVerdict
    steps: Mapping[str, RunSteps]

    def of(self, metric: str, argument: str | None = None) -> Measured:
        """Return one metric."""
        before, after = (self._value(run, metric, argument) for run in self.runs.compared)
        repeats = self.runs.noise
        if self._is_sum(metric, argument):
            repeats = tuple(run for run in repeats if not other_work(self.runs.baseline, run))
        others = [self._value(run, metric, argument) for run in repeats]
        known = [value for value in (before, *others) if value is not None]
        noise = max(known) - min(known) if others and len(known) == 1 + len(others) else None
        return Measured(before, after, noise, self._reason(metric, argument, before, after))

    def _is_sum(self, metric: str, argument: str | None) -> bool:
        """Tell whether a metric is a sum over a run, and not a share, of a call or of a step."""
        if metric in (*SHARES, *_PERCENTILES, *_OF_STEPS) or metric.endswith(PER_STEP):
            return False
        return argument is None or self.runs.steps is None

    def _value(self, run: Run, metric: str, argument: str | None) -> Value:
        if argument is not None:
            return self._with_argument(run, metric, argument)
        if metric in _OF_STEPS:
            return self._step_time(run, metric)
        value = PLAIN[metric.removesuffix(PER_STEP)](run, self.collectives[run.side])
        return self._a_step(run, value) if metric.endswith(PER_STEP) else value

    def _step_time(self, run: Run, metric: str) -> Value:
        """Return the mean wall-clock time of a full step, or what else steps tell."""
        comparison = self.verdict.comparison
        if comparison.kind != STEP:
            return None
        steps = self.steps[run.side].only(self.runs.common)
        if run in self.runs.noise and steps.name != comparison.steps[0].name:
            return None
        if metric == INTER_TOKEN:
            return _fraction(inter_token_ns(steps, 99))
        typical, every = choices(steps, comparison.cells, None)
        if metric == SLOW_STEPS:
            slow_n, steps_n = every.slow_count()
            return _fraction(100 * slow_n / steps_n if steps_n else None)
        mean_ns = _fraction((typical if metric == EQUAL else every).mean_ns(profiler=True))
        if mean_ns is None or metric in (STEP_TIME, EQUAL):
            return mean_ns
        return Fraction(_SECOND_NS) / mean_ns

    def _with_argument(self, run: Run, metric: str, argument: str) -> Value:
        if metric in _PERCENTILES:
            return run.phase_percentile(argument, _PERCENTILES[metric])
        if metric == "phase":
            phase_sums = run.summed_names(lambda sums: sums.phases).get(argument)
            if phase_sums is None or (not any(phase_sums) and argument not in _NO_PHASES):
                return None
            return self._usual(run, Fraction(phase_sums[1]))
        names = self._chosen(metric, argument)
        if not names:
            return None
        rows = [self._kernels(run)[name] for name in names if name in self._kernels(run)]
        if not rows and run in self.runs.noise:
            return None
        launches_n, total_ns = sum(n for n, _ in rows), sum(ns for _, ns in rows)
        if metric == "kernel_per_call":
            return Fraction(total_ns, launches_n) if launches_n else None
        return self._usual(run, Fraction(total_ns))

    def _usual(self, run: Run, value: Fraction) -> Value:
        """Return a sum a step and rank where steps are counted, else the sum."""
        return value if self.runs.steps is None else self._a_step(run, value)

    def _a_step(self, run: Run, value: Value) -> Value:
        if self.runs.steps is None or value is None or run.steps_n is None:
            return None
        if run.step != self.runs.baseline.step:
            return None
        return value / run.steps_n

    def _chosen(self, metric: str, argument: str) -> list[str]:
        if metric == "category":
            return [
                name
                for name, classification in self.classes.items()
                if classification.category == argument
            ]
        return [name for name in self.runs.names if matches(name, argument)]

    @cached_property
    def _by_run(self) -> dict[str, dict[str, tuple[int, int]]]:
        return {run.side: run.summed_names(lambda sums: sums.kernels) for run in self.runs.all}

    def _kernels(self, run: Run) -> dict[str, tuple[int, int]]:
        return self._by_run[run.side]

    def _reason(self, metric: str, argument: str | None, before: Value, after: Value) -> str | None:
        if checks := self.blocked[ALL]:
            return f"not comparable: {', '.join(checks)}"
        if needs_kernels(metric) and any(run.whole_graphs_n for run in self.runs.compared):
            return (
                "kernels in CUDA graphs that were traced as a whole are not seen; record with "
                "--cuda-graph-trace=node"
            )
        if metric == INTER_TOKEN and (before is None or after is None):
            return "the names of the steps do not tell which requests generate"
        other = self.verdict.comparison.word is not None and metric != INTER_TOKEN
        if metric in _OF_STEPS and (before is None or after is None or other):
            return self._no_step_time()
        if before is None or after is None:
            return self._unknown(metric, argument)
        if metric in _OF_STEPS:
            return None
        if metric in SHARES or metric in _PERCENTILES:
            other = metric in _PERCENTILES and WORK in self.blocked[STEP_TIMES]
            return f"times per step are not comparable: {WORK}" if other else None
        what, status = "times per step", STEP_TIMES
        if self._is_sum(metric, argument):
            what, status = "sums over the runs", TOTALS
        checks = self.blocked[status]
        return f"{what} are not comparable: {', '.join(checks)}" if checks else None

    def _unknown(self, metric: str, argument: str | None) -> str:
        a_step = metric.endswith(PER_STEP) or metric in _PERCENTILES
        if a_step and self.runs.steps is None:
            return self._steps_unknown()
        if argument is not None and metric.startswith("kernel"):
            return (
                f"no kernel is called '{argument}'"
                if not self._chosen(metric, argument)
                else ("one of the runs does not launch it")
            )
        if argument is not None:
            kind = "category" if metric == "category" else "phase"
            return f"there is no {kind} '{argument}' in both runs"
        if metric.startswith("comm_"):
            return "communication of the ranks given matches nothing; give the reports of all ranks"
        if metric in ("api_time", "sync_time"):
            return "one of the runs has no API call; record with --trace=cuda"
        return "it is not known for both runs"

    def _no_step_time(self) -> str:
        comparison = self.verdict.comparison
        if comparison.reason is not None:
            return comparison.reason
        if comparison.kind != STEP:
            return "no step found; give --step"
        return comparison.work or "no full step in one of the runs"

    def _steps_unknown(self) -> str:
        uncounted = [run for run in self.runs.compared if run.steps_n is None]
        if not uncounted:
            return "the runs do not count the same steps; see --step and --step-kernel"
        notes = dict.fromkeys(run.step_note or "" for run in uncounted)
        return f"steps are not counted: {'; '.join(notes)}"


def metric_columns(measures: Measures, metrics: Sequence[Metric]) -> Columns:
    """Return the table metrics: those without an argument."""
    plain = [metric for metric in metrics if metric.argument is None]
    measured = [measures.of(metric.name) for metric in plain]
    units = [metric.unit for metric in plain]
    return {
        "metric": [metric.name for metric in plain],
        "unit": units,
        **_value_columns(measured, units),
        "noise": [_shown(item.noise) for item in measured],
        "real": [_real(item) for item in measured],
        "comparable": [item.reason is None for item in measured],
        "reason": [item.reason for item in measured],
    }


def gate_columns(measures: Measures, gates: Sequence[Gate], metrics: Sequence[Metric]) -> Columns:
    """Return the table gates, in the order given."""
    unit_of = {metric.name: metric.unit for metric in metrics}
    units = [unit_of[gate.metric] for gate in gates]
    measured = [measures.of(gate.metric, gate.argument) for gate in gates]
    judged = [_judged(gate, item) for gate, item in zip(gates, measured, strict=True)]
    return {
        "gate": [gate.text for gate in gates],
        "result": [item.result for item in judged],
        "metric": [
            gate.metric if gate.argument is None else f"{gate.metric}({gate.argument})"
            for gate in gates
        ],
        "unit": units,
        **_value_columns(measured, units),
        "allowed": [_shown(item.allowed) for item in judged],
        "noise": [_shown(item.noise) for item in measured],
        "reason": [item.reason for item in judged],
    }


def matches(name: str, glob: str) -> bool:
    """Tell whether a pattern with `*` and `?` is all of a kernel's name, whole or as shown short.

    Case does not matter. `flash*` finds `void flash::flash_fwd_kernel<...>(...)`, whose short name
    begins with it.
    """
    wanted = glob.lower()
    return any(fnmatchcase(item.lower(), wanted) for item in {name, kernel_label(name)})


def _judged(gate: Gate, measured: Measured) -> Judgement:
    if measured.reason is not None:
        return Judgement(NOT_COMPARABLE, None, measured.reason)
    return judge(gate, measured.before, measured.after, measured.noise)


def _value_columns(measured: Sequence[Measured], units: Sequence[str]) -> Columns:
    return {
        "baseline": [_shown(item.before) for item in measured],
        "input": [_shown(item.after) for item in measured],
        "change": [_shown(item.change) for item in measured],
        "change_pct": [_percent(item) for item in measured],
        "told": [_told(item, unit) for item, unit in zip(measured, units, strict=True)],
    }


def _told(measured: Measured, unit: str) -> str | None:
    """Return both values and the change as people read them."""
    if measured.before is None or measured.after is None:
        return None
    before, after, change = (
        float(measured.before),
        float(measured.after),
        float(measured.after - measured.before),
    )
    amount = f"{change:.2f} pp" if unit == "%" else _amount(change, unit)
    share = _percent(measured)
    reported = "" if share is None else f", {format_change(share)}"
    sign = "+" if change > 0 else ""
    return f"{_amount(before, unit)} -> {_amount(after, unit)} ({sign}{amount}{reported})"


def _amount(value: float, unit: str) -> str:
    return f"{value:,.6g}" if unit == "count" else format_value(value, unit)


def _fraction(value: float | None) -> Value:
    return None if value is None else Fraction(value)


def _shown(value: Value) -> float | None:
    return None if value is None else float(value)


def _percent(measured: Measured) -> float | None:
    if measured.change is None or not measured.before:
        return None
    return float(100 * measured.change / measured.before)


def _real(measured: Measured) -> bool | None:
    if measured.noise is None or measured.change is None:
        return None
    return abs(measured.change) > measured.noise
