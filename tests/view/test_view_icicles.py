"""Icicles: parts lie below what they are parts of, and plotly accepts them."""

from __future__ import annotations

import json

import pandas as pd
import plotly.graph_objects as go

from nsys_llm.view.figures import draw
from nsys_llm.view.tables import Field

FIELDS = {
    "path": Field("path", None, "Path.", False),
    "parent": Field("parent", None, "Path around.", False),
    "label": Field("label", None, "Label.", False),
    "time_ns": Field("time_ns", "ns", "Time.", True),
}


def drawn(*rows, **spec):
    """Draw rows of (path, parent, time); the label is the last part of the path."""
    frame = pd.DataFrame(
        {
            "path": [path for path, _, _ in rows],
            "parent": pd.array([parent for _, parent, _ in rows], dtype="string"),
            "label": [path.rsplit("/", 1)[-1] for path, _, _ in rows],
            "time_ns": [ns for _, _, ns in rows],
        }
    )
    spec = {"kind": "icicle", "path": "path", "parent": "parent", "label": "label", **spec}
    plot = draw(frame, FIELDS, {"title": "T", "value": "time_ns", **spec}).to_plotly_json()
    go.Figure(json.loads(json.dumps(plot, allow_nan=False)))
    trace = plot["data"][0]
    assert len(set(trace["ids"])) == len(rows) or len(trace["ids"]) < len(rows)
    return trace


def shown(trace):
    """Return each part with what it lies below, by label."""
    label = dict(zip(trace["ids"], trace["labels"], strict=True))
    return [
        (name, label.get(up)) for name, up in zip(trace["labels"], trace["parents"], strict=True)
    ]


def test_parts_lie_below_what_they_are_parts_of():
    trace = drawn(("a", None, 5000), ("b", None, 3000), ("a/c", "a", 2000))
    assert shown(trace) == [("a", None), ("b", None), ("c", "a")]
    # The largest is 5000 ns, so values are in us, and hold those of the parts inside.
    assert trace["values"] == [5.0, 3.0, 2.0]
    assert trace["branchvalues"] == "total"
    assert trace["hovertext"][2] == "a/c<br>2 us, 25.0 %"


def test_one_label_has_one_colour_wherever_it_stands():
    trace = drawn(("a", None, 50), ("b", None, 30), ("b/a", "b", 20))
    colors = trace["marker"]["colors"]
    assert colors[0] == colors[2] != colors[1]


def test_what_nobody_could_see_is_left_out_and_so_is_what_lies_inside():
    trace = drawn(("a", None, 100_000), ("b", None, 40), ("b/c", "b", 40), ("a/d", "a", 51))
    assert shown(trace) == [("a", None), ("d", "a")]


def test_no_part_is_drawn_without_what_it_is_a_part_of():
    rows = [("a", None, 9), ("a/b", "a", 8), ("a/b/c", "a/b", 7)]
    assert shown(drawn(*rows, top=2)) == [("a", None), ("b", "a")]
