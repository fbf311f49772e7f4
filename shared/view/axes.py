"""Axes, labels and hovers of figures: readable units, escaped names, distinct labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from .tables import Field
from .text import format_value, shortened

__all__ = [
    "LABEL_LENGTH",
    "RANK_COLUMNS",
    "Plot",
    "axis",
    "axis_labels",
    "axis_values",
    "escaped",
    "hover",
    "legend_name",
    "pivot",
]

Plot = dict[str, Any]

#: Columns that name a rank; their values keep the order of the table.
RANK_COLUMNS: Final = frozenset({"file", "File", "rank", "Rank"})

LABEL_LENGTH: Final = 44
_HOVER_LENGTH: Final = 200
_NS_AXES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def pivot(frame: pd.DataFrame, rows: str, columns: str, value: str) -> pd.DataFrame:
    """Return sums by two columns; both keep the order in which their values first occur."""
    wide = frame.pivot_table(index=rows, columns=columns, values=value, aggfunc="sum", sort=False)
    order = (
        frame.groupby(columns, sort=False)[value].sum().sort_values(ascending=False, kind="stable")
    )
    kept = order.index if columns not in RANK_COLUMNS else frame[columns].drop_duplicates()
    return wide.reindex(index=frame[rows].drop_duplicates(), columns=kept)


def axis_values(values: pd.Series, field: Field) -> tuple[list[float | None], str]:
    """Return numbers for an axis, and the unit in which they are; times get a readable one."""
    numbers = values.astype("Float64").to_numpy(dtype="float64", na_value=np.nan)
    scale, unit = 1.0, field.unit or ""
    if unit == "ns":
        largest = np.nanmax(np.abs(numbers), initial=0)
        scale, unit = next((step for step in _NS_AXES if largest >= step[0]), (1.0, "ns"))
    return [None if one != one else float(f"{one / scale:.6g}") for one in numbers.tolist()], unit


def axis(field: Field, unit: str) -> Plot:
    """Return an axis with its title and unit, from zero on."""
    spoken = unit in ("", "count", "ratio", "%")
    title = field.heading if spoken else f"{field.heading} ({unit})"
    return {
        "title": {"text": title},
        "rangemode": "tozero",
        "automargin": True,
        "gridcolor": "#e6e6e6",
        "zerolinecolor": "#bbbbbb",
    }


def axis_labels(names: pd.Series, *, distinct: bool = True) -> list[str]:
    """Return labels of an axis: shortened, escaped, and each row with one of its own if wanted."""
    used: dict[str, int] = {}
    found = []
    for name in names.tolist():
        label = escaped(shortened(format_value(name, None), LABEL_LENGTH))
        repeats = used[label] = used.get(label, 0) + 1 if distinct else 1
        # Two names may be cut to the same text; invisible blanks keep their bars apart.
        found.append(label + "\u200b" * (repeats - 1))
    return found


def escaped(name: object) -> str:
    """Escape text for plotly, which reads a little HTML and TeX in labels and hovers."""
    text = str(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("$", "&#36;")


def legend_name(name: object) -> str:
    """Return a name as a legend or a menu shows it."""
    return escaped(shortened(str(name), LABEL_LENGTH))


def hover(row: Any, fields: Mapping[str, Field], columns: list[str | None]) -> str:
    """Return what appears over a point: its cells in some columns, None left out."""
    parts = [
        escaped(format_value(row[name], fields[name].unit))
        for name in dict.fromkeys(columns)
        if name is not None
    ]
    return "<br>".join(
        part if len(part) < _HOVER_LENGTH else f"{part[:_HOVER_LENGTH]}..." for part in parts
    )
