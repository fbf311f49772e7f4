"""Tables that are drawn: the way from one total to the other, and how durations are spread."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.columns import Columns
from nsys_llm.distributions import ValueCounts
from nsys_llm.intervals import IntArray
from nsys_llm.recipes.trace_diff.kernel_tables import BOTH, NEW, VANISHED, NamedKernels
from nsys_llm.recipes.trace_diff.verdicts import LEAST_LAUNCHES

__all__ = ["duration_columns", "waterfall_columns"]

_BY_KIND: Final = "kind of change"
_BY_CATEGORY: Final = "category"
_MOST_PARTS: Final = 10
#: Kernels whose durations are drawn, and points of a curve: 8 x 2 x 200 rows.
_MOST_KERNELS: Final = 8
_MOST_POINTS: Final = 200


def waterfall_columns(kernels: NamedKernels, categories: Columns) -> Columns:
    """Return the table waterfall: by kind of change, and by category.

    Args:
        kernels: Compared by name.
        categories: Their table, largest change first.
    """
    before, after = int(kernels.before.total_ns.sum()), int(kernels.after.total_ns.sum())
    rows: list[tuple[str, str, str, int]] = []
    by_category = list(
        zip(categories["category"], (int(ns) for ns in categories["change_ns"]), strict=True)
    )
    others = by_category[_MOST_PARTS:]
    if len(others) > 1:
        rest = (f"{len(others)} others", sum(ns for _, ns in others))
        by_category = [*by_category[:_MOST_PARTS], rest]
    for view, parts in ((_BY_KIND, _kinds(kernels)), (_BY_CATEGORY, by_category)):
        rows.append((view, "baseline", "total", before))
        rows += [(view, part, "change", ns) for part, ns in parts if ns]
        rows.append((view, "input", "total", after))
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


def _kinds(kernels: NamedKernels) -> list[tuple[str, int]]:
    """Return the changes by kind; they add up to the whole."""
    status, effects, talks = kernels.status, kernels.effects, kernels.communication
    both = status == BOTH

    def total(values: IntArray, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int:
        return int(values[chosen].sum())

    return [
        ("vanished kernels", total(effects.change, status == VANISHED)),
        ("new kernels", total(effects.change, status == NEW)),
        ("fewer calls", total(effects.count, both & (effects.count < 0))),
        ("more calls", total(effects.count, both & (effects.count > 0))),
        ("shorter calls", total(effects.per_call, both & ~talks & (effects.per_call < 0))),
        ("longer calls", total(effects.per_call, both & ~talks & (effects.per_call > 0))),
        ("communication, per call", total(effects.per_call, both & talks)),
    ]


def _curve(
    counts: ValueCounts, group: int
) -> tuple[IntArray, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Return distinct durations and the share of launches up to each, at most so many points."""
    mine = counts.group == group
    value, count = counts.value[mine], counts.count[mine]
    up_to_pct = 100.0 * np.cumsum(count) / count.sum()
    if value.size > _MOST_POINTS:
        kept = np.unique(np.linspace(0, value.size - 1, _MOST_POINTS).astype(np.int64))
        value, up_to_pct = value[kept], up_to_pct[kept]
    return value, up_to_pct
