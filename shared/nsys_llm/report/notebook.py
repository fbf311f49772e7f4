"""Builds analysis.ipynb: everything drawn and stored, and every cell runs again from the tables.

The figures are made by the package that is copied beside the notebook, here and when it is run, so
that both show the same.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from pprint import pformat
from typing import Any, Final

from nsys_llm.manifest.declared import Section
from nsys_llm.report import drawing, page
from nsys_llm.report.markdown import answer_markdown, findings_heading
from nsys_llm.report.report import EXTRA_HEADING, MORE_HEADING, Report
from nsys_llm.view.results import Results

NOTEBOOK_NAME: Final = "analysis.ipynb"

#: The name under which `nsys_llm.view` is copied beside a notebook.
VIEW_PACKAGE: Final = "nsys_llm_view"

_SET_UP: Final = f"""\
# Needs pandas, pyarrow and Jupyter with plotly; reads report.json and the parquet files here.
from {VIEW_PACKAGE}.results import Results

results = Results()"""

_CLOSING: Final = """\
## Continue from here

Every table is a data frame: `results.table("NAME")`. To change a chart, edit its arguments, or take
it as a plotly figure: `results.chart(...).figure()`. The folder can be moved as a whole."""


def write_notebook(folder: Path, report: Report, results: Results) -> None:
    """Write the notebook and the package that it needs.

    Raises:
        ImportError: nbformat is not installed; nothing was written.
    """
    notebook = build_notebook(report, results)
    nbformat = drawing.nbformat()
    nbformat.validate(notebook)
    (folder / NOTEBOOK_NAME).write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    _copy_view(folder / VIEW_PACKAGE)


def build_notebook(report: Report, results: Results) -> Any:
    """Return the notebook, a `NotebookNode` of nbformat 4.5; two runs give equal ones.

    Raises:
        ImportError: nbformat is not installed.
    """
    # A link into what is folded would lead nowhere; the heading above it is there.
    links = {
        section.table: section.title if section.lead or section.opening else MORE_HEADING
        for section in reversed(report.sections)
    } | {section.table: EXTRA_HEADING for section in report.extra_sections}
    cells = _Cells()
    answer = answer_markdown(report, page.html_text)
    places = {
        number: page.link_id(report.opening_sections[0].title)
        for number in page.marked_numbers(report, results)
    }
    reported = page.findings_html(report.opportunities, links, places)
    findings = f"{findings_heading(report)}\n\n{reported}".rstrip()
    if report.opening_sections:
        cells.text("answer", answer)
        cells.code("set-up", _SET_UP, None)
        for section in report.opening_sections:
            _add_section(cells, section, results, "##")
        for section in report.beside_sections:
            number = int(results.table(section.table)["finding"].iloc[0])
            first, findings = page.below_finding(findings, number)
            cells.text("findings", first)
            _add_section(cells, section, results, "###")
        cells.text("findings", findings)
    else:
        cells.text("answer", f"{answer}\n\n{findings}")
    folded = [
        ("more", MORE_HEADING, report.other_sections),
        ("extra", EXTRA_HEADING, report.extra_sections),
    ]
    titles = [section.title for section in report.lead_sections]
    contents = page.contents_html([*titles, *(heading for _, heading, some in folded if some)])
    cells.text("capture", f"{contents}\n\n## Capture\n\n{page.capture_html(report)}")
    if not report.opening_sections:
        cells.code("set-up", _SET_UP, None)
    for section in report.lead_sections:
        _add_section(cells, section, results, "##")
    for name, heading, sections in folded:
        if sections:
            cells.text(name, f"## {heading}", folded=True)
        for section in sections:
            _add_section(cells, section, results, "###")
    cells.text("go-on", _CLOSING)
    return cells.notebook()


class _Cells:
    """Cells in order, as the format has them; ids follow the section's name, so that runs compare.

    They are checked once, as a whole: each function of `nbformat.v4` would check what it returns.
    """

    def __init__(self) -> None:
        self._cells: list[dict[str, Any]] = []
        self._names: Counter[str] = Counter()
        self._count = 0

    def text(self, name: str, source: str, *, folded: bool = False) -> None:
        """Add a Markdown cell; `name` says what it is about, `folded` hides what is below it."""
        # The key under which JupyterLab keeps that a heading is collapsed.
        metadata = {"jp-MarkdownHeadingCollapsed": True} if folded else {}
        self._add("markdown", name, source, metadata)

    def code(self, name: str, source: str, shown: Mapping[str, Any] | None) -> None:
        """Add a code cell that was run, and what it showed."""
        self._count += 1
        count = {"execution_count": self._count}
        result = {"output_type": "execute_result", "metadata": {}, "data": shown, **count}
        # The figure is what one comes for; the words that make it are a click away.
        hidden = {} if shown is None else {"jupyter": {"source_hidden": True}}
        outputs = [] if shown is None else [result]
        self._add("code", name, source, hidden, outputs=outputs, **count)

    def notebook(self) -> Any:
        """Return the notebook of all cells, in the form of nbformat 4.5."""
        python = {"display_name": "Python 3", "language": "python", "name": "python3"}
        metadata = {"kernelspec": python, "language_info": {"name": "python"}}
        form = {"nbformat": 4, "nbformat_minor": 5}
        return drawing.nbformat().from_dict({"cells": self._cells, "metadata": metadata, **form})

    def _add(
        self, kind: str, name: str, source: str, metadata: Mapping[str, Any], **others: Any
    ) -> None:
        cell = {"cell_type": kind, "id": self._id(name), "metadata": metadata, "source": source}
        self._cells.append({**cell, **others})

    def _id(self, name: str) -> str:
        """Return an id that no other cell has: letters, digits, `-` and `_`, at most 64."""
        name = re.sub("[^a-zA-Z0-9_]+", "-", name)[:56]
        self._names[name] += 1
        return f"{name}-{self._names[name]}"


def _add_section(cells: _Cells, section: Section, results: Results, level: str) -> None:
    cells.text(section.table, f"{level} {section.title}\n\n{section.shows}")
    for chart in section.charts:
        if results.has_values(section.table, chart):
            words = _call("chart", section.table, chart)
            cells.code(
                section.table, words, results.chart(section.table, **chart)._repr_mimebundle_()
            )
    if section.opening or section.beside:
        return
    rows = {"rows_n": section.rows_n, "columns": list(section.columns)}
    words = _call("rows", section.table, rows | ({"by": section.by} if section.by else {}))
    html = results.rows(section.table, section.rows_n, section.columns, by=section.by)
    cells.code(section.table, words, {"text/html": html.html, "text/plain": html.text})


def _call(method: str, table: str, arguments: Mapping[str, Any]) -> str:
    """Return the call as a person would write it, one argument a line."""
    lines = [
        f"    {name}={pformat(value, width=84, compact=True)}," for name, value in arguments.items()
    ]
    return "\n".join([f"results.{method}(", f'    "{table}",', *lines, ")"])


def _copy_view(target: Path) -> None:
    target.mkdir()
    for source in resources.files("nsys_llm.view").iterdir():
        if source.name.endswith(".py"):
            with resources.as_file(source) as path:
                shutil.copyfile(path, target / source.name)
