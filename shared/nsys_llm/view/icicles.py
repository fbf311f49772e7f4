"""Charts of parts inside parts. See `figures`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from .axes import Plot, axis_values, hover_text, legend_name
from .palette import color_map
from .tables import Field
from .text import format_percent, format_value

#: A part narrower than this share of the whole is not drawn; nobody could see it.
_LEAST_SHARE: Final = 0.0005
_ROW_HEIGHT: Final = 46
_MOST_ROWS: Final = 12
#: Id of the whole.
_WHOLE: Final = ""


def icicle(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> Plot:
    """Parts below what they are parts of: `path` (each once), `parent` (another path), `label`.

    `value` is that of a part with all parts inside it; the outermost ones make up the whole.
    """
    path, parent, value = spec["path"], spec["parent"], fields[spec["value"]]
    top = frame.dropna(subset=[value.name]).sort_values(value.name, ascending=False, kind="stable")
    outer = top[top[parent].isna()]
    whole = float(outer[value.name].sum())
    top = top[top[value.name] > _LEAST_SHARE * whole].head(spec.get("top", 600))
    # No part without what it is a part of: that is at least as large, and stands before.
    depth = _depths(top[path].tolist(), top[parent].tolist())
    top = top[top[path].isin(depth.keys())]
    values, unit = axis_values(top[value.name], value)
    labels = [legend_name(format_value(name, None)) for name in top[spec["label"]].tolist()]
    tints = color_map(list(dict.fromkeys(labels)))
    # Numbers: a path is a name out of a trace, and what stands in an id is not escaped.
    ids = {part: str(index) for index, part in enumerate(top[path].tolist())}
    parents = [_WHOLE if pd.isna(value) else ids[value] for value in top[parent].tolist()]
    hover = [
        f"{hover_text(format_value(name, None))}<br>{format_value(ns, value.unit)}, "
        f"{format_percent(100 * ns / whole if whole else None)}"
        for name, ns in zip(top[path].tolist(), top[value.name].tolist(), strict=True)
    ]
    trace = go.Icicle(
        ids=list(ids.values()),
        labels=labels,
        parents=parents,
        values=values,
        # Values hold those of the parts inside.
        branchvalues="total",
        sort=False,
        tiling={"orientation": "v"},
        marker={
            "colors": [tints[name] for name in labels],
            "line": {"width": 1, "color": "white"},
        },
        text=[format_value(ns, value.unit) for ns in top[value.name].tolist()],
        textinfo="label+text",
        hovertext=hover,
        hoverinfo="text",
        pathbar={"visible": True},
    )
    rows_n = min(1 + max(depth.values(), default=0), _MOST_ROWS)
    layout = {"height": 110 + _ROW_HEIGHT * max(rows_n, 2), "meta": unit}
    return {"data": [trace] if len(top) else [], "layout": layout}


def _depths(paths: list[str], parents: list[Any]) -> dict[str, int]:
    """Return how deep each path lies, of those whose parents stand before them."""
    depth: dict[str, int] = {}
    for path, parent in zip(paths, parents, strict=True):
        if pd.isna(parent):
            depth[path] = 0
        elif parent in depth:
            depth[path] = depth[parent] + 1
    return depth
