"""Rows of finished tables as findings use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from nsys_llm.view.text import format_count


def first_row(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the cells of the first row by column."""
    return cells(frame.iloc[0])


def cells(row: pd.Series[Any]) -> dict[str, Any]:
    """Return the cells of a row by column."""
    return {str(name): value for name, value in row.items()}


def place(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a finding is, as its fields."""
    return {"rank": int(row["rank"]), "device_id": int(row["device_id"])}


def other_ranks(rows: pd.DataFrame, worst: Mapping[str, Any]) -> str:
    """Return a sentence that counts the other ranks, or nothing."""
    others_n = rows.loc[rows["rank"] != worst["rank"], "rank"].nunique()
    return f" Other ranks like it: {format_count(others_n)}." if others_n else ""
