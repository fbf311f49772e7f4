"""Bars of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd
import plotly.graph_objects as go

from .axes import (
    Plot,
    axis,
    axis_labels,
    axis_values,
    category_axis,
    escaped,
    hover_text,
    legend_name,
    rows_axis,
)
from .palette import NEUTRAL
from .tables import Field
from .text import counted, format_value

#: Above this many bars they stand upright without gaps.
MOST_LINES: Final = 64
#: Parts with a color and a line in the legend of their own; the others are drawn as one.
_MOST_PARTS: Final = 11
_LEAST_PART: Final = 0.002


def stack(
    wide: pd.DataFrame, colors: Mapping[str, str], y: Field, x: Field, title: str | None = None
) -> Plot:
    """Return bars of parts.

    Args:
        wide: One row a bar, one column a part; null where a bar has no such part.
        title: Of the axis of numbers; None: the heading of `x`.
    """
    whole = wide.astype("Float64")
    shown, tints = _main_parts(whole, colors)
    values, unit = axis_values(pd.Series(shown.to_numpy().ravel()), x)
    labels, parts_n = axis_labels(pd.Series(shown.index)), len(shown.columns)
    upright = len(labels) > MOST_LINES
    traces = [
        go.Bar(
            name=legend_name(part),
            marker={"color": tint, "line": {"width": 0}},
            **_placed(labels, values[index::parts_n], upright),
            **_hover(shown[part], part, x, unit, upright),
        )
        for index, (part, tint) in enumerate(zip(shown.columns, tints, strict=True))
    ]
    numbers = axis(x, unit, title=title)
    if upright:
        xaxis = category_axis(len(labels), title=y.heading)
        layout: Plot = {"xaxis": xaxis, "yaxis": numbers, "height": 380, "bargap": 0}
    else:
        yaxis = rows_axis(labels)
        # The legend needs its room too.
        height = 130 + max(26 * len(labels), 20 * (parts_n + 1))
        layout = {"xaxis": numbers, "yaxis": {**yaxis, "type": "category"}, "height": height}
    return {"data": traces, "layout": {**layout, "barmode": "stack"}}


def _main_parts(wide: pd.DataFrame, colors: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """Return the parts that can be seen, and the sum of the others; and the colors of them."""
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
        f"{hover_text(str(bar))}<br>{escaped(name)}: {format_value(value, x.unit)}"
        for bar, value in zip(part.index, part.tolist(), strict=True)
    ]
    return {"hovertext": texts, "hoverinfo": "text"}


def _plain(name: str) -> str:
    """Return a name for a template, in which braces after a percent sign mean something."""
    return legend_name(name).replace("%", "&#37;")
