"""The whole run as a strip: a lane for each GPU, each of its steps a bar of the classes in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from .axes import (
    Plot,
    axis,
    axis_title,
    axis_values,
    escaped,
    hover_text,
    lane_axis,
    legend_name,
    trace,
)
from .palette import color_map
from .tables import Field
from .text import format_ns, format_percent

#: What a row is: some steps of a GPU, or what another figure shows.
_STEPS, _SHOWN = "steps", "shown"
_HEIGHT: Final = 0.86
#: What is no work, and its opacity.
_NO_WORK, _PALE = ("idle", "outside of steps"), 0.4
#: Pixels of a lane, of all lanes, and of the lowest figure.
_MOST_LANE_PX, _MOST_PX, _LEAST_PX = 26, 384, 150
_MARK_COLOR: Final = "#777777"


@dataclass(frozen=True)
class _Row:
    """A row of the table, with its place on the axis of time."""

    x0: Any
    x: Any
    part: str
    lane: str
    color: str
    duration: int
    label: str
    mixture: Any
    of_step: Any
    count: int

    @cached_property
    def times(self) -> dict[str, int]:
        """The ns of each class."""
        mixed: dict[str, int] = {} if pd.isna(self.mixture) else json.loads(self.mixture)
        return mixed or {self.color: self.duration}


def strip(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Bars of steps in time, each split from the bottom up by its `mixture` (JSON: ns by class).

    `part` says what a row is: steps, or shown (a stretch that another figure shows, named by
    `label`). `start`, `duration` and `lane` say where, `of_step` and `count` which steps.
    """
    start, rows_n = fields[spec["start"]], len(frame)
    begins, lengths = frame[spec["start"]], frame[spec["duration"]]
    values, unit = axis_values(pd.concat([begins + lengths, begins, lengths]), start)
    columns = [frame[spec[name]].tolist() for name in list(_Row.__annotations__)[2:]]
    places = (values[rows_n : 2 * rows_n], values[2 * rows_n :])
    rows = [_Row(*row) for row in zip(*places, *columns, strict=True)]
    bars = [row for row in rows if row.part == _STEPS]
    marks = [row for row in rows if row.part == _SHOWN]
    lanes = list(dict.fromkeys(row.lane for row in bars))
    middles = [lanes.index(row.lane) for row in bars]
    lanes_px = min(_MOST_LANE_PX * len(lanes), _MOST_PX)
    frames = {"type": "rect", "y0": 0, "y1": 1, "yref": "paper", "line": {"color": _MARK_COLOR}}
    names = {"y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False}
    names["font"] = {"size": 11, "color": _MARK_COLOR}
    layout = {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {
            **axis(start, unit),
            "title": axis_title(f"since the start ({unit})"),
            "range": [0, max(filter(None, values[:rows_n]), default=0.0)],
        },
        "yaxis": {**lane_axis(lanes), "range": [len(lanes) - 0.4, -0.6], "fixedrange": True},
        "shapes": [{**frames, "x0": row.x0, "x1": row.x0 + row.x} for row in marks],
        "annotations": [
            {**names, "x": max(row.x0, 0), "text": escaped(row.label)} for row in marks
        ],
        "height": max(lanes_px, _LEAST_PX) + 110,
    }
    return {"data": [*_classes(bars, middles), _over(bars, middles)], "layout": layout}


def _classes(bars: Sequence[_Row], middles: Sequence[int]) -> list[Any]:
    """Return a trace for each class, one above the other in each bar."""
    every = dict.fromkeys(name for bar in bars for name in bar.times)
    names = sorted(every, key=_NO_WORK.__contains__)
    colors, low = color_map(names), [middle + _HEIGHT / 2 for middle in middles]
    traces = []
    for name in names:
        drawn: list[tuple[float, float, float, float]] = []
        for place, bar in enumerate(bars):
            height = _HEIGHT * bar.times.get(name, 0) / max(sum(bar.times.values()), 1)
            if height:
                middle = round(low[place] - height / 2, 4)
                drawn.append((bar.x0, bar.x, middle, round(height, 4)))
                low[place] -= height
        base, x, y, width = map(list, zip(*drawn, strict=True))
        opacity = _PALE if name in _NO_WORK else 1
        marker = {"color": colors[name], "opacity": opacity, "line": {"width": 0}}
        look = {"name": legend_name(name), "marker": marker, "hoverinfo": "skip"}
        traces.append(trace("bar", orientation="h", base=base, x=x, y=y, width=width, **look))
    return traces


def _over(bars: Sequence[_Row], middles: Sequence[int]) -> Any:
    """Return what is not seen: the text over each bar, and which steps it is."""
    steps = [
        None if pd.isna(bar.of_step) else [int(bar.of_step), int(bar.of_step) + bar.count - 1]
        for bar in bars
    ]
    return trace(
        "bar",
        orientation="h",
        base=[bar.x0 for bar in bars],
        x=[bar.x for bar in bars],
        y=middles,
        width=_HEIGHT,
        marker={"opacity": 0},
        showlegend=False,
        hovertext=list(map(_hover, bars)),
        hoverinfo="text",
        customdata=steps,
    )


def _hover(bar: _Row) -> str:
    shares = [f"{name} {format_percent(100 * ns / bar.duration)}" for name, ns in bar.times.items()]
    lines = [f"{bar.label}, {format_ns(bar.duration)}, {bar.lane}", ", ".join(shares)]
    return "<br>".join(map(hover_text, lines))
