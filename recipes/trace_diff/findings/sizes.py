"""Kernels that are launched at other sizes: another problem, not a slower or faster kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from nsys_llm.view.text import format_count, format_ns, quoted

from .change import Clue, changed, count_fields, matters
from .normalization import Basis
from .texts import SAME_GRID_PCT, SPLIT_RATIO, STANDS_OUT


def size_clues(basis: Basis) -> Iterator[Clue]:
    """Yield kernels of which launch sizes changed: split launches, and other problem sizes."""
    kernels = basis.kernels
    rows = kernels[(kernels["moved"] | kernels["resized"]) & ~kernels["communication"]]
    for row, is_split in zip(rows.to_dict("records"), split_kernels(rows), strict=True):
        clue = _split(row, basis) if is_split else _resized(row, basis)
        if matters(clue.impact_ns, basis):
            yield clue


def split_kernels(kernels: pd.DataFrame) -> pd.Series:
    """Tell which kernels launch as many threads in all on both sides, in more or fewer launches."""
    ratio = kernels["input_n"] / kernels["baseline_n"]
    grids = kernels["input_threads"] / kernels["baseline_threads"]
    same_grids = kernels["resized"] & (100 * (grids - 1).abs() <= SAME_GRID_PCT)
    return same_grids & ((ratio >= SPLIT_RATIO) | (ratio <= 1 / SPLIT_RATIO))


def _split(row: Any, basis: Basis) -> Clue:
    more = row["input_n"] > row["baseline_n"]
    how = "split into more, smaller" if more else "merged into fewer, larger"
    return Clue(
        "split_launches" if more else "merged_launches",
        row["change"],
        f"{named_kernel(row)} is {how} launches of the same total grid: {calls_of(row, basis)}, "
        f"{_geometry(row)} ({changed(row['change'])})",
        name=row["name"],
        category=row["category"],
        numbers=count_fields(row),
    )


def _resized(row: Any, basis: Basis) -> Clue:
    brief = ""
    if row["resized"]:
        impact_ns = row["change"]
        brief = (
            f"{named_kernel(row)} runs at a different size ({_geometry(row)}), "
            f"{format_ns(row['before'])} -> {format_ns(row['after'])}"
        )
        text = f"{brief} in {calls_of(row, basis)} ({changed(impact_ns)})"
        brief = f"{brief} ({changed(impact_ns)})"
    else:
        impact_ns = row["size"]
        text = (
            f"{named_kernel(row)} runs at other sizes in a part of {calls_of(row, basis)} "
            f"({_geometry(row)}), which makes {changed(impact_ns)}"
        )
    return Clue(
        "other_sizes",
        impact_ns,
        text,
        name=row["name"],
        category=row["category"],
        brief=brief,
        numbers={**count_fields(row), "before_ns": row["before"], "after_ns": row["after"]},
        stands_out=row["baseline_n"] == row["input_n"]
        and not 1 / STANDS_OUT < row["ratio"] < STANDS_OUT,
    )


def _geometry(row: Any) -> str:
    """Return how sizes changed; sizes are code, words are not."""
    text = str(row["geometry"])
    return quoted(text) if "->" in text else text


def named_kernel(row: Any) -> str:
    """Return the name of a kernel, with what it does where that is known."""
    operation = row["operation"]
    return quoted(row["name"]) + ("" if pd.isna(operation) else f" ({operation})")


def calls_of(row: Any, basis: Basis) -> str:
    """Return how many calls both sides have, in words."""
    before, after = row["baseline_n"], row["input_n"]
    a_step = basis.a_step
    if before == after:
        return f"the same {number_of(before)} calls{a_step}"
    return f"{number_of(after)} calls{a_step} instead of {number_of(before)}"


def number_of(value: float) -> str:
    """Return a number of calls, which may be one of a step and so no integer."""
    return format_count(value) if float(value).is_integer() else f"{value:.3g}"
