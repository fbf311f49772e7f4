"""The tables of kernels: by name over all ranks, and by launch configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.effects import split_change
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, percent, sorted_columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.communication import is_communication

from ..per_rank.launches import CONFIG, config_text
from .config_changes import config_changes, likely_renames
from .runs import KernelSide, Runs
from .step_kernels import StepKernels
from .verdicts import Tests, compared, noise_pct

#: What times are compared as where no steps are.
SUMS: Final = "sum over all ranks"

BOTH: Final = "both"
NEW: Final = "new"
VANISHED: Final = "vanished"

FloatArray = npt.NDArray[np.float64]
#: Numbers and times, by row.
Amounts = tuple[IntArray, IntArray]


@dataclass(frozen=True)
class NamedKernels:
    """Kernels by name, over all ranks of both sides; arrays of shape (names,).

    Attributes:
        names: Sorted.
        classes: What each name says.
        communication: Whether it moves data between GPUs.
        before: The baseline.
        after: The input.
        tests: Whether they are real.
        noise: How far medians of runs of the baseline differ; None where that is not known.
    """

    names: tuple[str, ...]
    classes: tuple[Classification, ...]
    communication: npt.NDArray[np.bool_]
    before: KernelSide
    after: KernelSide
    tests: Tests
    noise: FloatArray | None

    @property
    def status(self) -> npt.NDArray[np.object_]:
        """Which sides have it."""
        return status_of(self.before, self.after)


def named_kernels(
    runs: Runs, classes: Mapping[str, Classification], options: Mapping[str, Any]
) -> NamedKernels:
    """Compare kernels by name.

    Args:
        runs: All runs.
        classes: What each shown name says.
        options: alpha and min_effect.
    """
    names = runs.names
    before, after = runs.baseline.kernels(names), runs.input.kernels(names)
    noise = noise_pct(before, [run.kernels(names) for run in runs.noise])
    full = {key[0]: key[1] for run in runs.compared for key in run.part.keys}
    return NamedKernels(
        names,
        tuple(classes[name] for name in names),
        np.array([is_communication(full[name]) for name in names], dtype=bool),
        before,
        after,
        compared(before, after, noise, options),
        noise,
    )


@dataclass(frozen=True)
class FullSteps:
    """Kernels of the steps that are compared.

    Attributes:
        unit: What a step is: step, layer, graph, period.
        before: The baseline, by name as in `NamedKernels`.
        after: The input.
        are_counted: Whether sums over a run can be divided by numbers of steps: a capture cuts the
            outer layers, replays and periods.
    """

    unit: str
    before: StepKernels
    after: StepKernels
    are_counted: bool


def kernel_columns(kernels: NamedKernels, runs: Runs, full: FullSteps | None) -> Columns:
    """Return the table kernels, largest change first, as they are compared."""
    status = kernels.status
    columns = {
        "name": list(kernels.names),
        "category": [item.category for item in kernels.classes],
        "operation": [item.operation for item in kernels.classes],
        "communication": kernels.communication,
        "status": status,
        **change_columns(kernels.before, kernels.after),
        **_mean_columns(kernels.before, kernels.after),
        **test_columns(kernels.before, kernels.after, kernels.tests),
        "noise_pct": np.full(len(status), np.nan) if kernels.noise is None else kernels.noise,
        **_step_columns(kernels, runs.steps, full),
        **_compared_columns(kernels, full),
        "config_change": config_changes(kernels.names, status.tolist(), runs),
        "outcome": np.where(status == BOTH, kernels.tests.verdict, status),
        "rename": likely_renames(kernels.names, status.tolist(), kernels.classes, runs),
    }
    return by_change(columns, "name", "compared_change_ns")


def config_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table configs: by name and configuration, effects of their own."""
    both = runs.compared
    keys = sorted({(key[0], *key[2:]) for run in both for key in run.part.keys})
    before, after = (run.kernels_by(keys, lambda key: (key[0], *key[2:])) for run in both)
    tests = compared(before, after, None, options)
    texts = [config_text(key[1:]) for key in keys]
    sizes = {
        _COLUMN_OF.get(name, name): nullable(np.array([key[i] for key in keys], dtype=np.int64))
        for i, name in enumerate(CONFIG, 1)
    }
    columns = {
        "name": [key[0] for key in keys],
        "config": texts,
        "label": [f"{key[0]} [{text}]" for key, text in zip(keys, texts, strict=True)],
        **sizes,
        "status": status_of(before, after),
        **change_columns(before, after),
        **test_columns(before, after, tests),
    }
    return by_change(columns, "label")


_COLUMN_OF: Final = {"registers_per_thread": "registers"}


def status_of(before: KernelSide, after: KernelSide) -> npt.NDArray[np.object_]:
    """Tell which sides have each row: launches that start in the window, or time in it."""
    had = (before.launches_n > 0) | (before.total_ns > 0)
    has = (after.launches_n > 0) | (after.total_ns > 0)
    status = np.full(had.shape, BOTH, dtype=object)
    status[has & ~had] = NEW
    status[had & ~has] = VANISHED
    return status


def change_columns(before: KernelSide, after: KernelSide) -> Columns:
    """Return launches and times of both sides, and what the changes are made of."""
    sides = ((side.launches_n, side.total_ns) for side in (before, after))
    return sum_columns("launches", *sides)


def sum_columns(what: str, before: Amounts, after: Amounts) -> Columns:
    """Return numbers and times of both sides, and what the changes are made of.

    Args:
        what: Is counted: launches, calls, operations.
        before: How many, and how long; of the baseline, by row.
        after: Likewise, of the input.
    """
    effects = split_change(*before, *after)
    return {
        f"baseline_{what}_n": before[0],
        f"input_{what}_n": after[0],
        "baseline_total_ns": before[1],
        "input_total_ns": after[1],
        "change_ns": effects.change,
        "change_pct": percent(effects.change, before[1]),
        "count_effect_ns": effects.count,
        "per_call_effect_ns": effects.per_call,
    }


def amounts(rows: Sequence[tuple[int, ...]]) -> Any:
    """Return rows as columns, int64."""
    return tuple(np.array(rows, dtype=np.int64).reshape(len(rows), -1 if rows else 2).T)


def test_columns(before: KernelSide, after: KernelSide, tests: Tests) -> Columns:
    """Return medians and what the tests say of them."""
    return {
        "baseline_p50_ns": _medians(before),
        "input_p50_ns": _medians(after),
        "p50_change_pct": tests.p50_change_pct,
        "p_value": tests.p_value,
        "q_value": tests.q_value,
        "shift": tests.shift,
        "verdict": tests.verdict,
    }


def by_change(columns: Columns, name: str, change: str = "change_ns") -> Columns:
    """Order rows by the size of their change, whichever way it goes."""
    size = np.abs(columns[change])
    ordered = sorted_columns({**columns, "size": size}, "-size", name)
    del ordered["size"]
    return ordered


def _medians(side: KernelSide) -> FloatArray:
    return np.where(side.launches_n > 0, side.twice_p50 / 2.0, np.nan)


def _means(side: KernelSide) -> FloatArray:
    n = side.launches_n
    return np.where(n > 0, side.total_ns / np.where(n > 0, n, 1), np.nan)


def _mean_columns(before: KernelSide, after: KernelSide) -> Columns:
    first, second = _means(before), _means(after)
    return {
        "baseline_mean_ns": first,
        "input_mean_ns": second,
        "mean_ratio": np.where(first > 0, second / np.where(first > 0, first, 1.0), np.nan),
    }


def _step_columns(
    kernels: NamedKernels, steps: tuple[int, int] | None, full: FullSteps | None
) -> Columns:
    names = (
        "baseline_step",
        "input_step",
        "step_change",
        "step_count_effect",
        "step_per_call_effect",
    )
    if full is not None and not full.are_counted:
        first, second = full.before.spent_ns, full.after.spent_ns
        n0, n1 = full.before.launches_n, full.after.launches_n
    elif steps is not None:
        first, second = kernels.before.total_ns / steps[0], kernels.after.total_ns / steps[1]
        n0, n1 = kernels.before.launches_n / steps[0], kernels.after.launches_n / steps[1]
    else:
        nothing = np.full(len(kernels.names), np.nan)
        return {f"{name}_ns": nothing for name in names}
    change, on_both = second - first, (n0 > 0) & (n1 > 0)
    count = np.where(on_both, (n1 - n0) * first / np.where(on_both, n0, 1.0), change)
    columns = (first, second, change, count, change - count)
    return {f"{name}_ns": column for name, column in zip(names, columns, strict=True)}


def _compared_columns(kernels: NamedKernels, full: FullSteps | None) -> Columns:
    """Return both sides as they are compared: a step that is compared, else sums."""
    sides: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    launched: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    if full is not None:
        basis = f"a full {full.unit}, mean of ranks"
        sides = (full.before.spent_ns, full.after.spent_ns)
        launched = (full.before.launches_n, full.after.launches_n)
        threads = (full.before.threads, full.after.threads)
    else:
        basis, sides = SUMS, (kernels.before.total_ns, kernels.after.total_ns)
        launched = (kernels.before.launches_n, kernels.after.launches_n)
        threads = (np.full(len(kernels.names), np.nan),) * 2
    before, after = (side.astype(np.float64) for side in sides)
    return {
        "basis": [basis] * len(kernels.names),
        "baseline_compared_ns": before,
        "input_compared_ns": after,
        "compared_change_ns": after - before,
        "baseline_compared_calls": launched[0].astype(np.float64),
        "input_compared_calls": launched[1].astype(np.float64),
        "baseline_compared_threads": threads[0],
        "input_compared_threads": threads[1],
    }
