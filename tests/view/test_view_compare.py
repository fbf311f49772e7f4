"""Figures of two runs: one against the other, signed heat."""

from __future__ import annotations

import json

import pandas as pd
import plotly.graph_objects as go

from nsys_llm.view.figures import draw
from nsys_llm.view.tables import Field

FIELDS = {
    "value_ns": Field("value_ns", "ns", "Value.", True),
    "name": Field("name", None, "Kernel.", False),
    "verdict": Field("verdict", None, "Verdict.", False),
    "before_ns": Field("before_ns", "ns", "Before.", True),
    "after_ns": Field("after_ns", "ns", "After.", True),
    "rank": Field("rank", None, "Rank.", True),
}


def plotted(frame, **spec):
    """Draw, and let plotly check every property."""
    plot = draw(pd.DataFrame(frame), FIELDS, {"title": "T", **spec}).to_plotly_json()
    go.Figure(json.loads(json.dumps(plot, allow_nan=False)))
    return plot


COMPARE = {
    "kind": "compare",
    "x": "before_ns",
    "y": "after_ns",
    "color": "verdict",
    "label": "name",
}


def test_both_sides_share_one_unit_and_log_axes():
    plot = plotted(
        {
            "name": ["a", "b"],
            "verdict": ["regress", "none"],
            "before_ns": [2_000, 500],
            "after_ns": [4_000_000, 500],
        },
        **COMPARE,
    )
    diagonal, regress, none = plot["data"]
    assert (regress["x"], regress["y"]) == ([0.002], [4.0])
    assert (none["x"], none["y"]) == ([0.0005], [0.0005])
    assert diagonal["x"] == diagonal["y"]
    for side in ("xaxis", "yaxis"):
        assert plot["layout"][side]["type"] == "log"
        assert plot["layout"][side]["title"]["text"].endswith("(ms)")
    assert regress["hovertext"][0].startswith("a<br>")


def test_what_one_side_lacks_is_drawn_at_the_edge():
    frame = {"name": ["new"], "verdict": ["none"], "before_ns": [0], "after_ns": [800]}
    plot = plotted(frame, **COMPARE)
    diagonal, points = plot["data"]
    assert points["x"] == [diagonal["x"][0]]
    assert 0 < points["x"][0] < 800
