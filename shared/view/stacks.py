"""Bars of parts, and one number of many ranks: what can be read of four ranks and of a thousand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from .axes import (
    RANK_COLUMNS,
    RANK_TITLE,
    Plot,
    axis,
    axis_labels,
    axis_values,
    category_axis,
    escaped,
    legend_name,
)
from .palette import NEUTRAL, color_map
from .tables import Field
from .text import counted, format_value

__all__ = ["MOST_LINES", "profile", "stack"]

#: Above this many bars they stand upright without gaps, and one number becomes a profile.
MOST_LINES: Final = 64
#: Parts with a colour and a line in the legend of their own; the others are drawn as one.
_MOST_PARTS: Final = 11
_LEAST_PART: Final = 0.002
#: Ranks that a profile names: those farthest from the median, if they are this far from it, in
#: parts of the median, and not near to it beside the farthest, in parts of that one's distance.
_NAMED: Final = 3
_FAR: Final = 0.1
_NEAR: Final = 0.3


def stack(
    wide: pd.DataFrame, colors: Mapping[str, str], y: Field, x: Field, title: str | None
) -> Plot:
    """Return bars of parts.

    Args:
        wide: One row a bar, one column a part; null where a bar has no such part.
        colors: Of every part.
        y: What the bars are.
        x: What the parts measure.
        title: Of the axis of numbers; None: the heading of `x`.
    """
    whole = wide.astype("Float64")
    shown, tints = _main_parts(whole, colors)
    values, unit = axis_values(pd.Series(shown.to_numpy().ravel()), x)
    labels, parts_n = axis_labels(pd.Series(shown.index)), len(shown.columns)
    upright = len(labels) > MOST_LINES
    traces = [
        {"type": "bar", "name": legend_name(part), "marker": {"color": tint, "line": {"width": 0}}}
        | _placed(labels, values[index::parts_n], upright)
        | _hover(shown[part], part, x, unit, upright)
        for index, (part, tint) in enumerate(zip(shown.columns, tints, strict=True))
    ]
    numbers = axis(x, unit, title=title)
    if upright:
        name = RANK_TITLE if y.name in RANK_COLUMNS else y.heading
        xaxis = category_axis(len(labels), title=name)
        layout: Plot = {"xaxis": xaxis, "yaxis": numbers, "height": 380, "bargap": 0}
    else:
        yaxis = {"categoryorder": "array", "categoryarray": labels[::-1], "automargin": True}
        # The legend needs its room too.
        height = 130 + max(26 * len(labels), 20 * (parts_n + 1))
        layout = {"xaxis": numbers, "yaxis": {**yaxis, "type": "category"}, "height": height}
    return {"data": traces, "layout": {**layout, "barmode": "stack"}}


def _main_parts(wide: pd.DataFrame, colors: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """Return the parts that can be seen, and the sum of the others; and the colours of them."""
    sums = wide.sum().abs()
    seen = sums[sums >= _LEAST_PART * sums.sum()].nlargest(_MOST_PARTS, keep="first")
    large = seen.index.tolist()
    others = [part for part in wide.columns if part not in large and sums[part] > 0]
    if len(others) < 2:
        large = [*large, *others]
        others = []
    kept = wide[[part for part in wide.columns if part in large]]
    tints = [colors[str(part)] for part in kept.columns]
    if not others:
        return kept, tints
    rest = wide[others].sum(axis=1, min_count=1)
    return kept.assign(**{counted(len(others), "smaller part"): rest}), [*tints, NEUTRAL]


def _placed(labels: list[str], values: list[float | None], upright: bool) -> Plot:
    if upright:
        return {"x": labels, "y": values}
    return {"orientation": "h", "y": labels, "x": values}


def _hover(part: pd.Series, name: str, x: Field, unit: str, upright: bool) -> Plot:
    if upright:
        # One template for all bars keeps a figure of 1,024 ranks small.
        text = f"%{{x}}<br>{_plain(name)}: %{{y:.4g}} {unit}<extra></extra>"
        return {"hovertemplate": text}
    texts = [
        f"{escaped(bar)}<br>{escaped(name)}: {format_value(value, x.unit)}"
        for bar, value in zip(part.index, part.tolist(), strict=True)
    ]
    return {"hovertext": texts, "hoverinfo": "text"}


def _plain(name: str) -> str:
    """Return a name for a template, in which braces after a percent sign mean something."""
    return legend_name(name).replace("%", "&#37;")


def profile(frame: pd.DataFrame, x: Field, y: str) -> Plot:
    """Return one number of many ranks, in their order, around the median; far ones are named.

    Args:
        frame: One row a rank, no null in `x`.
        x: What is measured.
        y: Column that names the ranks; its values sort as the ranks do.
    """
    ordered = frame.sort_values(y, kind="stable")
    values, unit = axis_values(ordered[x.name], x)
    labels = axis_labels(ordered[y])
    numbers = np.array(values, dtype="float64")
    median = float(np.median(numbers))
    tint = color_map(["kernel"])["kernel"]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": labels,
        "y": values,
        "marker": {"color": tint, "size": 4},
        "hovertemplate": f"%{{x}}<br>%{{y:.4g}} {unit}<extra></extra>",
        "showlegend": False,
    }
    line = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": median,
        "y1": median,
        "line": {"color": NEUTRAL, "width": 1, "dash": "dash"},
    }
    layout = {
        "xaxis": category_axis(len(labels), title=RANK_TITLE),
        "yaxis": {**axis(x, unit), **_around(numbers, median)},
        "height": 360,
        "shapes": [line],
        "annotations": [_median_note(median, unit), *_notes(labels, numbers, median)],
    }
    return {"data": [trace], "layout": layout}


def _around(numbers: Any, median: float) -> Plot:
    """Return a range that holds all, and makes no mountains of differences of a percent."""
    least, most = float(numbers.min()), float(numbers.max())
    room = max(most - least, 0.2 * abs(median), 1e-9) * 0.1
    low, high = min(least, 0.9 * median) - room, max(most, 1.1 * median) + room
    return {"range": [max(low, 0.0) if least >= 0 else low, high], "rangemode": "normal"}


def _median_note(median: float, unit: str) -> Plot:
    note = {"text": f"median {median:.4g} {unit}", "showarrow": False, "font": {"size": 11}}
    return {**note, "xref": "paper", "x": 1, "xanchor": "right", "y": median, "yanchor": "bottom"}


def _notes(labels: list[str], numbers: Any, median: float) -> list[Plot]:
    away = np.abs(numbers - median)
    far = np.argsort(-away, kind="stable")[:_NAMED]
    least = max(_FAR * abs(median), _NEAR * float(away.max()))
    return [
        {"text": labels[index], "x": labels[index], "y": float(numbers[index]), "showarrow": True,
         "arrowhead": 0, "ax": 24, "ay": -14, "font": {"size": 11}}
        for index in far.tolist()
        if away[index] > least
    ]  # fmt: skip
