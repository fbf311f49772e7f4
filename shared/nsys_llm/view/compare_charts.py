"""The chart of two runs, one against the other.

See `figures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from .axes import (
    Plot,
    at,
    axis,
    axis_values,
    groups_of,
    hovers,
    legend_name,
    rows_by_group,
)
from .palette import color_map
from .tables import Field

_HEIGHT: Final = 480


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
