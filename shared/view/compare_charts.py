"""Charts of two runs: what leads from one total to the other, and one against the other.

See `figures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from .axes import Plot, axis, axis_labels, axis_values, groups_of, hovers, legend_name
from .palette import DIVERGING, NEUTRAL, color_map
from .tables import Field
from .text import format_value

__all__ = ["compare", "waterfall"]

_LESS: Final = DIVERGING[0][1]
_MORE: Final = DIVERGING[-1][1]
#: Of the way that the parts go, left free on both sides of it.
_MARGIN: Final = 0.15
_HEIGHT: Final = 480


def waterfall(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Bars that lead from total to total: `x` (number), `y` (name), `whole` (total or not).

    A row whose `whole` is `total` is a bar of its own, any other is a step from where the row
    before ended. The axis begins where the steps can be seen, not at 0.
    """
    x, y = fields[spec["x"]], spec["y"]
    top = frame.dropna(subset=[x.name])
    totals = [one == "total" for one in top[spec["whole"]].tolist()]
    values, unit = axis_values(top[x.name], x)
    lows, highs, at = [], [], 0.0
    for value, total in zip(values, totals, strict=True):
        number = value or 0.0
        before, at = (0.0 if total else at), (number if total else at + number)
        lows.append(min(before, at))
        highs.append(max(before, at))
    ends = [
        edge
        for low, high, total in zip(lows, highs, totals, strict=True)
        for edge in ((high,) if total else (low, high))
    ]
    room = _MARGIN * (max(ends, default=0.0) - min(ends, default=0.0))
    begin = max(min(ends, default=0.0) - room, 0.0)
    tints = [
        NEUTRAL if total else _MORE if (value or 0.0) > 0 else _LESS
        for value, total in zip(values, totals, strict=True)
    ]
    labels = axis_labels(top[y])
    shown = [format_value(value, x.unit) for value in top[x.name].tolist()]
    texts = [
        text if total or text.startswith("-") else f"+{text}"
        for text, total in zip(shown, totals, strict=True)
    ]
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": [max(low, begin) for low in lows],
        "x": [high - max(low, begin) for low, high in zip(lows, highs, strict=True)],
        "y": labels,
        "marker": {"color": tints},
        "text": texts,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"{label}: {text}" for label, text in zip(labels, texts, strict=True)],
        "hoverinfo": "text",
    }
    xaxis = {**axis(x, unit, from_zero=False), "range": [begin, max(ends, default=1.0) + 2 * room]}
    yaxis = {"categoryorder": "array", "categoryarray": labels[::-1], "automargin": True}
    height = 110 + 28 * max(len(labels), 2)
    layout = {"xaxis": xaxis, "yaxis": yaxis, "height": height, "showlegend": False}
    return {"data": [trace], "layout": layout}


def compare(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Points of `x` against `y` on equal log axes: `color` and, on hover, `label` (names).

    Above the diagonal is what became more. What one side lacks is drawn at the axis.
    """
    x, y, color = fields[spec["x"]], fields[spec["y"]], spec.get("color")
    top = frame.dropna(subset=[x.name, y.name])
    numbers = [*top[x.name].tolist(), *top[y.name].tolist()]
    texts = hovers(top, fields, [spec.get("label"), x.name, y.name, color])
    together, unit = axis_values(pd.Series(numbers, dtype="float64"), x)
    some = [value for value in together if value]
    least, most = (min(some) / 2, max(some) * 2) if some else (1.0, 10.0)
    placed = [max(value or least, least) for value in together]
    rows_n, groups = len(top), groups_of(top, color)
    names = list(dict.fromkeys(groups))
    tints = color_map(names)
    traces: list[Plot] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [least, most] if len(top) else [],
            "y": [least, most] if len(top) else [],
            "line": {"color": "#bbbbbb", "width": 1},
            "showlegend": False,
            "hoverinfo": "skip",
        }
    ]
    for name in names:
        mine = [index for index, one in enumerate(groups) if one == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": legend_name(name),
                "showlegend": bool(color),
                "x": [placed[index] for index in mine],
                "y": [placed[rows_n + index] for index in mine],
                "marker": {"color": tints[name] if color else NEUTRAL, "size": 8, "opacity": 0.8},
                "hovertext": [texts[index] for index in mine],
                "hoverinfo": "text",
            }
        )
    layout = {
        "xaxis": {**axis(x, unit, from_zero=False), "type": "log"},
        "yaxis": {**axis(y, unit, from_zero=False), "type": "log"},
        "height": _HEIGHT,
    }
    return {"data": traces, "layout": layout}
