"""Writes the files of a run: its tables, report.json, and what people read; then the verdict."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pandas as pd

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode
from nsys_llm.report.first_screen import first_screen_lines
from nsys_llm.report.markdown import report_markdown
from nsys_llm.report.notebook import NOTEBOOK_NAME, write_notebook
from nsys_llm.report.outputs import write_tables
from nsys_llm.report.page import PAGE_NAME, write_page
from nsys_llm.report.report import Report
from nsys_llm.report.run import Run
from nsys_llm.report.run_record import REPORT_NAME, VERDICT_NAME, decide, run_record, write_json
from nsys_llm.report.summary import summary_lines
from nsys_llm.view.results import Results

MARKDOWN_NAME: Final = "report.md"


def write_run(
    folder: Path,
    run: Run,
    tables: Mapping[str, pd.DataFrame],
    report: Report,
    code: ExitCode,
    console: Console,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write all files of a run.

    Args:
        folder: An empty one.
        console: Shows in one line what could not be made, and each gate that did not pass.

    Returns:
        The summary's lines, and the files written, each with its label for Nsight Systems.
    """
    results, written = write_data(folder, run, tables, report, code)
    html = bool(run.options["html"])
    summary, reports = write_report(folder, report, results, console, html=html)
    written |= reports
    if run.manifest.metrics:
        summary = (*summary, *decide(folder, run, tables, code, report.answer, console))
        written[VERDICT_NAME] = "Verdict"
    return summary, written


def write_data(
    folder: Path, run: Run, tables: Mapping[str, pd.DataFrame], report: Report, code: ExitCode
) -> tuple[Results, dict[str, str]]:
    """Write the files of a run that programs read, tables and report.json; see `write_run`.

    Returns:
        The tables as the files have them, and the files, each with its label.
    """
    # What is in the files, not the frames they were made of: so does a notebook that runs again.
    results = Results(
        folder, write_tables(folder, run.manifest, tables, csv=bool(run.options["csv"]))
    )
    write_json(folder / REPORT_NAME, run_record(run, tables, report, code))
    titles = {section.table: section.title for section in reversed(run.manifest.sections)}
    labels = {name: titles.get(name, name.replace("_", " ").capitalize()) for name in tables}
    return results, {f"{name}.parquet": labels[name] for name in tables if len(tables[name])}


def write_report(
    folder: Path, report: Report, results: Results, console: Console, *, html: bool = False
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write the report in all of its forms, the page only if asked; see `write_run`."""
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
    if report.screen is not None:
        return tuple(first_screen_lines(report, report.screen, width, height)), written
    return tuple(summary_lines(report, results, width, height)), written
