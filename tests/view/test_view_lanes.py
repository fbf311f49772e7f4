"""Lanes: bars where the table has them, high for work and low for waiting; paths; marks."""

from __future__ import annotations

import pandas as pd
from rendered import known_to_plotly

from nsys_llm.view.figures import draw
from nsys_llm.view.palette import color_map
from nsys_llm.view.tables import Field

NAMES = ("part", "lane", "state", "name", "mixture")
FIELDS = {
    **{name: Field(name, None, name, False) for name in NAMES},
    "opportunity": Field("opportunity", None, "Number.", True),
    **{name: Field(name, "ns", name, True) for name in ("since_ns", "duration_ns")},
}
SPEC = {"kind": "lanes", "title": "T", "part": "part", "lane": "lane", "start": "since_ns",
        "duration": "duration_ns", "color": "state", "label": "name", "mixture": "mixture",
        "number": "opportunity", "of_step": "step"}  # fmt: skip


def drawn(*rows):
    """Draw rows of (part, lane, state, name, since, duration, mixture, number)."""
    columns = ["part", "lane", "state", "name", "since_ns", "duration_ns", "mixture", "opportunity"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["opportunity"] = frame["opportunity"].astype("Int64")
    frame["step"] = 7
    return known_to_plotly(draw(frame, FIELDS, SPEC))


def traces(plot, group):
    return {trace["name"]: trace for trace in plot["data"] if trace["legendgroup"] == group}


def test_bars_stand_where_the_table_says_and_waiting_is_lower_and_paler():
    plot = drawn(
        ("work", "r0", "gemm", "k", 0, 3_000_000, None, None),
        ("wait", "r0", "host_sync", None, 3_000_000, 1_000_000, None, None),
        ("work", "r1", "gemm", "k", 500_000, 2_000_000, None, None),
    )
    work, wait = traces(plot, "work")["gemm"], traces(plot, "wait")["host_sync"]
    assert (work["base"], work["x"], work["y"]) == ([0.0, 0.5], [3.0, 2.0], [0, 1])
    assert (wait["base"], wait["x"], wait["y"]) == ([3.0], [1.0], [0])
    assert wait["width"] < work["width"] < 1
    assert wait["marker"]["opacity"] < work["marker"]["opacity"] == 1
    assert work["marker"]["color"] == color_map(["gemm"])["gemm"]
    groups = (trace["legendgrouptitle"]["text"] for trace in (work, wait))
    assert tuple(groups) == ("GPU busy", "GPU idle or waiting")
    assert plot["layout"]["yaxis"]["ticktext"] == ["r0", "r1"]
    assert plot["layout"]["xaxis"]["title"]["text"].endswith("(ms)")


def test_bars_have_the_number_of_their_name_and_a_figure_shows_all_of_its_time():
    plot = drawn(
        ("work", "r0", "gemm", "void k<1>()", 0, 60, None, None),
        ("wait", "r0", "host_sync", None, 60, 10, None, None),
        ("work", "r0", "norm", "n", 70, 30, None, None),
    )
    meta = plot["layout"]["meta"]
    assert meta["names"] == ["void k&lt;1&gt;()", "n"]
    assert {trace["name"]: trace["customdata"] for trace in plot["data"]} == {
        "gemm": [0],
        "norm": [1],
        "host_sync": [-1],
    }
    assert plot["layout"]["xaxis"]["range"] == meta["range"] == [0, 100]
    assert meta["step"] == 7


def test_the_path_runs_through_lanes_and_is_thick_on_gpus():
    plot = drawn(
        ("work", "r0", "gemm", "k", 0, 50, None, None),
        ("work", "r1", "gemm", "k", 0, 50, None, None),
        ("host path", "r0", "launch_api", "call", 0, 10, None, None),
        ("path", "r0", "compute", "k", 10, 20, None, None),
        ("path", "r1", "transfer", "all", 30, 15, None, None),
    )
    gpu, whole = traces(plot, "path").values()
    assert whole["x"] == [0.0, 10.0, 10.0, 30.0, 30.0, 45.0]
    assert [round(y) for y in whole["y"]] == [0, 0, 0, 0, 1, 1]
    assert gpu["x"] == [10.0, 30.0, None, 30.0, 45.0, None]
    assert gpu["line"]["width"] > whole["line"]["width"]
    assert all(y != round(y) for y in whole["y"])  # beside the bars


def test_the_first_finding_is_framed_and_named_and_others_have_their_number():
    title = "Rank 1 is a straggler, " + "very " * 40
    plot = drawn(
        ("work", "r0", "gemm", "k", 0, 100, None, None),
        ("work", "r1", "gemm", "k", 0, 100, None, None),
        ("finding", "r1", "high", title, 20, 30, None, 1),
        ("finding", "r1", "high", title, 60, 10, None, 1),
        ("finding", "r0", "low", "b", 5, 50, None, 3),
        ("finding", "r0", "low", "c", 5, 10, None, 2),
    )
    (frame,) = plot["layout"]["shapes"]
    assert (frame["x0"], frame["x1"], frame["y0"], frame["y1"]) == (20, 70, 0.5, 1.5)
    first, numbers = plot["layout"]["annotations"]
    assert first["text"].startswith("<b>1  Rank 1 is a straggler")
    assert (first["x"], first["xanchor"]) == (35, "center")
    assert len(first["text"]) < 110
    assert (numbers["text"], numbers["x"]) == ("2, 3", 5)
    marks = [trace for trace in plot["data"] if trace.get("meta") == "findings"]
    assert [(mark["customdata"], mark["base"], mark["x"]) for mark in marks] == [
        ([1, 1], [20.0, 60.0], [30.0, 10.0]),
        ([3, 2], [5.0, 5.0], [50.0, 10.0]),
    ]


def test_sixty_four_lanes_fit_a_screen_and_few_zoom_in_time_only():
    rows = [("work", f"r{n}", "gemm", "k", 0, 10, None, None) for n in range(64)]
    many, few = drawn(*rows), drawn(*rows[:4])
    assert 700 < many["layout"]["height"] < 1_000
    assert len(many["layout"]["yaxis"]["tickvals"]) == 32
    assert (few["layout"]["yaxis"]["fixedrange"], many["layout"]["yaxis"]["fixedrange"]) == (
        True,
        False,
    )
    low, high = many["layout"]["yaxis"]["range"]
    assert low > 63.5
    assert high < -0.5
