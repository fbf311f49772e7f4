"""Many lines as bands: the range of all, the middle half, the median; the farthest by choice."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from .axes import Plot, axis, axis_values, legend_name
from .palette import color_map
from .tables import Field

HEIGHT: Final = 360
#: Above this many lines their percentiles are drawn as bands.
MOST_SERIES: Final = 12

_BANDS: Final = ((0.0, 1.0, "least to most", 0.15), (0.25, 0.75, "middle half", 0.35))
#: Parts of the x axis in which bands are drawn.
_PARTS: Final = 120
#: Lines that can be chosen one by one: those farthest from the median.
_CHOICES: Final = 12


def bands(frame: pd.DataFrame, x: Field, y: Field, series: str, xaxis: Plot) -> Plot:
    """Return bands of many lines in parts of the x axis, and a menu of the lines that differ most.

    Args:
        frame: One row a point, no nulls.
        series: Column that tells the lines apart.
        xaxis: The axis, whose title has `{unit}` where its unit goes.
    """
    begin, end = int(frame[x.name].min()), int(frame[x.name].max())
    width = max(-(-(end - begin + 1) // _PARTS), 1)
    part = begin + (frame[x.name] - begin) // width * width
    by_line = frame.assign(part=part).groupby(["part", series], sort=True)[y.name].mean()
    wide = by_line.astype("float64").unstack(series)
    shares = sorted({share for low, high, _, _ in _BANDS for share in (low, high)} | {0.5})
    by_share = {share: wide.quantile(share, axis=1) for share in shares}
    # The lines one can choose: what lies between them and the median, over all parts.
    away = wide.sub(by_share[0.5], axis=0).abs().sum()
    far = away.sort_values(ascending=False, kind="stable").index[:_CHOICES].tolist()
    drawn = [*by_share.values(), *(wide[name] for name in far)]
    values, y_unit = axis_values(pd.concat(drawn), y)
    x_values, x_unit = axis_values(pd.Series(wide.index), x)
    n = len(x_values)
    rows = [values[index * n : (index + 1) * n] for index in range(len(drawn))]
    traces = _band_traces(x_values, dict(zip(shares, rows, strict=False)))
    choices = [
        _chosen(x_values, row, name) for row, name in zip(rows[len(shares) :], far, strict=True)
    ]
    title = {"text": xaxis["title"]["text"].replace("{unit}", x_unit)}
    layout = {
        "xaxis": {**xaxis, "title": title},
        "yaxis": axis(y, y_unit),
        "height": HEIGHT,
        "updatemenus": [_menu(len(traces), far)],
    }
    return {"data": [*traces, *choices], "layout": layout}


def _band_traces(x_values: list[Any], by_share: dict[float, list[Any]]) -> list[Any]:
    tint = color_map(["kernel"])["kernel"]
    rgb = ",".join(str(int(tint[i : i + 2], 16)) for i in (1, 3, 5))
    traces = []
    for low, high, name, opacity in _BANDS:
        line = partial(go.Scatter, mode="lines", x=x_values, line={"width": 0})
        fill = f"rgba({rgb},{opacity})"
        traces += [
            line(y=by_share[low], showlegend=False, hoverinfo="skip"),
            line(y=by_share[high], name=name, fill="tonexty", fillcolor=fill),
        ]
    style = {"color": tint, "width": 1.5}
    median = go.Scatter(mode="lines", name="median", line=style, x=x_values, y=by_share[0.5])
    return [*traces, median]


def _chosen(x_values: list[Any], row: list[Any], name: object) -> Any:
    style = {"color": color_map(["communication"])["communication"], "width": 1.5}
    label = legend_name(name)
    return go.Scatter(mode="lines", line=style, visible=False, name=label, x=x_values, y=row)


def _menu(bands_n: int, names: list[Any]) -> Plot:
    labels = ["all", *(f"all and {legend_name(name)}" for name in names)]
    buttons = [
        {
            "label": label,
            "method": "restyle",
            "args": [
                {"visible": [True] * bands_n + [index + 1 == n for index in range(len(names))]}
            ],
        }
        for n, label in enumerate(labels)
    ]
    return {"buttons": buttons, "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"}
