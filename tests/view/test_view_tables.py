"""Tables as HTML: human units, whole names on hover, every text escaped, every column explained."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from rendered import Markup

from nsys_llm.manifest.declared import Column, TableWrite
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.report.outputs import declared_frame, write_tables
from nsys_llm.view.results import Results
from nsys_llm.view.tables import (
    Field,
    cells,
    glossary_html,
    headings,
    parted_columns,
    rows_html,
    shown,
)

NAME = Field("name", None, 'Its "name", 0 < n & m.', False)
TIME = Field("busy_ns", "ns", "How long.", True)
FIELDS = {
    "name": NAME,
    "busy_ns": TIME,
    "share_pct": Field("share_pct", "%", "Share.", True),
    "size_bytes": Field("size_bytes", "bytes", "Size.", True),
    "launches_n": Field("launches_n", "count", "Launches.", True),
    "rank": Field("rank", None, "Rank.", True),
    "storm": Field("storm", None, "Whether.", False),
}
COLUMNS = (
    Column("Rank", "int64", "Number of the rank.", nullable=True),
    Column("File", "string", "Label <b>.", nullable=False),
    Column("wait_ns", "float64", "How long.", nullable=True, unit="ns"),
    Column("storm", "bool", "Whether.", nullable=True),
)


def frame(**columns):
    return pd.DataFrame(columns)


def drawn(table, fields, columns, rows_n, by=None):
    rows = cells(table, fields, columns, rows_n, by)
    return rows_html(rows, fields, columns, len(table), by)


@pytest.fixture
def folder(tmp_path):
    """A folder with one table that has an index column with a null."""
    table = TableWrite("files", "one rank", COLUMNS, index="Rank")
    manifest = Manifest("m", "", "", "", "", None, (), (), (), (table,), ())
    values = {"Rank": [3, None], "File": ["a", "b"], "wait_ns": [1500, None], "storm": [True, None]}
    write_tables(tmp_path, manifest, {"files": declared_frame(table, values)}, csv=False)
    return tmp_path


@pytest.fixture
def folder_and_memory(tmp_path):
    """The same tables in files and in memory: an index, nulls of all types, NaN, no rows at all."""
    table = TableWrite("files", "one rank", COLUMNS, index="Rank")
    empty = TableWrite("none", "one rank", COLUMNS)
    manifest = Manifest("m", "", "", "", "", None, (), (), (), (table, empty), ())
    values = {
        "Rank": [3, None, 1],
        "File": ["b", "a", "\ud7ff"],
        "wait_ns": [0.1 + 0.2, float("nan"), None],
        "storm": [True, None, False],
    }
    frames = {
        "files": declared_frame(table, values),
        "none": declared_frame(empty, {name: [] for name in values}),
    }
    kinds = {column.name: {"dtype": column.dtype, "unit": column.unit} for column in COLUMNS}
    facts = {"rows": 0, "reason": "--x was not given", "record": None, "columns": kinds}
    (tmp_path / "report.json").write_text(json.dumps({"tables": {"none": facts}}), "utf-8")
    return tmp_path, write_tables(tmp_path, manifest, frames, csv=False)


@pytest.mark.parametrize(
    ("name", "unit", "value", "text"),
    [
        ("start_ns", "ns", 60_386_439_208, "60.386439208 s"),
        ("window_end_ns", "ns", 60_386_439_208.0, "60.386439208 s"),
        ("window_end_ns", "ns", pd.NA, "-"),
        ("after_ns", "ns", 60_386_439_208, "60.4 s"),
        ("start_ns", "count", 1234, "1,234"),
    ],
)
def test_an_instant_is_told_to_the_nanosecond(name, unit, value, text):
    # It is looked for in another tool; three figures would be another place.
    field = Field(name, unit, "", True)
    assert shown(value, field) == text
    assert cells(pd.DataFrame({name: [value]}), {name: field}, [name], 1) == [[(text, text)]]


def test_a_long_name_is_cut_and_stands_whole_on_hover():
    name = 'void "q" &amp; \'' + "x" * 100 + "<int>(a, b) end"
    page = Markup(drawn(frame(name=[name, "short"]), FIELDS, ["name"], 10))
    assert page.problems == []
    assert page.titles == ['Its "name", 0 < n & m.', name]
    (cut,), (short,) = (row for row in page.rows if row)
    assert len(cut) == 64
    assert cut.startswith('void "q" &amp; \'xxx')
    assert cut.endswith("<int>(a, b) end")
    assert short == "short"


def test_numbers_are_never_cut_and_stand_on_the_right():
    html = drawn(frame(busy_ns=[5], name=["k"]), FIELDS, ["busy_ns", "name"], 10)
    assert '<td style="text-align:right;white-space:nowrap">5 ns</td>' in html
    assert '<td style="text-align:left;white-space:nowrap">k</td>' in html


@pytest.mark.parametrize(
    ("values", "filled", "empty"),
    [
        ({"name": ["k", "m"], "rank": [None, None]}, ["name"], ["rank"]),
        # A value below the rows that are shown is one too.
        ({"name": [None, "m"], "rank": [0, None]}, ["name", "rank"], []),
        ({"name": [None], "rank": [None]}, ["name", "rank"], []),
        ({"name": [], "rank": []}, ["name", "rank"], []),
    ],
)
def test_columns_without_any_value_are_told_apart(values, filled, empty):
    assert parted_columns(frame(**values), ["name", "rank"]) == (filled, empty)


def test_a_column_without_any_value_is_told_and_not_shown(folder):
    table = pd.DataFrame({"Rank": [3], "File": ["a"], "wait_ns": [1500.0], "storm": [None]})
    table.to_parquet(folder / "files.parquet")
    html = Results(folder).rows("files", glossary=False)
    page = Markup(html.html)
    assert page.problems == []
    assert [heading for heading, _ in page.headings] == ["Rank", "File", "wait"]
    assert page.text.endswith("Empty in all rows: storm.")
    assert html.text.splitlines()[-1] == "Empty in all rows: storm."


def test_the_rows_that_are_shown_may_be_those_largest_in_a_column():
    table = frame(rank=[0, 1, 2], busy_ns=[5, 9, 7])
    page = Markup(drawn(table, FIELDS, ["rank", "busy_ns"], 2, "busy_ns"))
    assert page.rows[1:] == [["1", "9 ns"], ["2", "7 ns"]]
    assert "The rows with the largest busy; 1 more row in the table." in page.text
    # Where all rows are shown they keep their order.
    page = Markup(drawn(table, FIELDS, ["rank"], 3, "busy_ns"))
    assert page.rows[1:] == [["0"], ["1"], ["2"]]


@pytest.mark.parametrize(
    ("column", "heading"),
    [
        ("busy_ns", "busy"),
        ("size_bytes", "size"),
        ("share_pct", "share %"),
        ("launches_n", "launches"),
        ("graph_node_n", "graph node"),
        ("Total Time", "Total Time"),
        ("rank", "rank"),
    ],
)
def test_a_heading_leaves_the_unit_to_the_cells(column, heading):
    assert Field(column, None, "", True).heading == heading


def test_the_glossary_names_every_column_its_unit_and_its_meaning():
    fields = {"a<b>": Field("a<b>", "ns", 'Says "x" & <y>.', True), "rank": FIELDS["rank"]}
    page = Markup(glossary_html(fields))
    assert page.problems == []
    assert page.text.startswith("What the 2 columns mean")
    assert [row for row in page.rows if row] == [
        ["a<b>", "ns", 'Says "x" & <y>.'],
        ["rank", "", "Rank."],
    ]


@pytest.mark.parametrize("name", ["files", "none"])
def test_results_in_memory_show_what_the_files_would(folder_and_memory, name):
    folder, written = folder_and_memory
    read, kept = Results(folder), Results(folder, written)
    assert_frame_equal(kept.table(name), read.table(name), check_exact=True)
    assert kept.table(name).dtypes.tolist() == read.table(name).dtypes.tolist()
    assert kept.rows(name) == read.rows(name)
    if name == "none":
        assert read.rows(name).text == "No rows: --x was not given."
        assert not (folder / "none.parquet").exists()


def test_what_jupyter_would_typeset_stands_in_code():
    names = ["main::$_0(bar::$_1)", "\\(x\\)", "plain"]
    page = drawn(frame(name=names), FIELDS, ["name"], 10)
    assert page.count("<code>") == 2
    assert "<code>main::$_0(bar::$_1)</code>" in page


def test_columns_that_differ_in_their_unit_alone_are_told_apart():
    units = {"cause": None, "cause_ns": "ns", "peak_ns": "ns", "peak_bytes": "bytes", "n": "count"}
    fields = {name: Field(name, unit, "", True) for name, unit in units.items()}
    expected = ["cause", "cause time", "peak time", "peak size", "n"]
    assert headings(fields, list(units)) == expected
    # Alone each says enough.
    assert headings(fields, ["cause_ns", "peak_bytes"]) == ["cause", "peak"]


def test_of_many_names_each_has_less_room_and_sentences_have_more():
    names = ["meaning", *"abcdef"]
    fields = {name: Field(name, None, "", False) for name in names}
    frame = pd.DataFrame({name: ["x" * 100] for name in names})
    (row,) = cells(frame, fields, names, 1)
    assert [len(text) for text, _ in row] == [100, *[28] * 6]
    assert all(whole == "x" * 100 for _, whole in row)
    (alone,) = cells(frame, fields, ["a", "b"], 1)
    assert [len(text) for text, _ in alone] == [64, 64]
