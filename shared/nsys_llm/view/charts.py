"""Charts of sizes and parts: bars, stacked bars, heat maps, boxes. See `figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from . import axes
from .palette import DIVERGING, HEAT, NEUTRAL, color_map
from .tables import Field
from .text import counted, format_value

#: No map is higher than a screen.
_MOST_HEIGHT: Final = 760
#: Lower ones have no room for the numbers beside their colors.
_LEAST_HEIGHT: Final = 260


def bars(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Horizontal bars: `x` (number), `y` (name), `color` and, on hover, `label` (names, optional).

    The longest first, ranks in their order.
    """
    x, y, color = fields[spec["x"]], spec["y"], spec.get("color")
    known = frame.dropna(subset=[x.name])
    size = known[x.name].abs().sort_values(ascending=False, kind="stable")
    top = known.loc[size.index[: spec.get("top", 20)]]
    if y in axes.RANK_COLUMNS:
        top = known[known.index.isin(top.index)]
    else:
        top = top.sort_values(x.name, ascending=False, kind="stable")
    labels = axes.axis_labels(top[y])
    values, unit = axes.axis_values(top[x.name], x)
    groups = axes.groups_of(top, color)
    texts = axes.hovers(top, fields, [y, spec.get("label"), x.name, color])
    colors = color_map(list(dict.fromkeys(groups)), ordered=color in axes.RANK_COLUMNS)
    traces = [
        axes.trace(
            "bar",
            orientation="h",
            name=axes.legend_name(group),
            showlegend=bool(color) and color != y,
            x=axes.at(rows, values),
            y=axes.at(rows, labels),
            marker={"color": colors[group] if color else color_map(["kernel"])["kernel"]},
            hovertext=axes.at(rows, texts),
            hoverinfo="text",
        )
        for group, rows in axes.rows_by_group(groups).items()
    ]
    layout = {
        "xaxis": axes.axis(x, unit, title=spec.get("x_title")),
        "yaxis": axes.rows_axis(labels),
        "height": 90 + 24 * max(len(labels), 2),
        "barmode": "stack",
        **({"legend": axes.legend_of(fields[color])} if color else {}),
    }
    return {"data": traces, "layout": layout}


def stacked(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Bars of parts: `y` (one bar each), `color` (the parts), `x` (number).

    Many bars stand upright without gaps. `order` names a column of numbers that orders the bars.
    """
    y, color, x = spec["y"], spec["color"], fields[spec["x"]]
    if "order" in spec:
        frame = frame.sort_values(spec["order"], kind="stable")
    wide = axes.pivot(frame, y, color, x.name)
    names = wide.columns.astype(str).tolist()
    colors = color_map(names, ordered=color in axes.RANK_COLUMNS)
    parts = wide.set_axis(names, axis=1)
    drawn = stack(parts, colors, fields[y], x)
    return {**drawn, "layout": {**drawn["layout"], "legend": axes.legend_of(fields[color])}}


def parts(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Bars of parts that are columns: `y` (one bar each), `parts` (columns of one unit)."""
    chosen = [fields[name] for name in spec["parts"]]
    names = [item.heading for item in chosen]
    # Several devices of a rank are one bar.
    sums = frame.groupby(spec["y"], sort=False)[list(spec["parts"])].sum(min_count=1)
    wide = sums.set_axis(names, axis=1)
    colors = color_map(names)
    return stack(wide, colors, fields[spec["y"]], chosen[0], "time")


def heat(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Heat map: `x`, `y` (names or numbers), `value`; empty cells stay empty.

    With `relative` a cell is how far it lies above the median of its row, in percent of that; with
    `row_share` it is its share of the largest of its row. `in_order` keeps the columns in the order
    of the table.
    """
    value, x, y = fields[spec["value"]], fields[spec["x"]], fields[spec["y"]]
    in_order = bool(spec.get("in_order"))
    wide = axes.pivot(frame, y.name, x.name, value.name, in_order=in_order)
    if y.name not in axes.RANK_COLUMNS:
        wide = wide.head(spec.get("top", 40))
    names = pd.Series(wide.columns)
    if x.numeric and x.name not in axes.RANK_COLUMNS:
        wide = wide.sort_index(axis=1)
        names = pd.Series([format_value(column, x.unit) for column in wide.columns], dtype=object)
    if spec.get("relative"):
        numbers, unit = _above_median(wide), "% above median"
        colors: axes.Plot = {"colorscale": [list(stop) for stop in DIVERGING], "zmid": 0}
    else:
        numbers, unit = axes.axis_values(pd.Series(wide.to_numpy().ravel()), value)
        if spec.get("row_share"):
            numbers, unit = _row_shares(wide), "% of row's largest"
        colors = {"colorscale": [list(stop) for stop in HEAT]}
    columns_n = len(wide.columns)
    labels = axes.axis_labels(names)
    trace = axes.trace(
        "heatmap",
        x=labels,
        y=axes.axis_labels(pd.Series(wide.index)),
        z=[numbers[row * columns_n : (row + 1) * columns_n] for row in range(len(wide))],
        colorbar={"title": {"text": unit}},
        hovertemplate=f"%{{y}}<br>%{{x}}<br>%{{z:.4g}} {unit}<extra></extra>",
        **colors,
    )
    title = axes.RANK_TITLE if x.name in axes.RANK_COLUMNS else x.heading
    # Of ranks, times and lengths some say where the others are; names stand each for itself.
    sequence = x.numeric or x.name in axes.RANK_COLUMNS or in_order
    layout = {
        "xaxis": axes.category_axis(columns_n, title=spec.get("x_title", title), each=not sequence),
        "yaxis": axes.category_axis(len(wide), title=spec.get("y_title", ""), down=True),
        "height": max(min(120 + 22 * len(wide), _MOST_HEIGHT), _LEAST_HEIGHT),
    }
    return {"data": [trace], "layout": layout}


def _row_shares(wide: pd.DataFrame) -> list[float | None]:
    """Return 100 * cell / largest of its row, row by row; None for empty cells."""
    shares = 100.0 * wide.div(wide.max(axis=1), axis=0)
    flat = shares.astype("Float64").to_numpy(dtype="float64", na_value=np.nan).ravel()
    return [None if value != value else round(value, 2) for value in flat.tolist()]


def _above_median(wide: pd.DataFrame) -> list[float | None]:
    """Return 100 * (cell / median of its row - 1), row by row; None where that is not known."""
    numbers = wide.astype("Float64").to_numpy(dtype="float64", na_value=np.nan)
    # A rank without the kernel spends no time in it.
    filled = np.nan_to_num(numbers)
    median = np.median(filled, axis=1, keepdims=True) if filled.size else filled
    above = 100.0 * (filled / np.where(median > 0, median, np.nan) - 1.0)
    return [None if value != value else round(value, 2) for value in above.ravel().tolist()]


def spread(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Boxes out of given percentiles: `y` (name), `low`, `q1`, `median`, `q3`, `high`."""
    names = ("low", "q1", "median", "q3", "high")
    columns = {name: spec[name] for name in names}
    top = frame.dropna(subset=list(columns.values())).head(spec.get("top", 15))
    field, color = fields[columns["median"]], spec.get("color")
    together = pd.concat([top[column].astype("float64") for column in columns.values()])
    values, unit = axes.axis_values(together, field)
    rows_n = len(top)
    percentiles = [values[row::rows_n] for row in range(rows_n)]
    labels = axes.axis_labels(top[spec["y"]])
    groups = axes.groups_of(top, color) if color else ["kernel"] * rows_n
    colors = color_map(list(dict.fromkeys(groups)))
    traces = [_box(labels[row], colors[groups[row]], percentiles[row]) for row in range(rows_n)]
    xaxis = {**axes.axis(field, unit, title=spec.get("x_title")), "type": "log"}
    yaxis = axes.rows_axis(labels)
    layout = {"xaxis": xaxis, "yaxis": yaxis, "height": 90 + 30 * max(rows_n, 2)}
    return {"data": traces, "layout": layout}


def _box(name: str, tint: str, percentiles: Sequence[float | None]) -> Any:
    low, q1, median, q3, high = percentiles
    return axes.trace(
        "box",
        orientation="h",
        y=[name],
        lowerfence=[low],
        q1=[q1],
        median=[median],
        q3=[q3],
        upperfence=[high],
        name=name,
        showlegend=False,
        marker={"color": tint},
    )


#: Above this many bars they stand upright without gaps.
MOST_LINES: Final = 64
#: Parts with a color and a line in the legend of their own; the others are drawn as one.
_MOST_PARTS: Final = 11
_LEAST_PART: Final = 0.002


def stack(
    wide: pd.DataFrame, colors: Mapping[str, str], y: Field, x: Field, title: str | None = None
) -> axes.Plot:
    """Return bars of parts.

    Args:
        wide: One row a bar, one column a part; null where a bar has no such part.
        title: Of the axis of numbers; None: the heading of `x`.
    """
    whole = wide.astype("Float64")
    shown, tints = _main_parts(whole, colors)
    values, unit = axes.axis_values(pd.Series(shown.to_numpy().ravel()), x)
    labels, parts_n = axes.axis_labels(pd.Series(shown.index)), len(shown.columns)
    upright = len(labels) > MOST_LINES
    traces = [
        axes.trace(
            "bar",
            name=axes.legend_name(part),
            marker={"color": tint, "line": {"width": 0}},
            **_placed(labels, values[index::parts_n], upright),
            **_hover(shown[part], part, x, unit, upright),
        )
        for index, (part, tint) in enumerate(zip(shown.columns, tints, strict=True))
    ]
    numbers = axes.axis(x, unit, title=title)
    if upright:
        xaxis = axes.category_axis(len(labels), title=y.heading)
        layout: axes.Plot = {"xaxis": xaxis, "yaxis": numbers, "height": 380, "bargap": 0}
    else:
        yaxis = axes.rows_axis(labels)
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


def _placed(labels: list[str], values: list[float | None], upright: bool) -> axes.Plot:
    if upright:
        return {"x": labels, "y": values}
    return {"orientation": "h", "y": labels, "x": values}


def _hover(part: pd.Series, name: str, x: Field, unit: str, upright: bool) -> axes.Plot:
    if upright:
        # One template for all bars keeps a figure of 1,024 ranks small.
        text = f"%{{x}}<br>{_plain(name)}: %{{y:.4g}} {unit}<extra></extra>"
        return {"hovertemplate": text}
    texts = [
        f"{axes.hover_text(str(bar))}<br>{axes.escaped(name)}: {format_value(value, x.unit)}"
        for bar, value in zip(part.index, part.tolist(), strict=True)
    ]
    return {"hovertext": texts, "hoverinfo": "text"}


def _plain(name: str) -> str:
    """Return a name for a template, in which braces after a percent sign mean something."""
    return axes.legend_name(name).replace("%", "&#37;")
