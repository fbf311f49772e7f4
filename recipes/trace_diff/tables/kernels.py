"""The tables of kernels: by name over all ranks, and by launch configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.effects import split_change
from nsys_llm.report.columns import Columns, nullable, percent, sorted_columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.rank_sets import COMPARED

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


def kernel_columns(
    kernels: NamedKernels, runs: Runs, unit: str, full: tuple[StepKernels, StepKernels] | None
) -> Columns:
    """Return the table kernels, largest change first, as they are compared.

    Args:
        kernels: By name.
        runs: All runs.
        unit: What a step is: step, layer, graph, period.
        full: Kernels of the steps that are compared, of both runs; None where none are.
    """
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
        **_compared_columns(kernels, unit, full),
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
    return _effect_columns("launches", *sides)


def sum_columns(
    what: str,
    keys: Sequence[Any],
    before: Mapping[Any, tuple[int, ...]],
    after: Mapping[Any, tuple[int, ...]],
) -> Columns:
    """Return numbers and times of both sides by key, and what the changes are made of.

    Args:
        what: Is counted: launches, calls, operations.
        keys: Of the rows.
        before: How many, and how many ns, of the baseline.
        after: Of the input.
    """
    sides = (
        np.array([side.get(key, (0, 0))[:2] for key in keys], np.int64).reshape(-1, 2).T
        for side in (before, after)
    )
    return _effect_columns(what, *sides)


def _effect_columns(what: str, before: Any, after: Any) -> Columns:
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
    kernels: NamedKernels,
    steps: tuple[int, int] | None,
    full: tuple[StepKernels, StepKernels] | None,
) -> Columns:
    """Return kernels a step and rank: sums by numbers of steps, where these can be counted.

    A capture cuts the outer layers, replays and periods: of these the full ones tell.
    """
    names = ("baseline_step", "input_step", "step_change", "step_count_effect",
             "step_per_call_effect")  # fmt: skip
    if steps is not None:
        sides = kernels.before, kernels.after
        (n0, first), (n1, second) = (
            (side.launches_n / n, side.total_ns / n) for side, n in zip(sides, steps, strict=True)
        )
    elif full is not None:
        (n0, first), (n1, second) = ((side.launches_n, side.spent_ns) for side in full)
    else:
        return {f"{name}_ns": np.full(len(kernels.names), np.nan) for name in names}
    change, on_both = second - first, (n0 > 0) & (n1 > 0)
    count = np.where(on_both, (n1 - n0) * first / np.where(on_both, n0, 1.0), change)
    columns = (first, second, change, count, change - count)
    return {f"{name}_ns": column for name, column in zip(names, columns, strict=True)}


def _compared_columns(
    kernels: NamedKernels, unit: str, full: tuple[StepKernels, StepKernels] | None
) -> Columns:
    """Return both sides as they are compared: a step that is compared, else sums."""
    basis = SUMS if full is None else f"a full {unit}, mean of ranks"
    unknown = np.full(len(kernels.names), np.nan)
    sides = full or tuple(
        StepKernels(side.launches_n.astype(float), unknown, side.total_ns.astype(float))
        for side in (kernels.before, kernels.after)
    )
    columns: Columns = {"basis": [basis] * len(kernels.names)}
    for name, side in zip(COMPARED, sides, strict=True):
        columns[f"{name}_compared_ns"] = side.spent_ns
        columns[f"{name}_compared_calls"] = side.launches_n
        columns[f"{name}_compared_threads"] = side.threads
    change_ns = columns["input_compared_ns"] - columns["baseline_compared_ns"]
    return {**columns, "compared_change_ns": change_ns}
