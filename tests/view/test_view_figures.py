"""Figures: what they show is what the table holds, and plotly accepts them."""

from __future__ import annotations

import pandas as pd
import pytest
from rendered import known_to_plotly

from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.view.figures import KINDS, draw
from nsys_llm.view.palette import color_map
from nsys_llm.view.tables import Field

FIELDS = {
    "rank": Field("rank", None, "Rank.", True),
    "file": Field("file", None, "Label.", False),
    "name": Field("name", None, "Kernel.", False),
    "category": Field("category", None, "Category.", False),
    "time_ns": Field("time_ns", "ns", "Time.", True),
    "share_pct": Field("share_pct", "%", "Share.", True),
    **{
        f"{name}_ns": Field(f"{name}_ns", "ns", name, True)
        for name in ("low", "q1", "median", "q3", "high")
    },
}
BOX = {name: f"{name}_ns" for name in ("low", "q1", "median", "q3", "high")}


def plotted(frame, **spec):
    """Draw, and let plotly check every property."""
    return known_to_plotly(draw(pd.DataFrame(frame), FIELDS, {"title": "T", **spec}))


def test_causes_of_idle_time_have_colours_of_their_own_beside_operations():
    names = [*CAUSE_NAMES, "kernel", "memcpy", "memset", "graph", "OS call"]
    # Nobody knows of two of them what it was.
    assert len(set(color_map(names).values())) == len(names) - 1
    assert all(color_map([name])[name] == color_map(names)[name] for name in names)


def test_names_that_are_shortened_to_one_label_have_the_same_number_in_every_figure():
    first, second = ("a" * 40 + number + "b" * 40 for number in "12")
    for order in ([first, second], [second, first]):
        table = {"name": order, "time_ns": [2, 1]}
        plot = plotted(table, kind="bars", x="time_ns", y="name")
        labels = dict(zip(order, plot["data"][0]["y"], strict=True))
        assert labels[second] == f"{labels[first]} #2"


def test_configurations_of_one_kernel_are_told_apart_by_what_differs():
    whole = "void ns::k<float>(int) [{}x1x1 / 384x1x1 / 212992 B]"
    names = [whole.format(132), whole.format(64), "void ns::other(int) [1x1x1 / 32x1x1]"]
    plot = plotted({"name": names, "time_ns": [3, 2, 1]}, kind="bars", x="time_ns", y="name")
    assert plot["data"][0]["y"][2] == "void ns::other(int)"
    assert [label.rpartition(" ")[2] for label in plot["data"][0]["y"][:2]] == [
        "[132x1x1]",
        "[64x1x1]",
    ]


def test_columns_as_parts_add_up_to_the_bar_and_devices_of_a_rank_to_one():
    frame = {"file": ["r0", "r0", "r1"], "low_ns": [1, 2, 3], "high_ns": [10, 20, 30]}
    plot = plotted(frame, kind="parts", y="file", parts=["low_ns", "high_ns"])
    parts = {
        trace["name"]: dict(zip(trace["y"], trace["x"], strict=True)) for trace in plot["data"]
    }
    assert parts == {"low": {"r0": 3.0, "r1": 3.0}, "high": {"r0": 30.0, "r1": 30.0}}


def test_stacked_parts_add_up_to_the_bar():
    frame = {"file": ["r0", "r0", "r1"], "category": ["gemm", "norm", "gemm"], "time_ns": [5, 2, 4]}
    plot = plotted(frame, kind="stacked", x="time_ns", y="file", color="category")
    parts = {
        trace["name"]: dict(zip(trace["y"], trace["x"], strict=True)) for trace in plot["data"]
    }
    # r1 has no norm: nothing is drawn there, which is not the same as 0.
    assert parts == {"gemm": {"r0": 5.0, "r1": 4.0}, "norm": {"r0": 2.0, "r1": None}}


def test_a_menu_shows_one_value_at_a_time():
    frame = {"rank": [0, 0, 1], "name": ["a", "b", "c"], "time_ns": [3, 2, 1]}
    plot = plotted(frame, kind="bars", x="time_ns", y="name", menu="rank")
    assert [trace["visible"] for trace in plot["data"]] == [True, False]
    first, second = plot["layout"]["updatemenus"][0]["buttons"]
    assert (first["label"], first["args"][0]) == ("0", {"visible": [True, False]})
    assert (second["label"], second["args"][0]) == ("1", {"visible": [False, True]})
    assert second["args"][1]["yaxis"]["categoryarray"] == ["c"]


def test_no_two_names_of_a_figure_share_a_colour_and_fixed_ones_keep_theirs():
    names = ["gemm", "norm", *(f"n{n}" for n in range(14))]
    tints = color_map(names)
    assert len(set(tints.values())) == 16
    assert tints["gemm"] == color_map(["gemm"])["gemm"]
    assert len(set(color_map([f"n{n}" for n in range(40)]).values())) == 20


def test_names_are_data_and_never_markup():
    frame = {"name": ["<b>x</b>&<a href='j'>"], "time_ns": [1]}
    trace = plotted(frame, kind="bars", x="time_ns", y="name")["data"][0]
    assert "<b>" not in trace["y"][0]
    assert "<b>" not in trace["hovertext"][0].replace("<br>", "")
    assert trace["y"][0].startswith("&lt;b&gt;x&lt;/b&gt;&amp;")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_rows_says_so(kind):
    columns = {
        "name": [],
        "file": [],
        "category": [],
        "time_ns": [],
        **{c: [] for c in BOX.values()},
    }
    spec = {"x": "time_ns", "y": "name", "color": "category", "value": "time_ns", **BOX}
    spec |= {"parts": ["low_ns", "high_ns"]} if kind == "parts" else {}
    spec |= {"start": "time_ns", "duration": "low_ns", "lane": "file", "label": "name"}
    if kind in ("lanes", "strip"):
        spec |= {"part": "name", "mixture": "name", "number": "low_ns"}
        spec |= {"of_step": "low_ns", "count": "low_ns"}
    if kind == "heat":
        spec |= {"x": "file"}
    if kind in ("lines", "points"):
        spec |= {"y": "low_ns"}
    spec |= {"whole": "category", "series": "file"}
    plot = plotted(columns, kind=kind, **spec)
    assert plot["layout"]["annotations"][0]["text"] == "no rows"


def test_of_many_lines_those_that_reach_highest_are_drawn():
    ranks = [f"r{n:02}" for n in range(21)]
    frame = {"file": ranks * 2, "time_ns": [0] * 21 + [1] * 21, "share_pct": list(range(42))}
    plot = plotted(frame, kind="lines", x="time_ns", y="share_pct", series="file")
    assert [trace["name"] for trace in plot["data"]] == ranks[9:]
    assert plot["layout"]["legend"]["title"]["text"] == "rank<br>(the highest 12 of 21)"


def test_of_many_ranks_those_with_most_are_drawn_in_their_order():
    frame = {"file": [f"r{n:02}" for n in range(90)], "time_ns": [n % 30 for n in range(90)]}
    plot = plotted(frame, kind="bars", x="time_ns", y="file", top=3)
    assert plot["data"][0]["y"] == ["r29", "r59", "r89"]
