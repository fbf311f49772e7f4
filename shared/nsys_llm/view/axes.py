"""Axes, labels and hovers of figures: readable units, escaped names, distinct labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from .kernel_names import parted
from .tables import QUOTING, Field, shown
from .text import cleaned, format_value, shortened, unquoted

Plot = dict[str, Any]

#: Columns that name a rank; their values keep the order of the table.
RANK_COLUMNS: Final = frozenset({"file", "File", "rank", "Rank", "late_rank", "rank_device"})

#: What ranks are called on an axis, whichever column names them.
RANK_TITLE: Final = "rank"
#: Above this many names an axis shows some of them.
MOST_TICKS: Final = 40
_MOST_TICKS_ACROSS: Final = 14
LABEL_LENGTH: Final = 44
_HOVER_LENGTH: Final = 200
#: Names keep off the axis, by ticks that are not seen.
_TICKS_APART: Final = {"ticks": "outside", "ticklen": 5, "tickcolor": "rgba(0,0,0,0)"}
_AXES: Final = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us")),
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
}


def trace(kind: str, **properties: Any) -> Plot:
    """Return what a figure shows in one look, as plotly's JSON."""
    return {"type": kind, **properties}


def pivot(
    frame: pd.DataFrame, rows: str, columns: str, value: str, *, in_order: bool = False
) -> pd.DataFrame:
    """Return sums by two columns; rows keep the order in which their values first occur.

    So do columns that name a rank, and all columns `in_order`; else the largest sum comes first.
    """
    wide = frame.pivot_table(index=rows, columns=columns, values=value, aggfunc="sum", sort=False)
    order = (
        frame.groupby(columns, sort=False)[value].sum().sort_values(ascending=False, kind="stable")
    )
    as_is = in_order or columns in RANK_COLUMNS
    kept = frame[columns].drop_duplicates() if as_is else order.index
    return wide.reindex(index=frame[rows].drop_duplicates(), columns=kept)


def axis_values(values: pd.Series, field: Field) -> tuple[list[float | None], str]:
    """Return numbers for an axis, and their unit: one that can be read for times and sizes."""
    numbers = values.astype("Float64").to_numpy(dtype="float64", na_value=np.nan)
    scale, unit = 1.0, field.unit or ""
    if unit in _AXES:
        largest = np.nanmax(np.abs(numbers), initial=0)
        scale, unit = next((step for step in _AXES[unit] if largest >= step[0]), (1.0, unit))
    return [
        None if number != number else float(f"{number / scale:.6g}") for number in numbers.tolist()
    ], unit


def axis(field: Field, unit: str, *, title: str | None = None, from_zero: bool = True) -> Plot:
    """Return an axis with its title (the column's, unless given) and unit."""
    title = title or field.heading
    spoken = unit in ("", "count", "ratio", "%")
    return {
        "title": axis_title(title if spoken else f"{title} ({unit})"),
        "rangemode": "tozero" if from_zero else "normal",
        "automargin": True,
        "gridcolor": "#e6e6e6",
        "zerolinecolor": "#bbbbbb",
    }


def axis_title(text: str) -> Plot:
    """Return a title that stands by its ticks and not by what is below the figure."""
    return {"text": text, "standoff": 6}


def category_axis(
    values_n: int, *, title: str = "", down: bool = False, each: bool = False
) -> Plot:
    """Return an axis of names; of many only some are written, with `each` as many as fit."""
    layout: Plot = {"type": "category", "automargin": True, **_TICKS_APART}
    if title:
        layout["title"] = axis_title(title)
    if down:
        layout["autorange"] = "reversed"
    most_n = MOST_TICKS if down or each else _MOST_TICKS_ACROSS
    if values_n > most_n:
        layout |= {"tickmode": "auto", "nticks": most_n}
    return layout


def rows_axis(labels: Sequence[str]) -> Plot:
    """Return the y axis of things that lie, each under its name, the first on top."""
    order = {"categoryorder": "array", "categoryarray": list(labels)[::-1]}
    return {**category_axis(0), **order}


def lane_axis(names: Sequence[str]) -> Plot:
    """Return the y axis of lanes, the first on top; of many some are named."""
    shown = range(0, len(names), -(-len(names) // MOST_TICKS) or 1)
    return {
        "tickvals": list(shown),
        "ticktext": [escaped(shortened(str(names[lane]), LABEL_LENGTH)) for lane in shown],
        "title": axis_title(RANK_TITLE),
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }


def axis_labels(names: pd.Series, *, distinct: bool = True) -> list[str]:
    """Return labels of an axis: shortened, escaped, and each row with one of its own if wanted.

    Of a kernel with its launch configuration, `NAME [CONFIGURATION]`, the label is the name, with
    what tells its configurations apart where it has several.

    Args:
        distinct: Whether rows of one name are to be told apart.
    """
    texts = [format_value(name, None) for name in names.tolist()]
    parts = [parted(text) for text in texts]
    # A title is prose: its names stand in backticks.
    short = [shortened(unquoted(name), LABEL_LENGTH) for name, _ in parts]
    by_label: dict[str, list[list[str]]] = {}
    for label, (_, configuration) in zip(short, parts, strict=True):
        by_label.setdefault(label, []).append(configuration.split(" / "))
    labels = []
    for label, (_, configuration) in zip(short, parts, strict=True):
        reported = _differing(configuration.split(" / "), by_label[label]) if distinct else ""
        labels.append(escaped(f"{label} [{reported}]" if reported else label))
    return _numbered(labels, texts) if distinct else labels


def _numbered(labels: list[str], names: list[str]) -> list[str]:
    """Return labels of which no two are alike: those of several names have a number beside them.

    It follows the names, not the rows, so that it is the same in all figures that show these names.
    """
    used: dict[str, int] = {}
    numbered = list(labels)
    for row in sorted(range(len(names)), key=names.__getitem__):
        label = labels[row]
        repeats = used[label] = used.get(label, 0) + 1
        if repeats > 1:
            numbered[row] = f"{label} #{repeats}"
    return numbered


def _differing(pieces: list[str], others: list[list[str]]) -> str:
    if any(len(other) != len(pieces) for other in others):
        return " / ".join(pieces)
    return " / ".join(
        piece for place, piece in enumerate(pieces) if len({other[place] for other in others}) > 1
    )


def escaped(name: object) -> str:
    """Escape text for plotly, which reads a little HTML and TeX in labels and hovers."""
    text = str(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("$", "&#36;")


def legend_of(field: Field) -> Plot:
    """Return a legend that says what its names are."""
    title = RANK_TITLE if field.name in RANK_COLUMNS else field.heading
    return {"title": {"text": escaped(title)}, "traceorder": "normal"}


def legend_name(name: object) -> str:
    """Return a name as a legend or a menu shows it."""
    return escaped(shortened(str(name), LABEL_LENGTH))


def hovers(
    frame: pd.DataFrame, fields: Mapping[str, Field], columns: Sequence[str | None]
) -> list[str]:
    """Return what appears over each row's point: its cells in some columns, None left out."""
    chosen = [name for name in dict.fromkeys(columns) if name is not None]
    columns_of = []
    for name in chosen:
        texts = [shown(value, fields[name]) for value in frame[name].tolist()]
        columns_of.append(map(hover_text, map(unquoted, texts) if name in QUOTING else texts))
    return ["<br>".join(cells) for cells in zip(*columns_of, strict=True)]


def groups_of(frame: pd.DataFrame, column: str | None) -> list[str]:
    """Return the name of each row's group; one group of no name without a column."""
    if column is None:
        return [""] * len(frame)
    return [format_value(value, None) for value in frame[column].tolist()]


def rows_by_group(groups: Sequence[str]) -> dict[str, list[int]]:
    """Return the rows of each group, in order of first occurrence."""
    rows: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    return rows


def at(rows: Sequence[int], values: Sequence[Any], first: int = 0) -> list[Any]:
    """Return the values of some rows; those of row 0 stand at `first`."""
    return [values[first + row] for row in rows]


def hover_text(text: str) -> str:
    """Return a text as what appears over a point: shortened, on one line, without markup."""
    text = cleaned(text)
    return escaped(text if len(text) < _HOVER_LENGTH else f"{text[:_HOVER_LENGTH]}...")
