"""Rows of finished tables as plain dictionaries, for findings to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

#: One row by column name; null is None.
Record = Mapping[str, Any]


def records(frame: pd.DataFrame) -> list[Record]:
    """Return the rows of a table, in order."""
    columns = [_values(frame[name]) for name in frame.columns]
    names = frame.columns.tolist()
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pd.Series) -> list[Any]:
    values, null = column.tolist(), column.isna()
    if not null.any():
        return values
    return [None if none else value for value, none in zip(values, null.tolist(), strict=True)]


def grouped(rows: Iterable[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    """Return rows by the values of some columns, in order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def severity_of(value: float, limits: Mapping[str, float]) -> str | None:
    """Return the first severity whose limit the value reaches; limits stand highest first."""
    return next((name for name, limit in limits.items() if value >= limit), None)


def window_of(row: Record, start: str, end: str) -> tuple[int, int] | None:
    """Return the window that two columns hold; None where they are null."""
    return None if row[start] is None else (row[start], row[end])
