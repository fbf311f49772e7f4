"""What findings share: rows of finished tables, severities, and one finding for many ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

#: Finished tables by name.
Tables = Mapping[str, pd.DataFrame]
#: One row by column name; null is None.
Record = Mapping[str, Any]


def records(frame: pd.DataFrame) -> list[Record]:
    """Return the rows of a table, in order."""
    columns = [_values(frame[name]) for name in frame.columns]
    names = frame.columns.tolist()
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pd.Series) -> list[Any]:
    values = column.tolist()
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        return values
    null = column.array.isna()
    if not null.any():
        return values
    return [None if none else value for value, none in zip(values, null.tolist(), strict=True)]


def first_record(frame: pd.DataFrame) -> Record:
    """Return the first row of a table that has one."""
    return records(frame.head(1))[0]


def grouped(rows: Iterable[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    """Return rows by the values of some columns, in order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def percent(part: float | None, whole: float | None) -> float:
    """Return a share, 0 to 100; 0 where the part is null or there is no whole."""
    return 100.0 * (part or 0) / whole if whole else 0.0


def window_of(row: Record, start: str, end: str) -> tuple[int, int] | None:
    """Return the window that two columns hold; None where they are null."""
    return None if row[start] is None else (int(row[start]), int(row[end]))
