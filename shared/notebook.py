"""Builds analysis.ipynb: everything drawn and stored, and every cell runs again from the tables.

The figures are made by the package that is copied beside the notebook, here and when it is run, so
that both show the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from pprint import pformat
from typing import Any, Final

from nsys_llm.markdown import answer_markdown, findings_heading
from nsys_llm.page_parts import capture_html, contents_html, findings_html, html_text
from nsys_llm.report import Report
from nsys_llm.sections import Section
from nsys_llm.view.results import Results
from nsys_llm.view.tables import Html

__all__ = ["NOTEBOOK_NAME", "VIEW_PACKAGE", "build_notebook", "write_notebook"]

NOTEBOOK_NAME: Final = "analysis.ipynb"

#: The name under which `nsys_llm.view` is copied beside a notebook.
VIEW_PACKAGE: Final = "nsys_llm_view"

_SET_UP: Final = f"""\
# Needs pandas, pyarrow and Jupyter with plotly; reads the parquet files beside this notebook.
from {VIEW_PACKAGE}.results import Results

results = Results()"""

_CLOSING: Final = """\
## Go on from here

Every table is a data frame away: `results.table("NAME")`. A chart is changed by changing its words,
or as a plotly figure: `results.chart(...).figure()`. The folder can be moved as a whole."""


def write_notebook(folder: Path, report: Report, results: Results) -> None:
    """Write the notebook and the package that it needs."""
    notebook = build_notebook(report, results)
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (folder / NOTEBOOK_NAME).write_text(text, encoding="utf-8")
    _copy_view(folder / VIEW_PACKAGE)


def build_notebook(report: Report, results: Results) -> dict[str, Any]:
    """Return the notebook as a notebook file has it (nbformat 4.5)."""
    links = {section.table: section.title for section in reversed(report.sections)}
    cells = _Cells()
    head = [answer_markdown(report, html_text), findings_heading(report)]
    cells.text("\n\n".join([*head, findings_html(report.findings, links)]).rstrip())
    cells.text(f"{contents_html(report.sections)}\n\n## Capture\n\n{capture_html(report)}")
    cells.code(_SET_UP, None)
    for section in report.sections:
        _add_section(cells, section, results)
    cells.text(_CLOSING)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    format_4_5 = {"nbformat": 4, "nbformat_minor": 5}
    return {"cells": cells.cells, "metadata": metadata, **format_4_5}


class _Cells:
    """Cells in order; ids and execution counts follow their place, so that runs compare.

    Made without nbformat, whose import takes as long as a small notebook and whose functions check
    every cell by itself. The tests check whole notebooks with it.
    """

    def __init__(self) -> None:
        self.cells: list[dict[str, Any]] = []
        self._count = 0

    def text(self, source: str) -> None:
        """Add a Markdown cell."""
        self._add("markdown", source, {})

    def code(self, source: str, shown: Mapping[str, Any] | None) -> None:
        """Add a code cell that was run, and what it showed."""
        self._count += 1
        outputs = []
        if shown is not None:
            result = {"output_type": "execute_result", "data": shown, "metadata": {}}
            outputs.append({**result, "execution_count": self._count})
        # The figure is what one comes for; the words that make it are a click away.
        hidden = {} if shown is None else {"jupyter": {"source_hidden": True}}
        self._add("code", source, hidden, outputs=outputs, execution_count=self._count)

    def _add(self, kind: str, source: str, metadata: dict[str, Any], **others: Any) -> None:
        identity = f"cell-{len(self.cells)}"
        cell = {"cell_type": kind, "id": identity, "metadata": metadata, "source": source}
        self.cells.append({**cell, **others})


def _add_section(cells: _Cells, section: Section, results: Results) -> None:
    cells.text(f"## {section.title}\n\n{section.shows}")
    for chart in section.charts:
        if results.has_values(section.table, chart):
            words = _call("chart", section.table, chart)
            cells.code(words, results.chart(section.table, **chart)._repr_mimebundle_())
    rows = {"rows_n": section.rows_n, "columns": list(section.columns)}
    words = _call("rows", section.table, rows | ({"by": section.by} if section.by else {}))
    shown = results.rows(section.table, section.rows_n, section.columns, by=section.by)
    cells.code(words, _shown(shown))


def _call(method: str, table: str, arguments: Mapping[str, Any]) -> str:
    """Return the call as a person would write it, one argument a line."""
    lines = [
        f"    {name}={pformat(value, width=84, compact=True)}," for name, value in arguments.items()
    ]
    return "\n".join([f"results.{method}(", f'    "{table}",', *lines, ")"])


def _shown(html: Html) -> dict[str, str]:
    return {"text/html": html.html, "text/plain": html.text}


def _copy_view(target: Path) -> None:
    target.mkdir()
    for source in resources.files("nsys_llm.view").iterdir():
        if source.name.endswith(".py"):
            with resources.as_file(source) as path:
                shutil.copyfile(path, target / source.name)
