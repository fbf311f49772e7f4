"""What can be read of a thousand ranks: their spread, and which lie far from the median."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from .axes import (
    RANK_TITLE,
    Plot,
    axis,
    axis_labels,
    axis_values,
    category_axis,
    legend_name,
    rows_axis,
)
from .palette import NEUTRAL, color_map
from .tables import Field

_Numbers = npt.NDArray[np.float64]

#: Ranks that a profile names: those farthest from the median, if they are this far from it, in
#: parts of the median, and not near to it beside the farthest, in parts of that one's distance.
_NAMED: Final = 3
_FAR: Final = 0.1
_NEAR: Final = 0.3
#: A part smaller than this of the whole is no reason to name a rank.
_LEAST_SHARE: Final = 0.005


def part_boxes(wide: pd.DataFrame, tints: Sequence[str], x: Field, title: str | None) -> Plot:
    """Return how each part is spread over the ranks: a box, all of them, and far ones by name.

    Args:
        wide: One row a rank, one column a part; null where a rank has no such part.
        title: Of the axis of numbers; None: the heading of `x`.
    """
    filled = wide.fillna(0.0)
    values, unit = axis_values(pd.Series(filled.to_numpy().ravel()), x)
    numbers = np.array(values, dtype=np.float64).reshape(filled.shape)
    ranks, parts = axis_labels(pd.Series(wide.index)), [legend_name(name) for name in wide.columns]
    least = _LEAST_SHARE * float(np.median(numbers, axis=0).sum())
    traces = [
        box(part, tint, np.quantile(part_values, (0, 0.25, 0.5, 0.75, 1)).tolist())
        for part, tint, part_values in zip(parts, tints, numbers.T, strict=True)
    ]
    outlying = [
        (float(part_values[row]), part, ranks[row])
        for part, part_values in zip(parts, numbers.T, strict=True)
        for row in _far(part_values, median=float(np.median(part_values)), least=least)
    ]
    traces.append(
        go.Scatter(
            mode="markers",
            x=[value for value, _, _ in outlying],
            y=[part for _, part, _ in outlying],
            marker={"color": "#222222", "size": 7, "symbol": "diamond"},
            hovertext=[f"{rank}<br>{part}: {value:.4g} {unit}" for value, part, rank in outlying],
            hoverinfo="text",
            showlegend=False,
        )
    )
    # One name a part: those of one host lie side by side, and names would lie on each other.
    firsts = {part: (value, rank) for value, part, rank in reversed(outlying)}
    notes = [
        {**_NOTE, "text": rank, "x": value, "y": part, "ax": 0, "ay": -20}
        for part, (value, rank) in firsts.items()
    ]
    reported = f"of {len(ranks):,} ranks: all, middle half, median"
    layout = {
        "xaxis": axis(x, f"{unit}; {reported}" if unit else reported, title=title),
        "yaxis": rows_axis(parts),
        "height": 120 + 46 * max(len(parts), 2),
        "annotations": notes,
    }
    return {"data": traces, "layout": layout}


def box(part: str, tint: str, percentiles: Sequence[float | None]) -> Any:
    """Return the box of a part out of its least, quartiles, and most."""
    low, q1, median, q3, high = percentiles
    return go.Box(
        orientation="h",
        y=[part],
        lowerfence=[low],
        q1=[q1],
        median=[median],
        q3=[q3],
        upperfence=[high],
        name=part,
        showlegend=False,
        marker={"color": tint},
    )


_NOTE: Final = {"showarrow": True, "arrowhead": 0, "font": {"size": 11}}


def _far(numbers: _Numbers, *, median: float, least: float = 0.0) -> list[int]:
    """Return the few places of what is far from the median, the farthest first."""
    away = np.abs(numbers - median)
    far = np.argsort(-away, kind="stable")[:_NAMED]
    limit = max(_FAR * abs(median), _NEAR * float(away.max(initial=0.0)), least)
    return [index for index in far.tolist() if away[index] > limit]


def column_notes(labels: Sequence[str], numbers: Sequence[float | None]) -> list[Plot]:
    """Return names above the columns of a map that stand out most by the size of a number.

    Args:
        numbers: The map's, row by row, 0 where nothing is special.
    """
    cells = np.array([0.0 if number is None else number for number in numbers], dtype=np.float64)
    sizes = np.abs(cells.reshape(-1, len(labels))).max(axis=0, initial=0.0)
    far = _far(sizes, median=float(np.median(sizes)) if sizes.size else 0.0)
    common = {**_NOTE, "yref": "paper", "y": 1, "ay": -16}
    return [{**common, "x": labels[index], "text": labels[index], "ax": 0} for index in far[:1]]


def profile(frame: pd.DataFrame, x: Field, y: str) -> Plot:
    """Return one number of many ranks, in their order, around the median; far ones are named.

    Args:
        frame: One row a rank, no null in `x`.
        y: Column that names the ranks; its values sort as the ranks do.
    """
    ordered = frame.sort_values(y, kind="stable")
    values, unit = axis_values(ordered[x.name], x)
    labels = axis_labels(ordered[y])
    numbers = np.array(values, dtype=np.float64)
    median = float(np.median(numbers))
    tint = color_map(["kernel"])["kernel"]
    trace = go.Scatter(
        mode="markers",
        x=labels,
        y=values,
        marker={"color": tint, "size": 4},
        hovertemplate=f"%{{x}}<br>%{{y:.4g}} {unit}<extra></extra>",
        showlegend=False,
    )
    line = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": median,
        "y1": median,
        "line": {"color": NEUTRAL, "width": 1, "dash": "dash"},
    }
    layout = {
        "xaxis": category_axis(len(labels), title=RANK_TITLE),
        "yaxis": {**axis(x, unit), **_around(numbers, median)},
        "height": 360,
        "shapes": [line],
        "annotations": [
            _median_note(median, unit),
            *(
                {**_NOTE, "text": labels[at], "x": labels[at], "y": values[at], "ax": 24, "ay": -14}
                for at in _far(numbers, median=median)
            ),
        ],
    }
    return {"data": [trace], "layout": layout}


def _around(numbers: _Numbers, median: float) -> Plot:
    """Return a range that holds all, and makes no mountains of differences of a percent."""
    least, most = float(numbers.min()), float(numbers.max())
    room = max(most - least, 0.2 * abs(median), 1e-9) * 0.1
    low, high = min(least, 0.9 * median) - room, max(most, 1.1 * median) + room
    return {"range": [max(low, 0.0) if least >= 0 else low, high], "rangemode": "normal"}


def _median_note(median: float, unit: str) -> Plot:
    note = {"text": f"median {median:.4g} {unit}", "showarrow": False, "font": {"size": 11}}
    return {**note, "xref": "paper", "x": 1, "xanchor": "right", "y": median, "yanchor": "bottom"}
