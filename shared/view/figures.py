"""Figures out of tables, as plotly's own JSON: `{"data": [...], "layout": {...}}`.

Building the JSON directly keeps a figure at the size of its data (plotly's default template alone
is 7 kB a figure) and needs nothing but a viewer that knows plotly. Each kind of chart is a function
of a table and the columns to draw; `draw` finds it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from .axes import Plot, escaped, legend_name
from .charts import bars, heat, spread, stacked
from .compare_charts import compare, waterfall
from .icicles import icicle
from .tables import Field
from .time_charts import lines, points, timeline

__all__ = ["KINDS", "draw"]

#: What of a layout changes with the choice of a menu.
_OWN_LAYOUT: Final = ("xaxis", "yaxis", "height")


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


KINDS: Final[dict[str, Callable[[pd.DataFrame, Mapping[str, Field], Mapping[str, Any]], Plot]]] = {
    "bars": bars,
    "compare": compare,
    "heat": heat,
    "icicle": icicle,
    "lines": lines,
    "points": points,
    "spread": spread,
    "stacked": stacked,
    "timeline": timeline,
    "waterfall": waterfall,
}


def _choices(frame: pd.DataFrame, menu: str | None) -> list[Any]:
    return frame[menu].drop_duplicates().tolist() if menu else []


def _with_menu(plots: list[Plot], choices: list[str]) -> Plot:
    traces = [trace for plot in plots for trace in plot["data"]]
    owner = [index for index, plot in enumerate(plots) for _ in plot["data"]]
    buttons = [
        {
            "label": legend_name(choice),
            "method": "update",
            "args": [
                {"visible": [one == index for one in owner]},
                # Each choice has labels, units and a size of its own.
                {
                    name: value
                    for name, value in plots[index]["layout"].items()
                    if name in _OWN_LAYOUT
                },
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
        "title": {"text": escaped(spec["title"]), "x": 0, "xref": "paper", "font": {"size": 15}},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#222222"},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 10, "r": 20, "t": 60, "b": 50},
        "hoverlabel": {"align": "left", "namelength": -1},
        "legend": {"traceorder": "normal"},
    }
    if not any(trace.get(name) for trace in plot["data"] for name in ("x", "y", "ids")):
        note = {"text": "no rows", "showarrow": False, "xref": "paper", "yref": "paper"}
        common["annotations"] = [{**note, "x": 0.5, "y": 0.5}]
    return {"data": plot["data"], "layout": {**common, **plot["layout"]}}
