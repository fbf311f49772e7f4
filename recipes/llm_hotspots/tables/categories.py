"""The tables of llm_hotspots that sum kernels up: categories, rules, and decoded nvjet names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import pandas as pd

from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.categories import UNMATCHED, Classification
from nsys_llm.taxonomy.names import NvjetFields, decode_nvjet

#: Category of a shown name that stands for full names of different categories.

_SUMS: Final = ["launches_n", "total_ns", "exclusive_ns"]


def category_tables(
    sources: pd.DataFrame, known: Mapping[str, Classification], engine: str
) -> dict[str, Columns]:
    """Return the tables categories, operations, rules and nvjet.

    Args:
        sources: One row a rank and full name: rank, file, name, full_name, category, rule_id, and
            the integers that are summed.
    """
    categories = _summed(_with_unmatched(sources), ["category"])
    return {
        "categories": {
            "engine": [engine] * len(categories),
            **_shared_out(
                categories, categories["total_ns"].sum(), categories["exclusive_ns"].sum()
            ),
        },
        "operations": _operations(sources, known),
        "rules": _rules(sources, known),
        "nvjet": _nvjet(sources),
    }


def class_columns(classes: Sequence[Classification]) -> Columns:
    """Return the columns category, rule_id, operation and flags."""
    return {
        "category": [item.category for item in classes],
        "rule_id": [item.rule_id for item in classes],
        "operation": [item.operation for item in classes],
        "flags": [", ".join(item.flags) or None for item in classes],
    }


def _with_unmatched(sources: pd.DataFrame) -> pd.DataFrame:
    """Make sure that there is an unmatched row, so that its share is stated even where it is 0."""
    if sources.empty or (sources["category"] == UNMATCHED).any():
        return sources
    nothing = sources.iloc[:1].assign(
        name=None, category=UNMATCHED, launches_n=0, total_ns=0, exclusive_ns=0
    )
    return pd.concat([sources, nothing], ignore_index=True)


def _summed(sources: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return sums by key, most exclusive time first."""
    groups = sources.groupby(keys, sort=True)
    sums = groups[_SUMS].sum()
    sums["kernels_n"] = groups["name"].nunique()
    order = ["exclusive_ns", *reversed(keys)]
    ascending = [name != "exclusive_ns" for name in order]
    return sums.reset_index().sort_values(order, ascending=ascending, ignore_index=True)


def _shared_out(sums: pd.DataFrame, total_ns: Any, busy_ns: Any) -> Columns:
    """Return the sums with their shares; the exclusive times of all kernels are the busy time."""
    return {
        **{name: sums[name].to_numpy() for name in sums.columns},
        "total_pct": percent(sums["total_ns"].to_numpy(), total_ns),
        "busy_pct": percent(sums["exclusive_ns"].to_numpy(), busy_ns),
    }


def _operations(sources: pd.DataFrame, known: Mapping[str, Classification]) -> Columns:
    """Return what kernels do in a model; those of no known operation, in one row a category."""
    named = sources.assign(operation=[known[name].operation or "" for name in sources["full_name"]])
    sums = _summed(named, ["category", "operation"])
    columns = _shared_out(sums, sums["total_ns"].sum(), sums["exclusive_ns"].sum())
    return {**columns, "operation": [name or None for name in sums["operation"]]}


def _rules(sources: pd.DataFrame, known: Mapping[str, Classification]) -> Columns:
    # A rule has one category, so that grouping by both is grouping by the rule.
    sums = _summed(sources, ["category", "rule_id"])
    by_time = sources.groupby(["rule_id", "full_name"], sort=True)["exclusive_ns"].sum()
    heaviest = by_time.reset_index().sort_values("exclusive_ns", ascending=False, kind="stable")
    example = heaviest.drop_duplicates("rule_id").set_index("rule_id")["full_name"].to_dict()
    examples = [example[rule_id] for rule_id in sums["rule_id"]]
    classes = class_columns([known[name] for name in examples])
    return {
        **{name: sums[name].to_numpy() for name in ["rule_id", "category", "kernels_n", *_SUMS]},
        "operation": classes["operation"],
        "flags": classes["flags"],
        "example": examples,
    }


def _nvjet(sources: pd.DataFrame) -> Columns:
    sums = sources.groupby("full_name", sort=True)[["launches_n", "total_ns"]].sum()
    decoded = {name: decode_nvjet(name) for name in sums.index}
    known = {
        name: nvjet_fields for name, nvjet_fields in decoded.items() if nvjet_fields is not None
    }
    rows = sums.loc[list(known)].sort_values("total_ns", ascending=False, kind="stable")
    columns: Columns = {"name": rows.index.to_numpy()}
    columns |= {name: rows[name].to_numpy() for name in rows.columns}
    for field in fields(NvjetFields):
        columns[field.name] = [_cell(getattr(known[name], field.name)) for name in rows.index]
    return columns


def _cell(value: Any) -> Any:
    return (", ".join(value) or None) if isinstance(value, tuple) else value
