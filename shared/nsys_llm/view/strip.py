"""The whole run as a strip: a lane for each GPU, each of its steps a bar of the classes in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from .axes import Plot, axis, axis_title, axis_values, escaped, hover_text, lane_axis, legend_name
from .palette import color_map
from .tables import Field
from .text import format_ns, format_percent

#: What a row is: some steps of a GPU, or what another figure shows.
_STEPS, _SHOWN = "steps", "shown"
_HEIGHT: Final = 0.86
#: Opacity of what is no work.
_IDLE, _OUTSIDE, _PALE = "idle", "outside of steps", 0.4
#: Pixels of a lane, and of all.
_LANE_PX: Final = (6, 26)
_ALL_LANES_PX: Final = 320
_LEAST_PX: Final = 150
_MARK_COLOR: Final = "#777777"


def strip(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Bars of steps in time, each parted from below by its `mixture` (JSON: ns by class), if any.

    `part` says what a row is: steps, or shown (a stretch that another figure shows, named by
    `label`). `start`, `duration` and `lane` say where, `step` and `count` which steps.
    """
    start = fields[spec["start"]]
    rows = frame.reset_index(drop=True)
    ends = rows[spec["start"]] + rows[spec["duration"]]
    both = pd.concat([ends, rows[spec["start"]], rows[spec["duration"]]])
    values, unit = axis_values(both, start)
    rows["x0"], rows["x"] = values[len(rows) : 2 * len(rows)], values[2 * len(rows) :]
    shares = (rows[spec[name]].tolist() for name in ("color", "mixture", "duration"))
    rows["times"] = [
        {color: duration_ns} if pd.isna(mixture) else json.loads(mixture)
        for color, mixture, duration_ns in zip(*shares, strict=True)
    ]
    marks, bars = rows[rows[spec["part"]] == _SHOWN], rows[rows[spec["part"]] == _STEPS]
    lanes = bars[spec["lane"]].drop_duplicates().tolist()
    places = bars[spec["lane"]].map({name: place for place, name in enumerate(lanes)}).tolist()
    lane_px = max(_LANE_PX[0], min(_LANE_PX[1], _ALL_LANES_PX // max(len(lanes), 1)))
    layout = {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {
            **axis(start, unit),
            "title": axis_title(f"since the begin ({unit})"),
            "range": [0, max(filter(None, values[: len(rows)]), default=0.0)],
        },
        "yaxis": {**lane_axis(lanes), "range": [len(lanes) - 0.4, -0.6], "fixedrange": True},
        "shapes": [_frame(x0, x0 + x) for x0, x in zip(marks["x0"], marks["x"], strict=True)],
        "annotations": _notes(marks, spec["label"]),
        "height": max(lane_px * len(lanes), _LEAST_PX) + 110,
        "legend": {"traceorder": "normal"},
    }
    return {"data": [*_classes(bars, places, spec), _over(bars, places, spec)], "layout": layout}


def _classes(bars: pd.DataFrame, places: list[int], spec: Mapping[str, Any]) -> list[Any]:
    """Return a trace for each class, one above the other in each bar."""
    mixtures = bars["times"].tolist()
    every = dict.fromkeys(name for mixture in mixtures for name in mixture)
    names = sorted(every, key=(_IDLE, _OUTSIDE).__contains__)
    colors = color_map(names)
    low = [place + _HEIGHT / 2 for place in places]
    x0, x = bars["x0"].tolist(), bars["x"].tolist()
    traces = []
    for name in names:
        drawn: dict[str, list[float]] = {"base": [], "x": [], "y": [], "width": []}
        for row, mixture in enumerate(mixtures):
            if time_ns := mixture.get(name, 0):
                height = _HEIGHT * time_ns / sum(mixture.values())
                cell = (x0[row], x[row], round(low[row] - height / 2, 4), round(height, 4))
                low[row] -= height
                for values, value in zip(drawn.values(), cell, strict=True):
                    values.append(value)
        opacity = _PALE if name in (_IDLE, _OUTSIDE) else 1
        marker = {"color": colors[name], "opacity": opacity, "line": {"width": 0}}
        bar = go.Bar(
            orientation="h", name=legend_name(name), marker=marker, hoverinfo="skip", **drawn
        )
        traces.append(bar)
    return traces


def _over(bars: pd.DataFrame, places: list[int], spec: Mapping[str, Any]) -> Any:
    """Return what is not seen: what stands over each bar, and which steps it is."""
    names = (spec["label"], spec["lane"], spec["duration"], "times")
    columns = [bars[name].tolist() for name in names]
    firsts, counts = bars[spec["step"]].tolist(), bars[spec["count"]].tolist()
    return go.Bar(
        orientation="h",
        base=bars["x0"].tolist(),
        x=bars["x"].tolist(),
        y=places,
        width=_HEIGHT,
        marker={"opacity": 0},
        showlegend=False,
        hovertext=[_hover(*row) for row in zip(*columns, strict=True)],
        hoverinfo="text",
        customdata=[
            None if pd.isna(step) else [int(step), int(step) + int(n) - 1]
            for step, n in zip(firsts, counts, strict=True)
        ],
    )


def _hover(label: str, lane: str, duration_ns: int, times: Mapping[str, int]) -> str:
    shares = [f"{name} {format_percent(100 * ns / duration_ns)}" for name, ns in times.items()]
    lines = [f"{label}, {format_ns(duration_ns)}, {lane}", ", ".join(shares)]
    return "<br>".join(map(hover_text, lines))


def _frame(low: float, high: float) -> Plot:
    line = {"color": _MARK_COLOR, "width": 1.5}
    return {"type": "rect", "x0": low, "x1": high, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _notes(marks: pd.DataFrame, label: str) -> list[Plot]:
    """Return the names above what other figures show."""
    note = {"showarrow": False, "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "left"}
    font = {"size": 11, "color": _MARK_COLOR}
    rows = zip(marks["x0"].tolist(), marks[label].tolist(), strict=True)
    return [{**note, "x": max(x0, 0), "text": escaped(text), "font": font} for x0, text in rows]
