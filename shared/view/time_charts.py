"""Charts over time: lines, points, and the timeline of a device. See `figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from .axes import (
    RANK_COLUMNS,
    Plot,
    axis,
    axis_labels,
    axis_values,
    groups_of,
    hovers,
    legend_name,
)
from .palette import NEUTRAL, color_map
from .tables import Field

__all__ = ["lines", "points", "timeline"]

#: Above this many lines their percentiles are drawn as bands.
MOST_SERIES: Final = 12
_BANDS: Final = ((0.0, 1.0, "least to most", 0.15), (0.25, 0.75, "middle half", 0.35))
_HEIGHT: Final = 360
#: Parts of the x axis in which bands are drawn.
_PARTS: Final = 120


def lines(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Lines: `x` and `y` (numbers), `series` (one line each, optional); bands where they are many.

    With `step` a value holds until the next point; with `from_first` every line begins at 0; with
    `log` the x axis is logarithmic.
    """
    x, y, series = fields[spec["x"]], fields[spec["y"]], spec.get("series")
    frame = frame.dropna(subset=[x.name, y.name])
    if spec.get("from_first") and series:
        frame = _from_first(frame, x.name, series)
    names = frame[series].drop_duplicates().tolist() if series else [""]
    if len(names) > MOST_SERIES:
        return _bands(frame, x, y, spec["series"])
    x_values, x_unit = axis_values(frame[x.name], x)
    y_values, y_unit = axis_values(frame[y.name], y)
    owner = frame[series].tolist() if series else [""] * len(frame)
    tints = color_map([str(name) for name in names], ordered=series in RANK_COLUMNS)
    traces = []
    for name in names:
        mine = [index for index, one in enumerate(owner) if one == name]
        traces.append(
            {
                "type": "scatter",
                # One point makes no line.
                "mode": "lines" if len(mine) > 1 else "markers",
                "name": legend_name(name),
                "showlegend": bool(series),
                "x": [x_values[index] for index in mine],
                "y": [y_values[index] for index in mine],
                "line": {
                    "color": tints[str(name)] if series else color_map(["kernel"])["kernel"],
                    "width": 1.5,
                    "shape": "hv" if spec.get("step") else "linear",
                },
            }
        )
    xaxis = {**_time_axis(x, x_unit, spec), "type": "log" if spec.get("log") else "linear"}
    layout = {"xaxis": xaxis, "yaxis": axis(y, y_unit), "height": _HEIGHT}
    return {"data": traces, "layout": layout}


def points(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Points: `x` and `y` (numbers), `color` and, on hover, `label` (names, optional).

    With `low` and `high` each point has a bar from the one to the other; with `log` the y axis is
    logarithmic.
    """
    x, y, color = fields[spec["x"]], fields[spec["y"]], spec.get("color")
    ends = [spec[name] for name in ("low", "high") if name in spec]
    top = frame.dropna(subset=[x.name, y.name, *ends]).head(spec.get("top", 5000))
    texts = hovers(top, fields, [x.name, y.name, *ends, color, spec.get("label")])
    if spec.get("from_first") and color:
        top = _from_first(top, x.name, color)
    x_values, x_unit = axis_values(top[x.name], x)
    together = pd.concat([top[name].astype("float64") for name in (y.name, *ends)])
    y_values, y_unit = axis_values(together, y)
    groups = groups_of(top, color)
    names = list(dict.fromkeys(groups))
    if color in RANK_COLUMNS:
        # Ranks keep their colours, whatever a table lists first.
        names = groups_of(top.drop_duplicates(color).sort_values(color), color)
    tints = color_map(names, ordered=color in RANK_COLUMNS)
    traces = []
    for name in names:
        mine = [index for index, one in enumerate(groups) if one == name]
        tint = tints[name] if color else NEUTRAL
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": legend_name(name),
                "showlegend": bool(color),
                "x": [x_values[index] for index in mine],
                "y": [y_values[index] for index in mine],
                "marker": {"color": tint, "size": 5, "opacity": 0.75},
                "hovertext": [texts[index] for index in mine],
                "hoverinfo": "text",
            }
        )
        if len(ends) == 2:
            traces[-1]["error_y"] = _bars_to(y_values, mine, len(top), tint)
    yaxis = axis(y, y_unit, title=spec.get("y_title"))
    yaxis = {**yaxis, "type": "log" if spec.get("log") else "linear"}
    layout = {"xaxis": _time_axis(x, x_unit, spec), "yaxis": yaxis, "height": _HEIGHT + 60}
    return {"data": traces, "layout": layout}


def _bars_to(values: Sequence[Any], mine: Sequence[int], rows_n: int, tint: str) -> Plot:
    """Return the bars of some points; `values` holds all points, then all low ends, then high."""
    below = [values[index] - values[rows_n + index] for index in mine]
    above = [values[2 * rows_n + index] - values[index] for index in mine]
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return {**bars, "color": tint, "thickness": 1, "width": 0}


def timeline(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Bars in time: `start`, `duration`, `lane` (one row each), `color` and `label` (names)."""
    start, duration = fields[spec["start"]], fields[spec["duration"]]
    top = frame.head(spec.get("top", 2000))
    offset = top[start.name] - top[start.name].min() if len(top) else top[start.name]
    rows_n = len(top)
    both = pd.concat([offset + top[duration.name], offset, top[duration.name]])
    values, unit = axis_values(both, start)
    lanes = axis_labels(top[spec["lane"]], distinct=False)
    groups = groups_of(top, spec["color"])
    tints = color_map(list(dict.fromkeys(groups)))
    texts = hovers(top, fields, [spec["label"], start.name, duration.name, spec["lane"]])
    traces = []
    for name in dict.fromkeys(groups):
        mine = [index for index, one in enumerate(groups) if one == name]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": legend_name(name),
                "base": [values[rows_n + index] for index in mine],
                "x": [values[2 * rows_n + index] for index in mine],
                "y": [lanes[index] for index in mine],
                "marker": {"color": tints[name], "line": {"width": 0.5, "color": "white"}},
                "hovertext": [texts[index] for index in mine],
                "hoverinfo": "text",
            }
        )
    title = {"text": f"since the first one shown ({unit})"}
    yaxis = {"type": "category", "automargin": True, "autorange": "reversed"}
    layout = {"barmode": "overlay", "xaxis": {**axis(start, unit), "title": title}, "yaxis": yaxis}
    return {"data": traces, "layout": {**layout, "height": 150 + 40 * max(len(set(lanes)), 2)}}


def _from_first(frame: pd.DataFrame, column: str, group: str) -> pd.DataFrame:
    """Let every group begin at 0: the clocks of two reports have nothing to do with each other."""
    first = frame.groupby(group, sort=False)[column].transform("min")
    return frame.assign(**{column: frame[column] - first})


def _time_axis(field: Field, unit: str, spec: Mapping[str, Any]) -> Plot:
    title = "since the first of each" if spec.get("from_first") else spec.get("x_title")
    return axis(field, unit, title=title, from_zero=False)


def _bands(frame: pd.DataFrame, x: Field, y: Field, series: str) -> Plot:
    """Return the least, the middle half and the most of many lines, in parts of the x axis."""
    begin, end = int(frame[x.name].min()), int(frame[x.name].max())
    width = max(-(-(end - begin + 1) // _PARTS), 1)
    part = begin + (frame[x.name] - begin) // width * width
    by_line = frame.assign(part=part).groupby(["part", series], sort=True)[y.name].mean()
    at = by_line.groupby("part", sort=True)
    shares = sorted({share for low, high, _, _ in _BANDS for share in (low, high)} | {0.5})
    parts = [at.quantile(share).astype("float64") for share in shares]
    values, y_unit = axis_values(pd.concat(parts), y)
    x_values, x_unit = axis_values(pd.Series(parts[0].index), x)
    n, tint = len(x_values), color_map(["kernel"])["kernel"]
    by_share = {share: values[i * n : (i + 1) * n] for i, share in enumerate(shares)}
    traces: list[Plot] = []
    for low, high, name, opacity in _BANDS:
        rgb = ",".join(str(int(tint[i : i + 2], 16)) for i in (1, 3, 5))
        common = {"type": "scatter", "mode": "lines", "x": x_values, "line": {"width": 0}}
        traces += [
            {**common, "y": by_share[low], "showlegend": False, "hoverinfo": "skip"},
            {**common, "y": by_share[high], "name": name, "fill": "tonexty",
             "fillcolor": f"rgba({rgb},{opacity})"},
        ]  # fmt: skip
    line = {"color": tint, "width": 1.5}
    traces.append(
        {"type": "scatter", "mode": "lines", "x": x_values, "y": by_share[0.5], "name": "median",
         "line": line}
    )  # fmt: skip
    layout = {"xaxis": axis(x, x_unit), "yaxis": axis(y, y_unit), "height": _HEIGHT}
    return {"data": traces, "layout": layout}
