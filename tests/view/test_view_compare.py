"""Figures of two runs: the way from one total to the other, one against the other, signed heat."""

from __future__ import annotations

import json

import pandas as pd
import plotly.graph_objects as go

from nsys_llm.view.figures import draw
from nsys_llm.view.palette import DIVERGING, NEUTRAL
from nsys_llm.view.tables import Field

FIELDS = {
    "part": Field("part", None, "Part.", False),
    "kind": Field("kind", None, "Kind.", False),
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


WATERFALL = {"kind": "waterfall", "x": "value_ns", "y": "part", "whole": "kind"}


def test_steps_lead_from_total_to_total():
    plot = plotted(
        {
            "part": ["before", "less", "more", "after"],
            "kind": ["total", "change", "change", "total"],
            "value_ns": [500, -60, 20, 460],
        },
        **WATERFALL,
    )
    bars, totals = plot["data"]
    begin = plot["layout"]["xaxis"]["range"][0]
    # The steps go from 500 to 440 to 460; the axis begins a little before, not at 0, and says so.
    assert 0 < begin < 440
    assert plot["layout"]["xaxis"]["title"]["text"] == "value (ns); the axis does not begin at 0"
    assert (bars["base"], bars["x"]) == ([440, 440], [60, 20])
    assert bars["text"] == ["-60 ns", "+20 ns"]
    assert bars["marker"]["color"] == [DIVERGING[0][1], DIVERGING[-1][1]]
    # A bar would be as long as its part that is shown.
    assert (totals["type"], totals["x"], totals["y"]) == (
        "scatter",
        [500, 460],
        ["before", "after"],
    )
    assert totals["text"] == ["500 ns", "460 ns"]
    assert totals["marker"]["color"] == [NEUTRAL, NEUTRAL]
    assert plot["layout"]["yaxis"]["categoryarray"] == ["after", "more", "less", "before"]


def test_steps_that_can_be_seen_beside_their_totals_begin_at_0():
    frame = {
        "part": ["before", "less", "more", "after"],
        "kind": ["total", "change", "change", "total"],
        "value_ns": [500, -100, 20, 420],
    }
    plot = plotted(frame, **WATERFALL)
    (bars,) = plot["data"]
    assert plot["layout"]["xaxis"]["range"][0] == 0
    assert plot["layout"]["xaxis"]["title"]["text"] == "value (ns)"
    assert (bars["base"], bars["x"]) == ([0, 400, 400, 0], [500, 100, 20, 420])
    assert bars["marker"]["color"][::3] == [NEUTRAL, NEUTRAL]


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
