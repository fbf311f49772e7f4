"""A result folder as a notebook shows it.

from nsys_llm_view.results import Results
results = Results()
results.table("kernels")        # a data frame
results.rows("kernels", 10)     # its first rows, and what its columns mean
results.chart("kernels", kind="bars", x="exclusive_ns", y="name", title="Top kernels")
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from .axes import Plot
from .figures import draw
from .tables import Field, Html, cells, glossary_html, read_fields, read_table, rows_html

__all__ = ["PLOTLY_MIME", "Chart", "Results"]

PLOTLY_MIME: Final = "application/vnd.plotly.v1+json"
_FALLBACK_ROWS: Final = 10
_CONFIG: Final = {"displaylogo": False, "responsive": True, "typesetMath": False}


class Chart:
    """A figure. Viewers that know plotly draw it; others show the rows behind it.

    Attributes:
        plot: The figure as plotly's JSON.
    """

    def __init__(self, plot: Plot, fallback: Html) -> None:
        self.plot = plot
        self._fallback = fallback

    def figure(self) -> Any:
        """Return the figure as a `plotly.graph_objects.Figure`, to be changed further."""
        from plotly.graph_objects import Figure

        return Figure(self.plot)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {
            PLOTLY_MIME: {**self.plot, "config": _CONFIG},
            "text/html": self._fallback.html,
            "text/plain": self._fallback.text,
        }


class Results:
    """The tables of one folder.

    Args:
        folder: Where the parquet files are; None for the folder in which this package stands.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder else Path(__file__).resolve().parents[1]
        self._tables: dict[str, pd.DataFrame] = {}
        self._fields: dict[str, dict[str, Field]] = {}

    def table(self, name: str) -> pd.DataFrame:
        """Return one table; times in ns, sizes in bytes, shares in percent (0 to 100)."""
        if name not in self._tables:
            self._tables[name] = read_table(self.folder, name)
        return self._tables[name]

    def fields(self, name: str) -> dict[str, Field]:
        """Return the columns of a table, with units and meanings."""
        if name not in self._fields:
            self._fields[name] = read_fields(self.folder, name)
        return self._fields[name]

    def record(self) -> dict[str, Any]:
        """Return report.json: how the run went, and what its reports say of themselves."""
        record: dict[str, Any] = json.loads((self.folder / "report.json").read_text("utf-8"))
        return record

    def rows(
        self,
        name: str,
        rows_n: int = 15,
        columns: Sequence[str] | None = None,
        glossary: bool = True,
    ) -> Html:
        """Return the first rows of a table, for people; `columns` None takes all."""
        frame, fields = self.table(name), self.fields(name)
        chosen = list(columns or fields)
        html = rows_html(frame, fields, chosen, rows_n)
        lines = [" | ".join(chosen)]
        lines += [
            " | ".join(shown for shown, _ in row) for row in cells(frame, fields, chosen, rows_n)
        ]
        return Html(html + (glossary_html(fields) if glossary else ""), "\n".join(lines))

    def has_values(self, name: str, spec: Mapping[str, Any]) -> bool:
        """Tell whether a figure would show anything: rows, and in bars any that is not 0."""
        frame = self.table(name)
        if spec["kind"] == "bars":
            return bool((frame[spec["x"]].fillna(0) != 0).any())
        return len(frame) > 0

    def chart(self, name: str, **spec: Any) -> Chart:
        """Return a figure of a table; see `draw` in figures.py for what `spec` takes."""
        frame, fields = self.table(name), self.fields(name)
        columns = [value for value in spec.values() if isinstance(value, str) and value in fields]
        fallback = self.rows(name, _FALLBACK_ROWS, list(dict.fromkeys(columns)), glossary=False)
        return Chart(draw(frame, fields, spec), fallback)
