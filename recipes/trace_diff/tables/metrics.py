"""What gates are put on: every metric of every run as an exact fraction, and whether it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from typing import Final

from nsys_llm.manifest.declared import Metric
from nsys_llm.numeric.two_samples import prediction_half
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, IDLE
from nsys_llm.trace.rank_sets import BASELINE, INPUT
from nsys_llm.view.kernel_names import kernel_label
from nsys_llm.view.text import format_change, format_count, format_value

from .checks import ALL, STEP_TIMES, TOTALS, other_work
from .chosen_steps import choices, inter_token_ns, step_copies, step_kernels
from .comparability import STEP, Comparison
from .runs import Runs, RunSums
from .step_splits import SPAN, RunSteps, mean_split, total

Value = Fraction | None

PER_STEP: Final = "_per_step"
STEP_TIME: Final = "step_time"
EQUAL: Final = "step_time_equal"
INTER_TOKEN: Final = "inter_token_p99"
SLOW_STEPS: Final = "slow_steps"
#: Metrics of the wall-clock time of full steps: those of which the verdict tells, and all.
TESTED: Final = (STEP_TIME, EQUAL, SLOW_STEPS, "steps_per_second")
_OF_STEPS: Final = (*TESTED, INTER_TOKEN)
#: Metrics that are shares, or of one call: they compare runs of any length.
_SHARES: Final = ("idle_pct", "exposed_comm_pct", "kernel_per_call")
#: Metrics that rest on single kernels: where a CUDA graph is one row, they see only what ran
#: outside.
_OF_KERNELS: Final = ("exposed_comm", "exposed_comm_pct", "kernel", "kernel_per_call", "category")
_SECOND_NS: Final = 1_000_000_000
#: Metrics that are classes of the wall-clock time of a full step.
_CLASSES: Final = {"idle_time_per_step": IDLE, "exposed_comm_per_step": COMMUNICATION}


def _is_of_step(metric: str) -> bool:
    return metric in _OF_STEPS or metric.endswith(PER_STEP)


def _exact(value: float | None) -> Value:
    return None if value is None else Fraction(value)


def _summed(values: Iterable[float]) -> Fraction:
    """Return a sum of means as the fraction that it is: no gate is to see how it was rounded."""
    return Fraction(sum(values)).limit_denominator(1_000_000)


def _share(part: int | None, whole: int) -> Value:
    return None if part is None or not whole else Fraction(100 * part, whole)


#: Sums over a run and shares, by name.
_PLAIN: Final[Mapping[str, Callable[[RunSums], Value]]] = {
    "window": lambda run: Fraction(run.whole.window_ns, max(run.devices_n, 1)),
    "idle_pct": lambda run: _share(run.whole.idle_total_ns, run.whole.window_ns),
    "exposed_comm": lambda run: Fraction(run.whole.exposed_ns),
    "exposed_comm_pct": lambda run: _share(run.whole.exposed_ns, run.whole.busy_ns),
}


@dataclass(frozen=True)
class MetricChange:
    """One metric in both runs.

    Attributes:
        before: Of the baseline; None where it cannot be computed.
        runs: Of the baseline and further runs of it; the baseline alone where some run has none.
        reason: Why a gate on it cannot be decided; None if it can.
        basis: Of which steps it is, in words; empty where the name says it.
    """

    before: Value
    after: Value
    runs: tuple[Fraction, ...]
    reason: str | None
    basis: str = ""

    @property
    def noise(self) -> Value:
        """How far runs of the baseline differ; None where that is not known."""
        return max(self.runs) - min(self.runs) if len(self.runs) > 1 else None

    @property
    def is_beyond(self) -> bool | None:
        """Whether it is beyond what one more run of the baseline shows; None for too few."""
        half = prediction_half([float(value) for value in self.runs])
        if half is None or self.after is None:
            return None
        return abs(float(self.after) - float(sum(self.runs) / len(self.runs))) > half

    @property
    def change(self) -> Value:
        """How much greater it is in the input."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def change_pct(self) -> float | None:
        """The same in percent of the baseline; None where that is 0."""
        if self.change is None or not self.before:
            return None
        return float(100 * self.change / self.before)

    def words(self, unit: str) -> str | None:
        """Return both values and the change as people read them."""
        if self.before is None or self.after is None or self.change is None:
            return None
        values = (float(n) for n in (self.before, self.after, self.change))
        before, after, amount = (
            f"{value:,.6g}" if unit == "count" else format_value(value, unit) for value in values
        )
        amount = f"{float(self.change):.2f} pp" if unit == "%" else amount
        share = "" if self.change_pct is None else f", {format_change(self.change_pct)}"
        return f"{before} -> {after} ({'+' if self.change > 0 else ''}{amount}{share}{self.basis})"


@dataclass(frozen=True)
class Metrics:
    """All that metrics are computed from."""

    runs: Runs
    classes: Mapping[str, Classification]
    comparison: Comparison

    def of(self, metric: str, argument: str | None = None) -> MetricChange:
        """Return one metric."""
        before, after = (self._value(run, metric, argument) for run in self.runs.compared)
        repeats, steps = self.runs.noise, self._steps
        if self._is_sum(metric, argument):
            baseline = self.runs.baseline
            repeats = tuple(run for run in repeats if not other_work(baseline, run, steps))
        others = [self._value(run, metric, argument) for run in repeats]
        known = tuple(value for value in (before, *others) if value is not None)
        known = known if len(known) == 1 + len(others) else ()
        is_known = before is not None and after is not None
        reason = next(self._reasons(metric, argument, is_known=is_known), None)
        return MetricChange(before, after, known, reason, self._basis(metric))

    def _basis(self, metric: str) -> str:
        """Return how many steps a mean is of, those that the verdict leaves out included."""
        if metric != STEP_TIME or self.comparison.kind != STEP:
            return ""
        cells = self.comparison.cells
        counts = (choices(steps, cells, None)[1].steps_n for steps in self.comparison.steps)
        return f"; mean of {' and '.join(dict.fromkeys(map(format_count, counts)))} steps"

    def _is_sum(self, metric: str, argument: str | None) -> bool:
        """Tell whether a metric is a sum over a run, and not a share, of a call or of a step."""
        if metric in _SHARES or _is_of_step(metric):
            return False
        return argument is None or self.comparison.kind != STEP

    def _value(self, run: RunSums, metric: str, argument: str | None) -> Value:
        if argument is not None:
            return self._with_argument(run, metric, argument)
        if _is_of_step(metric):
            steps = self._steps_of(run)
            return None if steps is None else self._of_step(run, steps, metric)
        return _PLAIN[metric](run)

    @cached_property
    def _steps(self) -> dict[str, RunSteps]:
        before, after = self.comparison.steps
        return {BASELINE: before, INPUT: after, **self.comparison.repeats}

    def _steps_of(self, run: RunSums) -> RunSteps | None:
        """Return the steps of a run; None where none are compared, or they are other ones."""
        steps, baseline = self._steps[run.side], self._steps[BASELINE]
        other = run in self.runs.noise and steps.name != baseline.name
        return None if other or self.comparison.kind != STEP else steps

    def _of_step(self, run: RunSums, steps: RunSteps, metric: str) -> Value:
        if metric == INTER_TOKEN:
            return _exact(inter_token_ns(steps, 99))
        cells, launches = self.comparison.cells, self._kernels[run.side].values()
        if metric in ("gpu_time_per_step", "kernel_launches_per_step"):
            return _summed(ns if metric.startswith("gpu") else n for n, ns in launches)
        if metric == "copy_bytes_per_step":
            return _summed(size for _, _, size in step_copies(steps, cells).values())
        typical, every = choices(steps, cells, None)
        if metric == SLOW_STEPS:
            slow_n, steps_n = every.slow_count()
            return _exact(100 * slow_n / steps_n if steps_n else None)
        splits = (typical if metric == EQUAL else every).splits()
        if not splits:
            return None
        mean = mean_split(splits)
        if metric in _CLASSES:
            return _summed([total(mean, _CLASSES[metric])])
        mean_ns = _exact(total(mean))
        return _SECOND_NS / mean_ns if mean_ns and metric == "steps_per_second" else mean_ns

    def _with_argument(self, run: RunSums, metric: str, argument: str) -> Value:
        if self.comparison.kind == STEP and self._steps_of(run) is None:
            return None
        kernels, names = self._kernels[run.side], self._chosen(metric, argument)
        rows = [kernels[name] for name in names if name in kernels]
        if not names or (not rows and run in self.runs.noise):
            return None
        launches_n, total_ns = map(_summed, zip((0, 0), *rows, strict=True))
        if metric == "kernel_per_call":
            return total_ns / launches_n if launches_n else None
        return total_ns

    def _chosen(self, metric: str, argument: str) -> list[str]:
        """Return the kernels that are meant, of those that a run launches in what is compared."""
        names = sorted({*self._kernels[BASELINE], *self._kernels[INPUT]})
        if metric == "category":
            return [name for name in names if self.classes[name].category == argument]
        return [name for name in names if matches(name, argument)]

    @cached_property
    def _kernels(self) -> dict[str, Mapping[str, tuple[float, ...]]]:
        """Launches and ns of each kernel by side: of a step where steps are compared, else of all.

        Only those that the side launches.
        """
        by_side: dict[str, Mapping[str, tuple[float, ...]]] = {}
        for run in (*self.runs.compared, *self.runs.noise):
            names = sorted({key[0] for key in run.keys})
            whole = run.kernels(names)
            columns = whole.launches_n.tolist(), whole.total_ns.tolist()
            if self.comparison.kind == STEP:
                steps = step_kernels(self._steps[run.side], names, self.comparison.cells)
                columns = steps.launches_n.tolist(), steps.spent_ns.tolist()
            rows = zip(names, *columns, strict=True)
            by_side[run.side] = {name: (n, ns) for name, n, ns in rows if n or ns}
        return by_side

    def _reasons(self, metric: str, argument: str | None, *, is_known: bool) -> Iterator[str]:
        """Yield why a gate cannot be decided, what weighs most first."""
        if checks := self._blocked(ALL):
            yield f"not comparable: {checks}"
        whole_graphs = any(run.whole_graphs_n for run in self.runs.compared)
        if whole_graphs and metric.removesuffix(PER_STEP) in _OF_KERNELS:
            yield (
                "kernels in CUDA graphs traced as a whole are not visible; record with "
                "--cuda-graph-trace=node"
            )
        comparison, is_by_work = self.comparison, _is_of_step(metric) and metric != INTER_TOKEN
        if is_by_work and comparison.kind == SPAN:
            yield "no step found; give --step or --step-kernel"
        elif is_by_work and comparison.word is not None:
            yield comparison.reason or comparison.work or comparison.word
        elif not is_known:
            yield self._unknown(metric, argument)
        elif self._is_sum(metric, argument):
            if checks := self._blocked(TOTALS, STEP_TIMES):
                yield f"sums over the runs are not comparable: {checks}"
        elif metric not in (*_SHARES, *_OF_STEPS) and (checks := self._blocked(STEP_TIMES)):
            yield f"times per step are not comparable: {checks}"

    def _blocked(self, *statuses: str) -> str:
        rows = (row for status in statuses for row in self.comparison.blocked(status))
        return ", ".join(str(row["check"]) for row in rows)

    def _unknown(self, metric: str, argument: str | None) -> str:
        # Where steps are compared, what is launched between their ranges is not.
        is_step = self.comparison.kind == STEP
        if argument is not None and metric.startswith("kernel"):
            is_chosen = bool(self._chosen(metric, argument))
            where = "what the compared steps launch" if is_step else "what is compared"
            none = f"no kernel is called '{argument}' in {where}"
            return "one of the runs does not launch it" if is_chosen else none
        if argument is not None:
            where = " in what the compared steps launch" if is_step else " in both runs"
            return f"there is no category '{argument}'{where}"
        if metric == INTER_TOKEN:
            return "step names do not show which requests generate"
        if metric in _OF_STEPS:
            return "no full step in one of the runs"
        return "it is unknown in at least one run"


def metric_columns(metrics: Metrics, declared: Sequence[Metric]) -> Columns:
    """Return the table metrics: those without an argument."""
    plain = [metric for metric in declared if metric.argument is None]
    changes = [metrics.of(metric.name) for metric in plain]
    return {
        "metric": [metric.name for metric in plain],
        **value_columns(changes, [metric.unit for metric in plain]),
        "comparable": [item.reason is None for item in changes],
        "reason": [item.reason for item in changes],
    }


def matches(name: str, glob: str) -> bool:
    """Tell whether a pattern with `*` and `?` is all of a kernel's name, whole or as shown short.

    Case does not matter. `flash*` finds `void flash::flash_fwd_kernel<...>(...)`, whose short name
    begins with it.
    """
    wanted = glob.lower()
    return any(fnmatchcase(item.lower(), wanted) for item in {name, kernel_label(name)})


def value_columns(changes: Sequence[MetricChange], units: Sequence[str]) -> Columns:
    """Return the columns that the tables metrics and gates have in common."""
    values = {
        name: [shown(getattr(item, of)) for item in changes]
        for name, of in (("baseline", "before"), ("input", "after"), ("change", "change"),
                         ("noise", "noise"))
    }  # fmt: skip
    return {
        "unit": units,
        **values,
        "change_pct": [item.change_pct for item in changes],
        "told": [item.words(unit) for item, unit in zip(changes, units, strict=True)],
    }


def shown(value: Value) -> float | None:
    """Return a value as tables have it."""
    return None if value is None else float(value)
