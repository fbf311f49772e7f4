"""Figures out of tables, as plotly's own JSON: `{"data": [...], "layout": {...}}`.

Building the JSON directly keeps a figure at the size of its data (plotly's default template alone
is 7 kB a figure) and needs nothing but a viewer that knows plotly. Each kind of chart is a function
of a table and the columns to draw; `draw` finds it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from .palette import HEAT, color_map
from .tables import Field
from .text import format_value, shortened

__all__ = ["KINDS", "Plot", "draw"]

Plot = dict[str, Any]

#: Above this many bars or lines a chart is drawn as a heat map or as a band.
MOST_LINES: Final = 64
_LABEL_LENGTH: Final = 44
_RANK_COLUMNS: Final = frozenset({"file", "File", "rank", "Rank"})
_NS_AXES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def draw(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Return the figure of a table.

    Args:
        frame: The table.
        fields: Its columns.
        spec: `kind` of chart, `title`, and the columns that this kind takes, all as the manifest
            has them. `top` bounds the rows; `where` keeps the rows with these values; `menu` names
            a column of which one value at a time is shown.
    """
    for column, value in spec.get("where", {}).items():
        frame = frame[frame[column] == value]
    kind, menu = KINDS[spec["kind"]], spec.get("menu")
    choices = _choices(frame, menu)
    if len(choices) < 2:
        return _finished(kind(frame, fields, spec), spec)
    plots = [kind(frame[frame[menu] == choice], fields, spec) for choice in choices]
    return _finished(_with_menu(plots, [str(choice) for choice in choices]), spec)


def bars(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Horizontal bars: `x` (number), `y` (name), `color` (name, optional)."""
    x, y, color = fields[spec["x"]], spec["y"], spec.get("color")
    known = frame.dropna(subset=[x.name])
    if y in _RANK_COLUMNS and len(known) > MOST_LINES:
        return _profile(known, x, y)
    top = known.head(spec.get("top", 20))
    labels = _labels(top[y])
    values, unit = _axis_values(top[x.name], x)
    groups = top[color].astype(str).tolist() if color else [""] * len(top)
    tints = color_map(list(dict.fromkeys(groups)), ordered=color in _RANK_COLUMNS)
    traces = []
    for group in dict.fromkeys(groups):
        mine = [index for index, one in enumerate(groups) if one == group]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _text(shortened(group, _LABEL_LENGTH)),
                "showlegend": bool(color) and color != y,
                "x": [values[index] for index in mine],
                "y": [labels[index] for index in mine],
                "marker": {"color": tints[group] if color else color_map(["kernel"])["kernel"]},
                "hovertext": [
                    _hover(top.iloc[index], fields, [y, x.name, color]) for index in mine
                ],
                "hoverinfo": "text",
            }
        )
    order = {"categoryorder": "array", "categoryarray": labels[::-1], "automargin": True}
    height = 90 + 24 * max(len(labels), 2)
    return {
        "data": traces,
        "layout": {"xaxis": _axis(x, unit), "yaxis": order, "height": height, "barmode": "stack"},
    }


def stacked(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Bars of parts: `y` (one bar each), `color` (the parts), `x` (number); a heat map for many."""
    y, color, x = spec["y"], spec["color"], fields[spec["x"]]
    bars_n = frame[y].nunique()
    if bars_n > MOST_LINES:
        return heat(frame, fields, {**spec, "x": y, "y": color, "value": x.name})
    wide = _pivot(frame, y, color, x.name)
    values, unit = _axis_values(pd.Series(wide.to_numpy().ravel()), x)
    labels = _labels(pd.Series(wide.index))
    tints = color_map(wide.columns.astype(str).tolist(), ordered=color in _RANK_COLUMNS)
    parts_n = len(wide.columns)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": _text(shortened(str(part), _LABEL_LENGTH)),
            "y": labels,
            "x": values[index::parts_n],
            "marker": {"color": tints[str(part)]},
            "hovertext": [
                f"{_text(bar)}<br>{_text(part)}: {format_value(value, x.unit)}"
                for bar, value in zip(wide.index, wide[part].tolist(), strict=True)
            ],
            "hoverinfo": "text",
        }
        for index, part in enumerate(wide.columns)
    ]
    yaxis = {"categoryorder": "array", "categoryarray": labels[::-1], "automargin": True}
    layout = {"barmode": "stack", "xaxis": _axis(x, unit), "yaxis": {**yaxis, "type": "category"}}
    # The legend needs its room too.
    height = 110 + max(26 * len(labels), 19 * min(parts_n, 12))
    return {"data": traces, "layout": {**layout, "height": height}}


def _profile(frame: pd.DataFrame, x: Field, y: str) -> Plot:
    """Return one upright bar for each of many ranks, in their order."""
    values, unit = _axis_values(frame[x.name], x)
    trace = {
        "type": "bar",
        "x": _labels(frame[y]),
        "y": values,
        "marker": {"color": color_map(["kernel"])["kernel"], "line": {"width": 0}},
        "hovertemplate": f"%{{x}}<br>%{{y:.4g}} {unit}<extra></extra>",
    }
    xaxis = {"type": "category", "automargin": True, "nticks": 20}
    layout = {"xaxis": xaxis, "yaxis": _axis(x, unit), "height": 360, "bargap": 0}
    return {"data": [trace], "layout": layout}


def heat(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Heat map: `x`, `y` (names or numbers), `value`; empty cells stay empty."""
    value = fields[spec["value"]]
    wide = _pivot(frame, spec["y"], spec["x"], value.name).head(spec.get("top", 40))
    numbers, unit = _axis_values(pd.Series(wide.to_numpy().ravel()), value)
    columns_n = len(wide.columns)
    trace = {
        "type": "heatmap",
        "x": _labels(pd.Series(wide.columns)),
        "y": _labels(pd.Series(wide.index)),
        "z": [numbers[row * columns_n : (row + 1) * columns_n] for row in range(len(wide))],
        "colorscale": [list(stop) for stop in HEAT],
        "colorbar": {"title": {"text": unit}},
        "hovertemplate": f"%{{y}}<br>%{{x}}<br>%{{z:.4g}} {unit}<extra></extra>",
    }
    yaxis = {"autorange": "reversed", "automargin": True, "type": "category"}
    xaxis = {"automargin": True, "type": "category", "title": {"text": _title(fields[spec["x"]])}}
    height = 120 + 22 * max(len(wide), 3)
    return {"data": [trace], "layout": {"xaxis": xaxis, "yaxis": yaxis, "height": height}}


def spread(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Boxes out of given percentiles: `y` (name), `low`, `q1`, `median`, `q3`, `high`."""
    names = ("low", "q1", "median", "q3", "high")
    columns = {name: spec[name] for name in names}
    top = frame.dropna(subset=list(columns.values())).head(spec.get("top", 15))
    field, color = fields[columns["median"]], spec.get("color")
    together = pd.concat([top[column].astype("float64") for column in columns.values()])
    values, unit = _axis_values(together, field)
    rows_n = len(top)
    part = {name: values[i * rows_n : (i + 1) * rows_n] for i, name in enumerate(columns)}
    labels = _labels(top[spec["y"]])
    groups = top[color].astype(str).tolist() if color else ["kernel"] * rows_n
    tints = color_map(list(dict.fromkeys(groups)))
    traces = [
        {
            "type": "box",
            "orientation": "h",
            "y": [labels[row]],
            "lowerfence": [part["low"][row]],
            "q1": [part["q1"][row]],
            "median": [part["median"][row]],
            "q3": [part["q3"][row]],
            "upperfence": [part["high"][row]],
            "name": labels[row],
            "showlegend": False,
            "marker": {"color": tints[groups[row]]},
        }
        for row in range(rows_n)
    ]
    xaxis = {**_axis(field, unit), "type": "log" if spec.get("log", True) else "linear"}
    yaxis = {"categoryorder": "array", "categoryarray": labels[::-1], "automargin": True}
    layout = {"xaxis": xaxis, "yaxis": yaxis, "height": 90 + 30 * max(rows_n, 2)}
    return {"data": traces, "layout": layout}


KINDS: Final[dict[str, Callable[[pd.DataFrame, Mapping[str, Field], Mapping[str, Any]], Plot]]] = {
    "bars": bars,
    "heat": heat,
    "spread": spread,
    "stacked": stacked,
}


def _choices(frame: pd.DataFrame, menu: str | None) -> list[Any]:
    return frame[menu].drop_duplicates().tolist() if menu else []


def _with_menu(plots: list[Plot], choices: list[str]) -> Plot:
    traces = [trace for plot in plots for trace in plot["data"]]
    owner = [index for index, plot in enumerate(plots) for _ in plot["data"]]
    buttons = [
        {
            "label": _text(shortened(choice, _LABEL_LENGTH)),
            "method": "update",
            "args": [
                {"visible": [one == index for one in owner]},
                {"yaxis": plots[index]["layout"]["yaxis"]},
            ],
        }
        for index, choice in enumerate(choices)
    ]
    for index, trace in zip(owner, traces, strict=True):
        trace["visible"] = index == 0
    menu = {"buttons": buttons, "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"}
    return {"data": traces, "layout": {**plots[0]["layout"], "updatemenus": [menu]}}


def _finished(plot: Plot, spec: Mapping[str, Any]) -> Plot:
    common: Plot = {
        "title": {"text": _text(spec["title"]), "x": 0, "xref": "paper", "font": {"size": 15}},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#222222"},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 10, "r": 20, "t": 60, "b": 50},
        "hoverlabel": {"align": "left", "namelength": -1},
        "legend": {"traceorder": "normal"},
    }
    if not any(trace.get("x") or trace.get("y") for trace in plot["data"]):
        note = {"text": "no rows", "showarrow": False, "xref": "paper", "yref": "paper"}
        common["annotations"] = [{**note, "x": 0.5, "y": 0.5}]
    return {"data": plot["data"], "layout": {**common, **plot["layout"]}}


def _pivot(frame: pd.DataFrame, rows: str, columns: str, value: str) -> pd.DataFrame:
    """Return sums by two columns; both keep the order in which their values first occur."""
    wide = frame.pivot_table(index=rows, columns=columns, values=value, aggfunc="sum", sort=False)
    order = (
        frame.groupby(columns, sort=False)[value].sum().sort_values(ascending=False, kind="stable")
    )
    kept = order.index if columns not in _RANK_COLUMNS else frame[columns].drop_duplicates()
    return wide.reindex(index=frame[rows].drop_duplicates(), columns=kept)


def _axis_values(values: pd.Series, field: Field) -> tuple[list[float | None], str]:
    """Return numbers for an axis, and the unit in which they are; times get a readable one."""
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    scale, unit = 1.0, field.unit or ""
    if unit == "ns":
        largest = numbers.abs().max()
        scale, unit = next((step for step in _NS_AXES if largest >= step[0]), (1.0, "ns"))
    return [None if one != one else float(f"{one / scale:.6g}") for one in numbers.tolist()], unit


def _axis(field: Field, unit: str) -> Plot:
    title = (
        f"{_title(field)} ({unit})" if unit not in ("", "count", "ratio", "%") else _title(field)
    )
    return {
        "title": {"text": title},
        "rangemode": "tozero",
        "gridcolor": "#e6e6e6",
        "zerolinecolor": "#bbbbbb",
    }


def _title(field: Field) -> str:
    return field.heading


def _labels(names: pd.Series) -> list[str]:
    """Return labels of an axis: shortened, escaped, and distinct where the names are."""
    used: dict[str, int] = {}
    labels = []
    for name in names.astype(str).tolist():
        label = _text(shortened(name, _LABEL_LENGTH))
        repeats = used[label] = used.get(label, 0) + 1
        # Two names may be cut to the same text; invisible blanks keep their bars apart.
        labels.append(label + "\u200b" * (repeats - 1))
    return labels


def _text(name: object) -> str:
    """Escape text for plotly, which reads a little HTML and TeX in labels and hovers."""
    text = str(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("$", "&#36;")


def _hover(row: Any, fields: Mapping[str, Field], columns: list[str | None]) -> str:
    parts = [
        _text(format_value(row[name], fields[name].unit))
        for name in dict.fromkeys(columns)
        if name is not None
    ]
    return "<br>".join(part if len(part) < 200 else f"{part[:200]}..." for part in parts)
