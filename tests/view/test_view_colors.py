"""Colours of a run: a rank, a phase and a category have one colour in all of its figures."""

from __future__ import annotations

from colorsys import rgb_to_hsv
from itertools import combinations

import pandas as pd

from nsys_llm.taxonomy.categories import load_categories
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import BUBBLE, EXPERTS, IDLE, TRANSFER, WAITING
from nsys_llm.view import lanes
from nsys_llm.view.palette import NEUTRAL, color_map
from nsys_llm.view.results import Results


def results(folder, **tables):
    for name, columns in tables.items():
        pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet", index=False)
    return Results(folder)


def colors_of(chart):
    return {trace["name"]: trace["marker"]["color"] for trace in chart.plot["data"]}


def test_a_rank_keeps_its_colour_where_others_are_missing(tmp_path):
    run = results(
        tmp_path,
        files={"Rank": [0, 1, 2], "File": ["r0", "r1", "r2"]},
        all={"file": ["r0", "r1", "r2"], "name": ["a"] * 3, "n": [1, 2, 3]},
        some={"file": ["r2", "r1"], "name": ["b"] * 2, "n": [1, 2]},
    )
    spec = {"kind": "bars", "title": "T", "x": "n", "y": "name", "color": "file"}
    whole, part = (colors_of(run.chart(name, **spec)) for name in ("all", "some"))
    assert len(set(whole.values())) == 3
    assert part == {name: whole[name] for name in ("r2", "r1")}


def test_more_names_than_colours_are_told_apart_in_each_figure(tmp_path):
    names = [f"n{n}" for n in range(40)]
    run = results(tmp_path, many={"name": names, "n": range(40)})
    spec = {"kind": "bars", "title": "T", "x": "n", "y": "name", "color": "name", "top": 10}
    assert len(set(colors_of(run.chart("many", **spec)).values())) == 10


def test_what_lies_on_one_timeline_has_other_hues():
    # Attention, transfer and the frame of the first finding were three oranges.
    colors = color_map(["attention", "transfer", "communication", "waiting"])
    hues = [
        hue_of(color) for color in (colors["attention"], colors["transfer"], lanes._FIRST_COLOR)
    ]
    for one, other in combinations(hues, 2):
        apart = abs(one - other)
        assert min(apart, 1 - apart) > 1 / 8


CATEGORIES = [category.id for category in load_categories()]
WORK = [*CATEGORIES, TRANSFER, "not_matched", "fused", "copies"]
WAITS = [*CAUSE_NAMES, WAITING, BUBBLE, EXPERTS, IDLE, "device_latency", "sync_latency"]


def test_no_color_of_work_is_one_of_waiting():
    # The KV cache and waiting had one.
    busy = {*color_map(WORK).values(), *color_map([f"kernels {n}" for n in range(99)]).values()}
    idle = {*color_map(WAITS).values()}
    idle |= {*color_map([f"state {n}" for n in range(99)], idle=True).values()} - {NEUTRAL}
    assert len(busy) > 15
    assert len(idle) > 15
    assert not busy & idle


def test_headings_have_the_colors_of_their_columns():
    assert color_map(["host sync"])["host sync"] == color_map(["host_sync"])["host_sync"]


def test_copies_have_one_color_in_every_figure():
    names = ("copies", "copy", "memcpy", "copy only")
    (color,) = {color_map([name, *WORK[:-1]])[name] for name in names}
    assert color not in color_map([*CATEGORIES, *WAITS]).values()


def hue_of(color):
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return rgb_to_hsv(red, green, blue)[0]
