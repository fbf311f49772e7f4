"""Charts of two runs: what leads from one total to the other, and one against the other.

See `figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from .axes import (
    Plot,
    at,
    axis,
    axis_labels,
    axis_title,
    axis_values,
    groups_of,
    hovers,
    legend_name,
    rows_axis,
    rows_by_group,
)
from .palette import DIVERGING, NEUTRAL, color_map
from .tables import Field
from .text import format_value

_LESS: Final = DIVERGING[0][1]
_MORE: Final = DIVERGING[-1][1]
#: Of what is shown, left free beside it.
_MARGIN: Final = 0.08
#: The way that the steps go, in parts of the largest total, below which they could hardly be seen
#: on an axis from 0.
_LEAST_WAY: Final = 0.2
_HEIGHT: Final = 480


def waterfall(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Bars that lead from total to total: `x` (number), `y` (name), `whole` (total or not).

    A row whose `whole` is `total` is a total, any other is a step from where the row before ended.
    The axis begins at 0, and totals are bars; where steps would be too small to be seen so, it
    begins where they can be, says that, and totals are points, which have no length to be misread.
    """
    x, y = fields[spec["x"]], spec["y"]
    top = frame.dropna(subset=[x.name])
    totals = [value == "total" for value in top[spec["whole"]].tolist()]
    values, unit = axis_values(top[x.name], x)
    spans = _spans(values, totals)
    ends = [edge for span, total in zip(spans, totals, strict=True) for edge in span[total:]]
    least, most = min(ends, default=0.0), max(ends, default=0.0)
    cut = most - least < _LEAST_WAY * most
    room = _MARGIN * (most - least if cut else most)
    begin = max(least - room, 0.0) if cut else min(least, 0.0)
    labels, texts = axis_labels(top[y]), _signed(top[x.name].tolist(), totals, x.unit)
    bars = [index for index, total in enumerate(totals) if not (cut and total)]
    tints = [_tint(value or 0.0, total) for value, total in zip(values, totals, strict=True)]
    traces = [
        go.Bar(
            orientation="h",
            base=[spans[index][0] for index in bars],
            x=[spans[index][1] - spans[index][0] for index in bars],
            textposition="outside",
            cliponaxis=False,
            **_labeled(bars, labels, texts, tints),
        )
    ]
    if cut:
        points = [index for index, total in enumerate(totals) if total]
        reported = _labeled(points, labels, texts, tints)
        reported["marker"] = {**reported["marker"], "size": 13, "symbol": "diamond"}
        ends_at = [spans[index][1] for index in points]
        mode = "markers+text"
        traces.append(go.Scatter(mode=mode, x=ends_at, textposition="middle right", **reported))
    title = f"{x.heading} ({unit}){'; the axis does not begin at 0' if cut else ''}"
    xaxis = {**axis(x, unit, from_zero=False), "range": [begin, (most or 1.0) + 2 * room]}
    yaxis = rows_axis(labels)
    height = 110 + 28 * max(len(labels), 2)
    layout = {"xaxis": {**xaxis, "title": axis_title(title)}, "yaxis": yaxis, "height": height}
    return {"data": traces, "layout": {**layout, "showlegend": False}}


def _spans(values: Sequence[float | None], totals: Sequence[bool]) -> list[tuple[float, float]]:
    """Return where each row begins and ends, the smaller first; totals begin at 0."""
    spans, at = [], 0.0
    for value, total in zip(values, totals, strict=True):
        number = value or 0.0
        before, at = (0.0 if total else at), (number if total else at + number)
        spans.append((min(before, at), max(before, at)))
    return spans


def _signed(numbers: Sequence[Any], totals: Sequence[bool], unit: str | None) -> list[str]:
    """Return values as people read them, changes with their sign."""
    shown = [format_value(number, unit) for number in numbers]
    return [
        text if total or text.startswith("-") else f"+{text}"
        for text, total in zip(shown, totals, strict=True)
    ]


def _tint(value: float, total: bool) -> str:
    if total:
        return NEUTRAL
    return _MORE if value > 0 else _LESS


def _labeled(rows: Sequence[int], labels: list[str], texts: list[str], tints: list[str]) -> Plot:
    return {
        "y": [labels[row] for row in rows],
        "marker": {"color": [tints[row] for row in rows]},
        "text": [texts[row] for row in rows],
        "hovertext": [f"{labels[row]}: {texts[row]}" for row in rows],
        "hoverinfo": "text",
    }


def compare(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Points of `x` against `y` on equal log axes: `color` and, on hover, `label` (names).

    Above the diagonal is what became more. What one side lacks is drawn at the axis. Of many rows
    the first `top` are drawn.
    """
    x, y, color = fields[spec["x"]], fields[spec["y"]], spec["color"]
    top = frame.dropna(subset=[x.name, y.name]).head(spec.get("top", 5000))
    numbers = [*top[x.name].tolist(), *top[y.name].tolist()]
    texts = hovers(top, fields, [spec["label"], x.name, y.name, color])
    together, unit = axis_values(pd.Series(numbers, dtype="float64"), x)
    some = [value for value in together if value]
    least, most = (min(some) / 2, max(some) * 2) if some else (1.0, 10.0)
    placed = [max(value or least, least) for value in together]
    by_name = rows_by_group(groups_of(top, color))
    tints = color_map(list(by_name))
    traces = [
        go.Scatter(
            mode="lines",
            x=[least, most] if len(top) else [],
            y=[least, most] if len(top) else [],
            line={"color": "#bbbbbb", "width": 1},
            showlegend=False,
            hoverinfo="skip",
        )
    ]
    traces += [
        go.Scatter(
            mode="markers",
            name=legend_name(name),
            showlegend=True,
            x=at(rows, placed),
            y=at(rows, placed, len(top)),
            marker={"color": tints[name], "size": 8, "opacity": 0.8},
            hovertext=at(rows, texts),
            hoverinfo="text",
        )
        for name, rows in by_name.items()
    ]
    layout = {
        "xaxis": {**axis(x, unit, title=spec.get("x_title"), from_zero=False), "type": "log"},
        "yaxis": {**axis(y, unit, title=spec.get("y_title"), from_zero=False), "type": "log"},
        "height": _HEIGHT,
    }
    return {"data": traces, "layout": layout}
