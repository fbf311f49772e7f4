"""The tables of llm_hotspots that sum kernels up by category, and decoded nvjet names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

import pandas as pd

from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.categories import UNMATCHED, Classification
from nsys_llm.taxonomy.names import NvjetFields, decode_nvjet

_SUMS: Final = ["launches_n", "total_ns", "exclusive_ns"]


def category_tables(
    sources: pd.DataFrame, known: Mapping[str, Classification], engine: str
) -> dict[str, Columns]:
    """Return the tables categories, operations and nvjet.

    Args:
        sources: One row a rank and full name: rank, file, name, full_name, category, and
            the integers that are summed.
    """
    categories = _shared_out(_summed(_with_unmatched(sources), ["category"]))
    # Kernels of no known operation are in one row a category.
    named = sources.assign(operation=[known[name].operation or "" for name in sources["full_name"]])
    operations = _shared_out(_summed(named, ["category", "operation"]))
    return {
        "categories": {"engine": [engine] * len(categories["category"]), **categories},
        "operations": operations | {"operation": [of or None for of in operations["operation"]]},
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


def _shared_out(sums: pd.DataFrame) -> Columns:
    """Return the sums with their shares; the exclusive times of all kernels are the busy time."""
    columns: Columns = {name: sums[name].to_numpy() for name in sums.columns}
    total_ns, busy_ns = columns["total_ns"], columns["exclusive_ns"]
    return columns | {
        "total_pct": percent(total_ns, total_ns.sum()),
        "busy_pct": percent(busy_ns, busy_ns.sum()),
    }


def _nvjet(sources: pd.DataFrame) -> Columns:
    sums = sources.groupby("full_name", sort=True)[["launches_n", "total_ns"]].sum()
    known = {name: of for name in sums.index if (of := decode_nvjet(name)) is not None}
    rows = sums.loc[list(known)].sort_values("total_ns", ascending=False, kind="stable")
    columns: Columns = {"name": rows.index.to_numpy()}
    columns |= {name: rows[name].to_numpy() for name in rows.columns}
    for field in fields(NvjetFields):
        values = [getattr(known[name], field.name) for name in rows.index]
        columns[field.name] = [
            (", ".join(value) or None) if isinstance(value, tuple) else value for value in values
        ]
    return columns
