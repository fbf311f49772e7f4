"""Axes, labels and hovers of figures: readable units, escaped names, distinct labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from .tables import Field, shown
from .text import format_value, shortened

__all__ = [
    "LABEL_LENGTH",
    "RANK_COLUMNS",
    "Plot",
    "axis",
    "axis_labels",
    "axis_values",
    "escaped",
    "groups_of",
    "hovers",
    "legend_name",
    "pivot",
]

Plot = dict[str, Any]

#: Columns that name a rank; their values keep the order of the table.
RANK_COLUMNS: Final = frozenset({"file", "File", "rank", "Rank", "late_rank", "rank_device"})

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


def axis(field: Field, unit: str, *, title: str | None = None, from_zero: bool = True) -> Plot:
    """Return an axis with its title (the column's, unless given) and unit."""
    title = title or field.heading
    spoken = unit in ("", "count", "ratio", "%")
    return {
        "title": {"text": title if spoken else f"{title} ({unit})"},
        "rangemode": "tozero" if from_zero else "normal",
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
        # Two names may be shortened to the same text.
        found.append(label if repeats == 1 else f"{label} #{repeats}")
    return found


def escaped(name: object) -> str:
    """Escape text for plotly, which reads a little HTML and TeX in labels and hovers."""
    text = str(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("$", "&#36;")


def legend_name(name: object) -> str:
    """Return a name as a legend or a menu shows it."""
    return escaped(shortened(str(name), LABEL_LENGTH))


def hovers(
    frame: pd.DataFrame, fields: Mapping[str, Field], columns: Sequence[str | None]
) -> list[str]:
    """Return what appears over each row's point: its cells in some columns, None left out."""
    chosen = [name for name in dict.fromkeys(columns) if name is not None]
    texts = [
        [_hover_text(shown(value, fields[name])) for value in frame[name].tolist()]
        for name in chosen
    ]
    return ["<br>".join(cells) for cells in zip(*texts, strict=True)]


def groups_of(frame: pd.DataFrame, column: str | None) -> list[str]:
    """Return the name of each row's group; one group of no name without a column."""
    if column is None:
        return [""] * len(frame)
    return [format_value(value, None) for value in frame[column].tolist()]


def _hover_text(text: str) -> str:
    return escaped(text if len(text) < _HOVER_LENGTH else f"{text[:_HOVER_LENGTH]}...")
