"""Charts over time: lines, points, and the timeline of a device. See `figures`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from . import axes
from .palette import NEUTRAL, color_map
from .tables import Field

#: More lines or groups of points cannot be told apart.
MOST_SERIES: Final = 12
_HEIGHT: Final = 360
#: Of a timeline.
_MOST_BARS: Final = 2000
#: What is drawn together where there are more groups than can be told apart.
_OTHERS: Final = "all others"


def lines(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Lines: `x` and `y` (numbers), `series` (one line each); of many those that reach highest.

    With `step` a value holds until the next point.
    """
    x, y, series = fields[spec["x"]], fields[spec["y"]], spec["series"]
    frame = frame.dropna(subset=[x.name, y.name])
    highest = frame.groupby(series, sort=False)[y.name].max()
    few = highest.sort_values(ascending=False, kind="stable").index[:MOST_SERIES]
    frame = frame[frame[series].isin(few)]
    by_name = axes.rows_by_group([str(name) for name in frame[series].tolist()])
    x_values, x_unit = axes.axis_values(frame[x.name], x)
    y_values, y_unit = axes.axis_values(frame[y.name], y)
    colors = color_map(list(by_name), ordered=series in axes.RANK_COLUMNS)
    shape = "hv" if spec.get("step") else "linear"
    traces = [
        axes.trace(
            "scatter",
            # One point makes no line.
            mode="lines" if len(rows) > 1 else "markers",
            name=axes.legend_name(name),
            showlegend=True,
            x=axes.at(rows, x_values),
            y=axes.at(rows, y_values),
            line={"color": colors[name], "width": 1.5, "shape": shape},
        )
        for name, rows in by_name.items()
    ]
    xaxis = axes.axis(x, x_unit, title=spec.get("x_title"), from_zero=False)
    xaxis["type"] = "linear"
    layout = {"xaxis": xaxis, "yaxis": axes.axis(y, y_unit), "height": _HEIGHT}
    legend = axes.legend_of(fields[series])
    if len(highest) > len(few):
        legend["title"]["text"] += f"<br>(the highest {len(few)} of {len(highest):,})"
    return {"data": traces, "layout": {**layout, "legend": legend}}


def points(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Points: `x` and `y` (numbers), `color` and, on hover, `label` (names, optional).

    With `log` the y axis is logarithmic.
    """
    x, y, color = fields[spec["x"]], fields[spec["y"]], spec.get("color")
    top = frame.dropna(subset=[x.name, y.name]).head(spec.get("top", 5000))
    texts = axes.hovers(top, fields, [x.name, y.name, color, spec.get("label")])
    x_values, x_unit = axes.axis_values(top[x.name], x)
    y_values, y_unit = axes.axis_values(top[y.name], y)
    groups, names = _main_groups(top, color)
    colors = {**color_map(names, ordered=color in axes.RANK_COLUMNS), _OTHERS: NEUTRAL}
    if color is None:
        colors[""] = NEUTRAL
    by_name = {name: list[int]() for name in names} | axes.rows_by_group(groups)
    traces = [
        axes.trace(
            "scatter",
            mode="markers",
            name=axes.legend_name(name),
            showlegend=color is not None,
            x=axes.at(rows, x_values),
            y=axes.at(rows, y_values),
            marker={"color": colors[name], "size": 5, "opacity": 0.75},
            hovertext=axes.at(rows, texts),
            hoverinfo="text",
        )
        for name, rows in by_name.items()
    ]
    yaxis = axes.axis(y, y_unit)
    yaxis = {**yaxis, "type": "log" if spec.get("log") else "linear"}
    xaxis = axes.axis(x, x_unit, from_zero=False)
    layout = {"xaxis": xaxis, "yaxis": yaxis, "height": _HEIGHT + 60}
    if color is not None:
        layout["legend"] = axes.legend_of(fields[color])
    return {"data": traces, "layout": layout}


def _main_groups(frame: pd.DataFrame, color: str | None) -> tuple[list[str], list[str]]:
    """Return each row's group, and the groups with a color of their own, ranks in order.

    Of more groups than can be told apart the others are one.
    """
    groups = axes.groups_of(frame, color)
    names = list(dict.fromkeys(groups))
    if color in axes.RANK_COLUMNS:
        # Ranks keep their colors, whatever a table lists first.
        names = axes.groups_of(frame.drop_duplicates(color).sort_values(color), color)
    if len(names) <= MOST_SERIES:
        return groups, names
    counts = Counter(groups)
    most = {name for name, _ in counts.most_common(MOST_SERIES - 2)}
    main = [name for name in names if name in most]
    return [name if name in most else _OTHERS for name in groups], main


def timeline(
    frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]
) -> axes.Plot:
    """Bars in time: `start`, `duration`, `lane` (one row each), `color` and `label` (names)."""
    start, duration = fields[spec["start"]], fields[spec["duration"]]
    top = frame.head(_MOST_BARS)
    offset = top[start.name] - top[start.name].min() if len(top) else top[start.name]
    rows_n = len(top)
    both = pd.concat([offset + top[duration.name], offset, top[duration.name]])
    values, unit = axes.axis_values(both, start)
    lanes = axes.axis_labels(top[spec["lane"]], distinct=False)
    groups = axes.groups_of(top, spec["color"])
    colors = color_map(list(dict.fromkeys(groups)))
    texts = axes.hovers(top, fields, [spec["label"], start.name, duration.name, spec["lane"]])
    traces = [
        axes.trace(
            "bar",
            orientation="h",
            name=axes.legend_name(name),
            base=axes.at(rows, values, rows_n),
            x=axes.at(rows, values, 2 * rows_n),
            y=axes.at(rows, lanes),
            marker={"color": colors[name], "line": {"width": 0.5, "color": "white"}},
            hovertext=axes.at(rows, texts),
            hoverinfo="text",
        )
        for name, rows in axes.rows_by_group(groups).items()
    ]
    title = axes.axis_title(f"since the first one shown ({unit})")
    yaxis = axes.category_axis(0, down=True)
    layout = {
        "barmode": "overlay",
        "xaxis": {**axes.axis(start, unit), "title": title},
        "yaxis": yaxis,
    }
    layout["legend"] = axes.legend_of(fields[spec["color"]])
    return {"data": traces, "layout": {**layout, "height": 150 + 40 * max(len(set(lanes)), 2)}}
