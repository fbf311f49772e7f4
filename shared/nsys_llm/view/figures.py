"""Figures out of tables, as plotly's JSON. `draw` finds a kind of chart by its name.

Each kind is a function of a table and the columns to draw, and returns the traces and the layout of
a figure as `{"data": [...], "layout": {...}}`. plotly itself takes longer to import, and to check
these, than a small run takes in all; tests have it check them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from .axes import LABEL_LENGTH, Plot, escaped, legend_name
from .charts import bars, heat, parts, spread, stacked
from .lanes import lanes
from .strip import strip
from .tables import Field, picked
from .text import format_value, shortened
from .time_charts import lines, points, timeline


def draw(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Return the figure of a table.

    Args:
        spec: `kind` of chart, `title`, and the columns that this kind takes, all as the manifest
            has them. `top` bounds the rows; `where` keeps the rows with these values; `menu` names
            a column of which one value at a time is shown.

    Raises:
        ValueError: There is no such kind; which there are.
    """
    if spec["kind"] not in KINDS:
        raise ValueError(f"kind: no '{spec['kind']}'; there are: {', '.join(KINDS)}.")
    frame = picked(frame, spec)
    kind, menu = KINDS[spec["kind"]], spec.get("menu")
    choices = frame[menu].drop_duplicates().tolist() if menu else []
    if len(choices) < 2:
        # A choice of one is no menu, but what the figure is of.
        whose = f": {shortened(format_value(choices[0], None), LABEL_LENGTH)}" if choices else ""
        return _finished(kind(frame, fields, spec), {**spec, "title": f"{spec['title']}{whose}"})
    shown = choices[:_MOST_CHOICES]
    plots = [kind(frame[frame[menu] == choice], fields, spec) for choice in shown]
    if len(choices) > len(shown):
        spec = {**spec, "title": f"{spec['title']} (first {len(shown)} of {len(choices):,})"}
    return _finished(_with_menu(plots, [format_value(choice, None) for choice in shown]), spec)


#: More would be no menu to choose from, and each is a figure of its own in size.
_MOST_CHOICES: Final = 32

KINDS: Final[dict[str, Callable[[pd.DataFrame, Mapping[str, Field], Mapping[str, Any]], Plot]]] = {
    kind.__name__: kind
    for kind in (bars, heat, lanes, lines, parts, points, spread, stacked, strip, timeline)
}


#: What each choice of a menu has of its own.
_CHANGING: Final = ("xaxis", "yaxis", "height", "shapes", "annotations")


def _with_menu(plots: list[Plot], choices: list[str]) -> Plot:
    # What a figure shows by a menu of its own has no place in this one.
    drawn = [[data for data in plot["data"] if data.get("visible") is not False] for plot in plots]
    traces = [trace for some in drawn for trace in some]
    owner = [index for index, some in enumerate(drawn) for _ in some]
    buttons = [
        {
            "label": legend_name(choice),
            "method": "update",
            "args": [
                {"visible": [item == index for item in owner]},
                # Each choice has labels, units and a size of its own.
                {name: plots[index]["layout"].get(name) for name in _CHANGING},
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
        plot["layout"]["annotations"] = [{**note, "x": 0.5, "y": 0.5}]
    return {"data": plot["data"], "layout": {**common, **plot["layout"]}}
