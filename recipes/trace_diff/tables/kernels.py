"""The tables of kernels, by name over all ranks and by configuration; which changes are real.

Whether kernels got slower or faster beyond chance is decided by a test, and floors for what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.compared.operations import config_text
from nsys_llm.numeric.effects import split_change
from nsys_llm.numeric.rank_tests import adjusted, compare_ranks
from nsys_llm.report.columns import Columns, percent, sorted_columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.rank_sets import COMPARED

from .chosen_steps import StepKernels
from .runs import KernelSide, Runs
from .step_splits import FloatArray

#: Verdicts on a row.
REGRESS: Final = "regress"
IMPROVE: Final = "improve"
NONE: Final = "none"
INSUFFICIENT: Final = "insufficient"
#: Which sides have a row.
BOTH: Final = "both"
NEW: Final = "new"
VANISHED: Final = "vanished"

#: Launches of a side below which the normal approximation says little; scipy's limit for it, too.
LEAST_LAUNCHES: Final = 8
#: Durations are mostly multiples of it (see docs on exact counts): a median that moves by one tick
#: has not moved.
_TICK_NS: Final = 32
#: What times are compared as where no steps are.
SUMS: Final = "sum over all ranks"

#: Kernels of the steps that are compared, of both runs.
FullSteps = tuple[StepKernels, StepKernels]


def kernel_columns(
    runs: Runs,
    classes: Mapping[str, Classification],
    unit: str,
    full: FullSteps | None,
    options: Mapping[str, Any],
) -> Columns:
    """Return the table kernels, by name over all ranks, largest change first as it is compared.

    Args:
        classes: What each shown name says.
        unit: What a step is: step, layer, graph, period.
        full: None where no steps are compared.
        options: alpha and min_effect.
    """
    names = runs.names
    before, after = (run.kernels(names) for run in runs.compared)
    status = status_of(before, after)
    demangled = {key[0]: key[1] for run in runs.compared for key in run.keys}
    noise = noise_pct(before, [run.kernels(names) for run in runs.noise])
    tests = compared(before, after, noise, options)
    columns = {
        "name": list(names),
        "category": [classes[name].category for name in names],
        "operation": [classes[name].operation for name in names],
        "communication": np.array([is_communication(demangled[name]) for name in names], bool),
        "status": status,
        **change_columns(before, after),
        **tests,
        "noise_pct": np.full(len(status), np.nan) if noise is None else noise,
        **_compared_columns(before, after, unit, full),
        "outcome": np.where(status == BOTH, tests["verdict"], status),
    }
    return by_change(columns, "name", "compared_change_ns")


def config_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table configs: by name and configuration, effects of their own."""
    both = runs.compared
    keys = sorted({(key[0], *key[2:]) for run in both for key in run.keys})
    before, after = (run.kernels_by(keys, lambda key: (key[0], *key[2:])) for run in both)
    columns = {
        "name": [key[0] for key in keys],
        "config": [config_text(key[1:]) for key in keys],
        "status": status_of(before, after),
        **change_columns(before, after),
        **compared(before, after, None, options),
    }
    return by_change(columns, "name")


def compared(
    before: KernelSide,
    after: KernelSide,
    noise: FloatArray | None,
    options: Mapping[str, Any],
    tick_ns: int = _TICK_NS,
) -> Columns:
    """Return medians of each kernel, configuration, call or range, and whether they differ.

    Args:
        noise: How far medians of equal runs differ, percent of the baseline's; None: not known.
        options: alpha and min_effect.
        tick_ns: A median that moves by no more has not moved.
    """
    enough = (before.launches_n >= LEAST_LAUNCHES) & (after.launches_n >= LEAST_LAUNCHES)
    ranks_p = compare_ranks(before.counts, after.counts, enough.size)
    p_value = np.where(enough, ranks_p, np.nan)
    q_value = adjusted(p_value)
    moved = after.twice_p50 - before.twice_p50
    known = (before.launches_n > 0) & (after.launches_n > 0) & (before.twice_p50 > 0)
    change_pct = np.where(known, 100.0 * moved / np.where(known, before.twice_p50, 1), np.nan)
    floor_pct = np.full(enough.size, options["min_effect"])
    if noise is not None:
        floor_pct = np.fmax(floor_pct, noise)
    with np.errstate(invalid="ignore"):
        real = (q_value < options["alpha"]) & (np.abs(change_pct) >= floor_pct)
    real &= np.abs(moved) > 2 * tick_ns
    verdict = np.full(enough.size, NONE, dtype=object)
    verdict[real & (moved > 0)] = REGRESS
    verdict[real & (moved < 0)] = IMPROVE
    verdict[~enough] = INSUFFICIENT
    return {
        "baseline_p50_ns": before.p50_ns,
        "input_p50_ns": after.p50_ns,
        "p50_change_pct": change_pct,
        "p_value": p_value,
        "q_value": q_value,
        "verdict": verdict,
    }


def noise_pct(before: KernelSide, repeats: Sequence[KernelSide]) -> FloatArray | None:
    """Return how far the medians of equal runs lie apart, in percent of the baseline's.

    None without repeats; NaN for what none of them launches.
    """
    if not repeats:
        return None
    medians = np.array([side.p50_ns for side in (before, *repeats)])
    known = ((~np.isnan(medians)).sum(axis=0) >= 2) & (medians[0] > 0)
    spread = np.full(known.shape, np.nan)
    apart = np.nanmax(medians[:, known], axis=0) - np.nanmin(medians[:, known], axis=0)
    spread[known] = 100.0 * apart / medians[0, known]
    return spread


def status_of(before: KernelSide, after: KernelSide) -> npt.NDArray[np.object_]:
    """Tell which sides have each row: launches that start in the window, or time in it."""
    had, has = ((side.launches_n > 0) | (side.total_ns > 0) for side in (before, after))
    status = np.full(had.shape, BOTH, dtype=object)
    status[has & ~had] = NEW
    status[had & ~has] = VANISHED
    return status


def ratio(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return how many times the first the second is; NaN where one is NaN, or the first 0."""
    return np.where(first > 0, second / np.where(first > 0, first, 1.0), np.nan)


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
        before: How many, and how many ns, of the baseline.
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


def by_change(columns: Columns, name: str, change: str = "change_ns") -> Columns:
    """Order rows by the size of their change, whichever way it goes."""
    ordered = sorted_columns({**columns, "size": np.abs(columns[change])}, "-size", name)
    del ordered["size"]
    return ordered


def _compared_columns(
    before: KernelSide, after: KernelSide, unit: str, full: FullSteps | None
) -> Columns:
    """Return both sides as they are compared: a step that is compared, else sums."""
    basis = SUMS if full is None else f"a full {unit}, mean of ranks"
    names_n = before.launches_n.size
    unknown = np.full(names_n, np.nan)
    sides = full or tuple(
        StepKernels(side.launches_n.astype(float), unknown, side.total_ns.astype(float))
        for side in (before, after)
    )
    columns: Columns = {"basis": [basis] * names_n}
    for name, side in zip(COMPARED, sides, strict=True):
        columns[f"{name}_compared_ns"] = side.spent_ns
        columns[f"{name}_compared_calls"] = side.launches_n
        columns[f"{name}_compared_threads"] = side.threads
    change_ns = columns["input_compared_ns"] - columns["baseline_compared_ns"]
    return {**columns, "compared_change_ns": change_ns}
