"""Tables that are drawn: the way from one total to the other, and how durations are spread."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns

from .kernels import A_STEP, BOTH, NEW, SUMS, VANISHED, NamedKernels
from .verdicts import LEAST_LAUNCHES

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Columns of the table kernels: both sides, the change, and what it is made of.
_STEP_COLUMNS: Final = (
    "baseline_step_ns",
    "input_step_ns",
    "step_change_ns",
    "step_count_effect_ns",
    "step_per_call_effect_ns",
)
_SUM_COLUMNS: Final = (
    "baseline_total_ns",
    "input_total_ns",
    "change_ns",
    "count_effect_ns",
    "per_call_effect_ns",
)
_BY_KIND: Final = "kind of change"
_BY_CATEGORY: Final = "category"
_MOST_PARTS: Final = 10
#: Kernels whose durations are drawn, and points of a curve: 8 x 2 x 200 rows.
_MOST_KERNELS: Final = 8
_MOST_POINTS: Final = 200


def waterfall_columns(kernels: Columns) -> Columns:
    """Return the table waterfall: by kind of change, and by category.

    Where steps differ in number, times a step and rank come first and the sums after them.

    Args:
        kernels: The table kernels.
    """
    rows: list[tuple[str, str, str, float]] = []
    per_step = A_STEP in list(kernels["basis"])
    for basis, columns in ((A_STEP, _STEP_COLUMNS), (SUMS, _SUM_COLUMNS))[not per_step :]:
        before, after, change, count, per_call = (
            np.asarray(kernels[name], dtype=np.float64) for name in columns
        )
        views = (
            (_BY_KIND, _kinds(kernels, change, count, per_call)),
            (_BY_CATEGORY, _categories(kernels, change)),
        )
        for view, parts in views:
            label = f"{view}, {basis}" if per_step else view
            rows.append((label, "baseline", "total", float(before.sum())))
            rows += [(label, part, "change", ns) for part, ns in parts if ns]
            rows.append((label, "input", "total", float(after.sum())))
    names = ("view", "part", "kind", "value_ns")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def duration_columns(kernels: NamedKernels) -> Columns:
    """Return the table durations: the kernels with the largest effects, both sides."""
    enough = (kernels.before.launches_n >= LEAST_LAUNCHES) & (
        kernels.after.launches_n >= LEAST_LAUNCHES
    )
    size = np.abs(kernels.effects.per_call)
    order = np.lexsort((np.arange(size.size), -size))
    worst = [index for index in order.tolist() if enough[index] and size[index]][:_MOST_KERNELS]
    rows: list[tuple[str, str, int, float]] = []
    for index in worst:
        for side, one in (("baseline", kernels.before), ("input", kernels.after)):
            value, up_to_pct = _curve(one.counts, index)
            rows += [
                (kernels.names[index], side, ns, pct)
                for ns, pct in zip(value.tolist(), up_to_pct.tolist(), strict=True)
            ]
    names = ("name", "side", "duration_ns", "up_to_pct")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _kinds(
    kernels: Columns, change: FloatArray, count: FloatArray, per_call: FloatArray
) -> list[tuple[str, float]]:
    """Return the changes by kind; they add up to the whole."""
    status, talks = np.asarray(kernels["status"]), np.asarray(kernels["communication"])
    both = status == BOTH

    def total(values: FloatArray, chosen: BoolArray) -> float:
        return float(values[chosen].sum())

    return [
        ("vanished kernels", total(change, status == VANISHED)),
        ("new kernels", total(change, status == NEW)),
        ("fewer calls", total(count, both & (count < 0))),
        ("more calls", total(count, both & (count > 0))),
        ("shorter calls", total(per_call, both & ~talks & (per_call < 0))),
        ("longer calls", total(per_call, both & ~talks & (per_call > 0))),
        ("communication, per call", total(per_call, both & talks)),
    ]


def _categories(kernels: Columns, change: FloatArray) -> list[tuple[str, float]]:
    """Return the changes by category, largest first; the small ones are one."""
    names, code = np.unique(np.asarray(kernels["category"], dtype=str), return_inverse=True)
    sums = np.bincount(code, weights=change, minlength=len(names))
    order = np.lexsort((np.arange(sums.size), -np.abs(sums))).tolist()
    found = [(str(names[index]), float(sums[index])) for index in order]
    others = found[_MOST_PARTS:]
    if len(others) < 2:
        return found
    return [*found[:_MOST_PARTS], (f"{len(others)} others", sum(ns for _, ns in others))]


def _curve(counts: ValueCounts, group: int) -> tuple[IntArray, FloatArray]:
    """Return distinct durations and the share of launches up to each, at most so many points."""
    mine = counts.group == group
    value, count = counts.value[mine], counts.count[mine]
    up_to_pct = 100.0 * np.cumsum(count) / count.sum()
    if value.size > _MOST_POINTS:
        kept = np.unique(np.linspace(0, value.size - 1, _MOST_POINTS).astype(np.int64))
        value, up_to_pct = value[kept], up_to_pct[kept]
    return value, up_to_pct
