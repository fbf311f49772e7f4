"""Sections of manifests: every mistake is told, and the real ones have none."""

from __future__ import annotations

import pytest

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.manifest.sections import Section, read_section, section_problems
from nsys_llm.view.figures import KINDS

TABLES = {"kernels": {"name", "file", "busy_ns", "p50_ns"}, "devices": {"file", "window_ns"}}
BARS = {"kind": "bars", "title": "Bars", "x": "busy_ns", "y": "name"}
SPREAD = {
    "kind": "spread",
    "title": "Spread",
    "y": "name",
    **dict.fromkeys(("low", "q1", "median", "q3", "high"), "p50_ns"),
}
HEAT = {"kind": "heat", "title": "Heat", "x": "file", "y": "name", "value": "busy_ns"}
STACKED = {"kind": "stacked", "title": "Stacked", "x": "busy_ns", "y": "file", "color": "name"}


def section(title="Kernels", table="kernels", columns=("name",), **others):
    return Section(table=table, title=title, shows="Shows.", columns=columns, **others)


def problems(*sections):
    return list(section_problems(sections, TABLES))


def without(chart, key):
    return {name: value for name, value in chart.items() if name != key}


def test_sound_sections_have_no_problems():
    charts = (BARS, SPREAD, HEAT, STACKED)
    whole = [
        {**chart, "top": 5, "where": {"file": "rank0"}, "menu": "file", "log": False}
        for chart in (BARS, HEAT, STACKED)
    ]
    assert problems(section(charts=charts), section("Others", charts=tuple(whole))) == []


def test_two_sections_may_show_one_table():
    assert problems(section("Once"), section("Twice")) == []


def test_two_sections_with_one_title_are_told_once():
    found = problems(
        section("Same"), section("Same", table="devices", columns=("file",)), section()
    )
    assert found == ["two sections are called 'Same'"]


def test_a_table_that_is_not_written_is_told():
    assert problems(section(table="launches")) == [
        "section 'Kernels' shows 'launches', which is not written"
    ]


def test_columns_that_the_table_lacks_are_told_wherever_they_are_used():
    charts = ({**BARS, "color": "hue"}, {**HEAT, "where": {"op": "copy"}, "menu": "pick"})
    found = problems(section(columns=("name", "mane"), summary=("some",), charts=charts))
    assert found == ["section 'Kernels': kernels has no column hue, mane, op, pick, some"]


@pytest.mark.parametrize("kind", ["pie", "", None])
def test_an_unknown_kind_of_chart_is_told(kind):
    chart = without(BARS, "kind") if kind is None else {**BARS, "kind": kind}
    assert problems(section(charts=(chart,))) == [
        f"section 'Kernels': there is no kind of chart '{kind or ''}'"
    ]


@pytest.mark.parametrize(
    ("chart", "key"),
    [
        (BARS, "x"),
        (BARS, "title"),
        (HEAT, "value"),
        (SPREAD, "q1"),
        (SPREAD, "high"),
        (STACKED, "color"),
    ],
)
def test_what_a_chart_lacks_is_told(chart, key):
    assert problems(section(charts=(without(chart, key),))) == [
        f"section 'Kernels': a chart of kind {chart['kind']} needs {key}"
    ]


@pytest.mark.parametrize("chart", [BARS, HEAT, SPREAD, STACKED])
def test_what_a_chart_does_not_know_is_told(chart):
    assert problems(section(charts=({**chart, "colour": "name", "z": 1},))) == [
        f"section 'Kernels': a chart of kind {chart['kind']} does not know colour, z"
    ]


def test_all_problems_are_told_together():
    broken = section("Other", table="nothing")
    assert len(problems(section(columns=("mane",), charts=({},)), broken, broken)) == 5


def test_reading_a_section_keeps_its_defaults():
    read = read_section({"table": "t", "title": "T", "shows": "S.", "columns": ["a", "b"]})
    assert read == Section(table="t", title="T", shows="S.", columns=("a", "b"))
    assert (read.rows_n, read.charts, read.summary) == (15, (), ())
    assert (read.in_report, read.optional) == (True, False)


@pytest.mark.parametrize("key", ["table", "title", "shows", "columns"])
def test_a_section_without_what_it_needs_is_refused(key):
    raw = {"table": "t", "title": "T", "shows": "S.", "columns": ["a"]}
    with pytest.raises((KeyError, TypeError), match=key):
        read_section(without(raw, key))


def test_a_section_with_an_unknown_key_is_refused():
    with pytest.raises(TypeError, match="colums"):
        read_section({"table": "t", "title": "T", "shows": "S.", "columns": [], "colums": []})


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_chart_of_a_manifest_is_of_a_kind_that_can_be_drawn(recipe):
    sections = load_manifest(recipe).sections
    kinds = {chart["kind"] for one in sections for chart in one.charts}
    assert kinds
    assert kinds <= KINDS.keys()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_that_can_be_drawn_may_stand_in_a_manifest(kind):
    (found,) = problems(section(charts=({"kind": kind},)))
    assert found.startswith(f"section 'Kernels': a chart of kind {kind} needs ")
