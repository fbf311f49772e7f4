"""A result folder as a notebook shows it.

from nsys_llm_view.results import Results
results = Results()
results.table("kernels")        # a data frame
results.rows("kernels", 10)     # its first rows, and what its columns mean
results.rows("kernels", where="category = gemm", sort="p99_ns", columns=["name", "p99_ns"])
results.rows("gaps")            # of an overview also a table of one recipe, "idle_gaps/gaps"
results.chart("kernels", kind="bars", x="exclusive_ns", y="name", title="Top kernels")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .choice import holding, ordered, require_column
from .figures import draw
from .tables import (
    Field,
    Html,
    cells,
    empty_table,
    fields_of,
    frame_of,
    glossary_html,
    parted_columns,
    picked,
    read_table,
    rows_html,
    unfilled,
)

PLOTLY_MIME: Final = "application/vnd.plotly.v1+json"
_FALLBACK_ROWS: Final = 10
#: Plotly offers to upload a figure to the cloud of its makers, since 4.1 of plotly.js unasked; a
#: trace is nobody else's business.
_UPLOADS: Final = ("sendChartToCloud", "sendDataToCloud", "editInChartStudio")
CONFIG: Final = {
    "displaylogo": False,
    "modeBarButtonsToRemove": [*_UPLOADS, "select2d", "lasso2d"],
    "plotlyServerURL": "",
    # Plotly's own way of following the window forgets the height; whoever shows a figure follows.
    "responsive": False,
    "showSendToCloud": False,
    "typesetMath": False,
}


class Chart:
    """A figure. Viewers that know plotly draw it; others show the rows behind it."""

    def __init__(self, plot: dict[str, Any], fallback: Html) -> None:
        #: The figure as plotly's JSON.
        self.plot = plot
        self._fallback = fallback

    def figure(self) -> Any:
        """Return the figure as a `plotly.graph_objects.Figure`, to be changed further.

        Raises:
            ImportError: plotly is not installed.
        """
        from plotly.graph_objects import Figure

        figure = Figure(self.plot)
        figure.layout.template = None  # plotly's own look
        return figure

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {
            PLOTLY_MIME: {**self.plot, "config": CONFIG},
            "text/html": self._fallback.html,
            "text/plain": self._fallback.text,
        }


class Results:
    """The tables of one folder.

    Args:
        folder: Where the parquet files are; None for the folder in which this package stands.
        written: All tables by name, where they are in memory still; None reads them.
    """

    def __init__(
        self, folder: str | Path | None = None, written: Mapping[str, pa.Table] | None = None
    ) -> None:
        self.folder = Path(folder) if folder else Path(__file__).resolve().parents[1]
        self._written = written
        self._tables: dict[str, pd.DataFrame] = {}
        self._fields: dict[str, dict[str, Field]] = {}

    def table(self, name: str) -> pd.DataFrame:
        """Return one table; times in ns, sizes in bytes, shares in percent (0 to 100)."""
        if name not in self._tables:
            home, own = self._home(name)
            self._tables[name] = frame_of(home._arrow(own))
        return self._tables[name]

    def fields(self, name: str) -> dict[str, Field]:
        """Return the columns of a table, with units and meanings."""
        if name not in self._fields:
            home, own = self._home(name)
            is_file = home._written is None and home._file(own).exists()
            schema = pq.read_schema(home._file(own)) if is_file else home._arrow(own).schema
            self._fields[name] = fields_of(schema)
        return self._fields[name]

    def record(self) -> dict[str, Any]:
        """Return report.json: how the run went, and what its reports say of themselves."""
        record: dict[str, Any] = json.loads((self.folder / "report.json").read_text("utf-8"))
        return record

    def why_empty(self, name: str) -> str | None:
        """Return why a table has no rows, and what records them; None where it has some."""
        if len(self.table(name)):
            return None
        home, own = self._home(name)
        facts = home.record()["tables"][own]
        flags = f"; `{facts['record']}` records it" if facts["record"] else ""
        return f"No rows: {facts['reason']}{flags}."

    def rows(
        self,
        name: str,
        rows_n: int = 15,
        columns: Sequence[str] | None = None,
        glossary: bool = True,
        by: str | None = None,
        *,
        where: str | Sequence[str] = (),
        sort: str | None = None,
    ) -> Html:
        """Return rows of a table, for people.

        Args:
            glossary: With the meaning of every column, folded away.
            by: The rows with the largest values in this column, where there are more; else the
                first.
            where: Conditions that all rows shown meet: `"rank = 2"`, `"gain_pct >= 3"`,
                `"rank = null"`, `"name ~ TEXT"` (a part of the name in any case, or
                `re:EXPRESSION`).
            sort: All rows by this column, the largest first; `COLUMN:up` has the smallest first.

        Raises:
            KeyError: There is no such table; which there are.
            ValueError: There is no such column, or a condition is none.
        """
        frame = self.table(name)
        if why := self.why_empty(name):
            return Html(f"<p>{escape(why)}</p>", why)
        fields = self.fields(name)
        columns = [columns] if isinstance(columns, str) else list(columns or fields)
        for column in columns:
            require_column("columns", column, fields)
        frame = holding(frame, [where] if isinstance(where, str) else where)
        frame = ordered(frame, sort) if sort else frame
        shown = _shown(frame, fields, columns, rows_n, by)
        return Html(shown.html + glossary_html(fields), shown.text) if glossary else shown

    def has_values(self, name: str, spec: Mapping[str, Any]) -> bool:
        """Return whether a figure would show anything: rows, and in bars any that is not 0."""
        frame = picked(self._drawn(name, spec), spec)
        if spec["kind"] == "bars":
            return bool((frame[spec["x"]].fillna(0) != 0).any())
        return len(frame) > 0

    def chart(self, name: str, **spec: Any) -> Chart:
        """Return a figure of a table.

        Args:
            spec: `kind` and `title`, and the columns that the kind takes (in brackets: optional):

                bars: x (a number), y (names), [color, label]: the longest first
                stacked: x (a number), y (a bar each), color (its parts), [order]
                parts: y (a bar each), parts (a list of columns of one unit)
                spread: y (names), low, q1, median, q3, high, [color]: boxes
                heat: x, y, value, [relative, row_share, in_order: True]
                points: x, y (numbers), [color, label, log: True]
                lines: x, y (numbers), series (a line each), [step: True]
                timeline: lane, start, duration, color, label
                lanes: as the table `timeline` of llm_overview has it

                All take `top` (rows at most), `where` ({column: value}: these rows alone), `menu`
                (a column, of which one value at a time is shown), `x_title` and `y_title`.

        Raises:
            KeyError: There is no such table; which there are.
        """
        fields, frame = self.fields(name), self._drawn(name, spec)
        # Bars are drawn longest first.
        by = spec["x"] if spec["kind"] == "bars" else None
        fallback = _shown(picked(frame, spec), fields, self._named(name, spec), _FALLBACK_ROWS, by)
        return Chart(draw(frame, fields, spec), fallback)

    def _home(self, name: str) -> tuple[Results, str]:
        """Return whose table it is, and its name there; of the one part that has it, or is named.

        Raises:
            KeyError: There is no such table, or several parts have one; which there are.
        """
        if self._written is not None or self._file(name).exists():
            return self, name
        tables, (recipe, _, own) = self.record()["tables"], name.rpartition("/")
        if name in tables:
            return self, name
        places = sorted(self.folder.glob("parts/*/report.json"))
        parts = {place.parent.name: Results(place.parent) for place in places}
        homes = [(part, table) for part in parts for table in parts[part].record()["tables"]]
        having = [home for home in homes if home[1] == own and recipe in ("", home[0])]
        if len(having) != 1:
            raise no_table(name, [*map("/".join, having), *tables, *map("/".join, homes)])
        return parts[having[0][0]], own

    def _arrow(self, name: str) -> pa.Table:
        """Return one table, from memory if it is there.

        Tables without rows have no file; report.json has their columns.
        """
        if self._written is not None:
            return self._written[name]
        if self._file(name).exists():
            return read_table(self._file(name))
        facts = self.record()["tables"][name]
        if facts["rows"]:
            raise FileNotFoundError(self._file(name))
        return empty_table(facts["columns"])

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def _named(self, name: str, spec: Mapping[str, Any]) -> list[str]:
        """Return the columns that the words of a figure name, in their order."""
        lists = [item if isinstance(item, list) else [item] for item in spec.values()]
        words = [item for some in lists for item in some if isinstance(item, str)]
        return [word for word in dict.fromkeys(words) if word in self.fields(name)]

    def _drawn(self, name: str, spec: Mapping[str, Any]) -> pd.DataFrame:
        """Return the few columns that a figure is of: filtering and cutting copies each."""
        columns = [*self._named(name, spec), *spec.get("where", {})]
        return self.table(name)[list(dict.fromkeys(columns))]


def no_table(name: str, tables: Iterable[str]) -> KeyError:
    """Return the error for a table that there is not, with those that there are."""
    return KeyError(f"no table '{name}'; there are: {', '.join(tables)}")


def _shown(
    frame: pd.DataFrame,
    fields: Mapping[str, Field],
    columns: Sequence[str],
    rows_n: int,
    by: str | None,
) -> Html:
    """Return rows as HTML, and as plain text; a column without any value is told, not shown."""
    columns, empty = parted_columns(frame, columns)
    shown_rows = cells(frame, fields, columns, rows_n, by)
    lines = [" | ".join(columns), *(" | ".join(text for text, _ in row) for row in shown_rows)]
    html = rows_html(shown_rows, fields, columns, len(frame), by)
    if empty:
        reported = f"{unfilled(fields, empty)}."
        html, lines = f"{html}<p>{escape(reported)}</p>", [*lines, reported]
    return Html(html, "\n".join(lines))
