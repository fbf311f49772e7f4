"""Writes what people read: report.md, the notebook, the page, and the terminal's summary."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from nsys_llm.core.console import Console
from nsys_llm.report.markdown import report_markdown
from nsys_llm.report.notebook import NOTEBOOK_NAME, write_notebook
from nsys_llm.report.page import PAGE_NAME, write_page
from nsys_llm.report.report import Report
from nsys_llm.report.summary import summary_lines
from nsys_llm.view.results import Results

MARKDOWN_NAME: Final = "report.md"


def write_report(
    folder: Path, report: Report, console: Console, *, html: bool = False
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write the report in all of its forms.

    Args:
        folder: Where the tables are already; the report shows what is in the files.
        report: What to tell.
        console: Shows in one line what could not be made.
        html: Whether to write the page too.

    Returns:
        The summary's lines, and the files written, each with its label for Nsight Systems.
    """
    results = Results(folder)
    (folder / MARKDOWN_NAME).write_text(report_markdown(report, results), encoding="utf-8")
    written = {MARKDOWN_NAME: "Report"}
    drawn = {NOTEBOOK_NAME: (write_notebook, "Notebook")}
    if html:
        drawn[PAGE_NAME] = (write_page, "Page")
    for name, (write, label) in drawn.items():
        try:
            write(folder, report, results)
            written[name] = label
        except ImportError as error:
            package = str(error.name).partition(".")[0]
            console.warn(f"no {name} was made: pip install {package}.")
    width, height = shutil.get_terminal_size((80, 24))
    return tuple(summary_lines(report, results, width, height)), written
