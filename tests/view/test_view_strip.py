"""The whole run as a strip: each step of each GPU a bar, parted into classes from below."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from rendered import known_to_plotly

from nsys_llm.view.figures import draw
from nsys_llm.view.palette import color_map
from nsys_llm.view.tables import Field

NAMES = ("part", "lane", "state", "name", "mixture")
FIELDS = {
    **{name: Field(name, None, name, False) for name in NAMES},
    **{name: Field(name, None, name, True) for name in ("step", "pieces_n")},
    **{name: Field(name, "ns", name, True) for name in ("since_ns", "duration_ns")},
}
SPEC = {"kind": "strip", "title": "T", "part": "part", "lane": "lane", "start": "since_ns",
        "duration": "duration_ns", "color": "state", "label": "name", "mixture": "mixture",
        "of_step": "step", "count": "pieces_n"}  # fmt: skip


@pytest.fixture(scope="module")
def plot():
    columns = [*NAMES[:4], "step", "pieces_n", "since_ns", "duration_ns", "mixture"]
    mixed = json.dumps({"compute": 60, "idle": 20})
    rows = [
        ("steps", "r0", "outside of steps", "outside of steps", None, 1, 0, 20, None),
        ("steps", "r0", "compute", "step 4", 4, 1, 20, 80, mixed),
        ("steps", "r1", "compute", "steps 4 to 6", 4, 3, 30, 70, None),
        ("shown", "r0", "shown", "step 4", 4, 1, 20, 80, None),
    ]
    frame = pd.DataFrame(rows, columns=columns).astype({"step": "Int64"})
    return known_to_plotly(draw(frame, FIELDS, SPEC))


def test_a_bar_is_parted_from_below_by_its_classes(plot):
    compute, outside, idle, _ = plot["data"]
    names = [trace["name"] for trace in (compute, outside, idle)]
    assert names == ["compute", "outside of steps", "idle"]
    assert (compute["base"], compute["x"]) == ([20.0, 30.0], [80.0, 70.0])
    # Lanes lead down: the first of 0.86 around 0, the second around 1.
    assert compute["width"] == [pytest.approx(0.645), pytest.approx(0.86)]
    assert compute["y"] == [pytest.approx(0.43 - 0.645 / 2), pytest.approx(1.0)]
    assert idle["y"] == [pytest.approx(-0.43 + 0.215 / 2)]
    assert compute["marker"]["color"] == color_map(["compute"])["compute"]
    assert idle["marker"]["opacity"] < compute["marker"]["opacity"]


def test_a_bar_knows_its_steps_and_those_with_figures_are_framed(plot):
    over = plot["data"][-1]
    assert over["customdata"] == [None, [4, 4], [4, 6]]
    assert over["hovertext"][1] == "step 4, 80 ns, r0<br>compute 75.0 %, idle 25.0 %"
    (frame,), (note,) = plot["layout"]["shapes"], plot["layout"]["annotations"]
    assert (frame["x0"], frame["x1"]) == (20, 100)
    assert (note["x"], note["text"]) == (20, "step 4")
    assert plot["layout"]["xaxis"]["range"] == [0, 100]
    assert plot["layout"]["yaxis"]["ticktext"] == ["r0", "r1"]
