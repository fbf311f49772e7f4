"""Tables of a result folder as HTML: top rows in human units, and what each column means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .text import (
    counted,
    first_sentence,
    format_instant,
    format_value,
    shortened,
    spans,
    told_apart,
    unquoted,
)

#: Of a name; and of all names of a row, where it has several. None is cut below the last.
_NAME_LENGTH: Final = 64
_LINE_LENGTH: Final = 136
_LEAST_LENGTH: Final = 28
#: Columns of sentences, which wrap and are cut much later.
PROSE: Final = frozenset({"meaning", "reason", "told", "note", "baseline", "input"})
_PROSE_LENGTH: Final = 200
#: Likewise; of several sentences the first is shown, and never cut amid its numbers.
ANSWERS: Final = frozenset({"answer"})
#: Columns of ours in which names stand in backticks.
QUOTING: Final = frozenset({"title", "reason", "told", "note"}) | ANSWERS
#: Columns of what is made to be copied: it is never cut.
_COPIED: Final = frozenset({"ncu"})
_FORMULA: Final = frozenset("$\\")
#: What a table holds, by the types that its manifest declares.
ARROW_TYPES: Final = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
}
#: Integers stay integers beside a null.
_NULLABLE: Final = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
}
_HEADING_STYLE: Final = "text-align:right"
_NUMBER_STYLE: Final = "text-align:right;white-space:nowrap"
_TEXT_STYLE: Final = "text-align:left"
_SHORT_STYLE: Final = "text-align:left;white-space:nowrap"
#: Text up to this length stays on one line: a launch configuration, a call, a short name.
_SHORT_LENGTH: Final = 32


@dataclass(frozen=True)
class Field:
    """One column.

    Attributes:
        unit: The manifest's, or None.
        numeric: Whether it holds numbers, which are set right-aligned.
        flag: Whether it holds yes or no.
    """

    name: str
    unit: str | None
    meaning: str
    numeric: bool
    flag: bool = False

    @property
    def instant(self) -> bool:
        """Whether it says when, not how long: three figures would not tell two of them apart."""
        return self.unit == "ns" and self.name.endswith(("start_ns", "end_ns"))

    @property
    def heading(self) -> str:
        """The column's name as people read it: the unit stands in the cells."""
        name = self.name
        if self.unit == "ratio":
            return _RATIO.sub(r"\1 / \2", name).replace("_", " ")
        for suffix in ("_ns", "_bytes", "_pct", "_gb_s", "_n"):
            name = name.removesuffix(suffix)
        return name.replace("_", " ") + (" %" if self.name.endswith("_pct") else "")


#: The name of a ratio of a time and a median: `p99_p50`, `most_over_p50`, `p50_all_p50`.
_RATIO: Final = re.compile(r"^(p50|.+?)_(?:over_)?((?:(?:all|others)_)?p50)$")
#: What tells two columns apart that differ in their unit alone.
_OF_UNIT: Final = {"ns": "time", "bytes": "size", "count": "count", "GB/s": "rate"}


def headings(fields: Mapping[str, Field], columns: Sequence[str]) -> list[str]:
    """Return the headings of the columns of one table, no two alike: `cause`, `cause time`."""
    names = [fields[name].heading for name in columns]
    texts = []
    for name, heading in zip(columns, names, strict=True):
        reported = heading != name.replace("_", " ") and _OF_UNIT.get(fields[name].unit or "")
        texts.append(f"{heading} {reported}" if names.count(heading) > 1 and reported else heading)
    return texts


@dataclass(frozen=True)
class Html:
    """Something that a notebook shows as HTML, and as plain text where it shows none."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def shown(value: Any, field: Field) -> str:
    """Return a value of a column as people read it."""
    return format_instant(value) if field.instant else format_value(value, field.unit)


def read_table(path: Path) -> pa.Table:
    """Return a table as Arrow has it."""
    # Not pq.read_table, which brings in data sets of many files and threads for them.
    return pq.ParquetFile(path).read(use_threads=False)


def empty_table(columns: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    """Return a table without rows from its entry in report.json: dtype and unit of each column."""
    fields = [
        pa.field(name, ARROW_TYPES[column["dtype"]], metadata={"unit": column["unit"] or ""})
        for name, column in columns.items()
    ]
    return pa.schema(fields).empty_table()


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return a table as a data frame with all of its columns, an index column among them."""
    # Without pandas' own record, which makes floats of an index of integers with a null in it.
    return table.to_pandas(ignore_metadata=True, types_mapper=_NULLABLE.get, use_threads=False)


def fields_of(schema: pa.Schema) -> dict[str, Field]:
    """Return the columns of a table with what its schema says of each."""
    fields = {}
    for item in schema:
        facts = {key.decode(): value.decode() for key, value in (item.metadata or {}).items()}
        kind = str(item.type)
        numeric = kind.startswith(("int", "uint", "float", "double"))
        unit, meaning = facts.get("unit") or None, facts.get("meaning", "")
        fields[item.name] = Field(item.name, unit, meaning, numeric, kind == "bool")
    return fields


def parted_columns(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns that hold a value in any row of a table, and those that hold none.

    Where none does, or there are no rows, the first list has them all.
    """
    filled = [name for name in columns if _has_value(frame[name])]
    if not filled:
        return list(columns), []
    return filled, [name for name in columns if name not in filled]


def _has_value(column: pd.Series) -> bool:
    """Return whether any row has a value; most columns have one in the first."""
    first: Any = column.iat[0] if len(column) else None
    return bool(pd.notna(first)) or bool(column.notna().any())


def unfilled(fields: Mapping[str, Field], empty: Sequence[str]) -> str:
    """Return what stands below a table of the columns that are left out, without a full stop."""
    return f"Empty in all rows: {', '.join(headings(fields, empty))}"


def picked(frame: pd.DataFrame, spec: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows that a figure is of."""
    for column, value in spec.get("where", {}).items():
        frame = frame[frame[column] == value]
    return frame


def cells(
    frame: pd.DataFrame,
    fields: Mapping[str, Field],
    columns: Sequence[str],
    rows_n: int,
    by: str | None = None,
    length: int | None = None,
) -> list[list[tuple[str, str]]]:
    """Return the rows to show as (shown text, whole text); names are shortened in the shown text.

    These are the first, or with `by` those largest in that column, above or below 0, where there
    are more. Names of a column that differ are shown so that they differ; `length` is how long they
    get, or as long as a line of the notebook has room for.
    """
    # Columns one by one: cutting a whole frame copies each of them.
    top = [frame[name].iloc[:rows_n] for name in columns]
    if by is not None and len(frame) > rows_n:
        size = frame[by].abs().reset_index(drop=True)
        order = size.sort_values(ascending=False, kind="stable").index
        top = [frame[name].iloc[order[:rows_n]] for name in columns]
    texts_n = sum(not (fields[name].numeric or fields[name].flag) for name in columns)
    if length is None:
        length = max(min(_NAME_LENGTH, _LINE_LENGTH // max(texts_n, 1)), _LEAST_LENGTH)
    by_column = [
        _cells(values.tolist(), fields[name], length)
        for name, values in zip(columns, top, strict=True)
    ]
    return [list(row) for row in zip(*by_column, strict=True)]


def rows_html(
    rows: Sequence[Sequence[tuple[str, str]]],
    fields: Mapping[str, Field],
    columns: Sequence[str],
    all_n: int,
    by: str | None = None,
) -> str:
    """Return rows as an HTML table; whole names appear on hover, all text is escaped."""
    styles = [_NUMBER_STYLE if fields[name].numeric else _TEXT_STYLE for name in columns]
    # Headings may wrap, above numbers too: in many tables they are wider than what is below.
    heads = [_HEADING_STYLE if fields[name].numeric else _TEXT_STYLE for name in columns]
    meanings = [escape(unquoted(fields[name].meaning)) for name in columns]
    head = "".join(
        f'<th style="{style}" title="{meaning}">{escape(heading)}</th>'
        for style, meaning, heading in zip(heads, meanings, headings(fields, columns), strict=True)
    )
    quoting = [name in QUOTING for name in columns]
    body = "".join(
        "<tr>" + "".join(map(_cell_html, row, styles, quoting)) + "</tr>" for row in rows
    )
    more = all_n - len(rows)
    note = f"<p>{escape(more_rows(more, by, fields))}.</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def more_rows(
    more_n: int, by: str | None, fields: Mapping[str, Field], place: str = "the table"
) -> str:
    """Return what stands below the rows that are shown, without a full stop."""
    more = f"{counted(more_n, 'more row')} in {place}"
    return more if by is None else f"The rows with the largest {fields[by].heading}; {more}"


def glossary_html(fields: Mapping[str, Field]) -> str:
    """Return the meaning of every column, folded away."""
    rows = "".join(
        f'<tr><td style="{_TEXT_STYLE}"><code>{escape(field.name)}</code></td>'
        f"<td>{escape(field.unit or '')}</td>"
        f'<td style="{_TEXT_STYLE}">{_prose_html(field.meaning)}</td></tr>'
        for field in fields.values()
    )
    head = "<tr><th>column</th><th>unit</th><th>meaning</th></tr>"
    return (
        f"<details><summary>What the {len(fields)} columns mean</summary>"
        f"<table><thead>{head}</thead><tbody>{rows}</tbody></table></details>"
    )


def _cells(values: Sequence[Any], field: Field, length: int) -> list[tuple[str, str]]:
    """Return the texts of a column, as short as they are shown and whole."""
    whole = [shown(value, field) for value in values]
    if field.numeric or field.name in _COPIED:
        return list(zip(whole, whole, strict=True))
    if field.name in ANSWERS:
        return [(first_sentence(text), text) for text in whole]
    if field.name in PROSE:
        return [(shortened(text, _PROSE_LENGTH), text) for text in whole]
    plain = list(map(unquoted, whole)) if field.name in QUOTING else whole
    shown_texts = zip(whole, plain, told_apart(plain, length), strict=True)
    return [(text if short == bare else short, text) for text, bare, short in shown_texts]


def _cell_html(cell: tuple[str, str], style: str, quoting: bool) -> str:
    short, whole = cell
    hover = escape(unquoted(whole) if quoting else whole)
    title = f' title="{hover}"' if short != whole else ""
    if style == _TEXT_STYLE and len(short) <= _SHORT_LENGTH:
        style = _SHORT_STYLE
    return f'<td style="{style}"{title}>{_prose_html(short, quoting)}</td>'


def _prose_html(text: str, quoting: bool = True) -> str:
    """Return a text as HTML; names in backticks become code where it has any."""
    # Jupyter typesets what stands between dollars or after a backslash, but not in code.
    return "".join(
        f"<code>{escape(part)}</code>" if code or _FORMULA.intersection(part) else escape(part)
        for code, part in (spans(text) if quoting else [(False, text)])
    )
