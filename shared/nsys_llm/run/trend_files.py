"""The files of a trend: the table, a figure of it, and the verdict for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow.parquet as pq

from nsys_llm.core.console import escaped_lines
from nsys_llm.manifest.declared import TableWrite
from nsys_llm.report.outputs import arrow_table
from nsys_llm.report.verdict import VERDICT_NAME
from nsys_llm.run.publish import OutputFolder
from nsys_llm.view.results import CONFIG, Results

FIGURE_NAME: Final = "trend.html"


def write_trend(
    output: str,
    declared: TableWrite,
    table: pd.DataFrame,
    verdict: Mapping[str, Any],
    parts: Sequence[str],
) -> Path:
    """Write a new folder, whole or not at all, and return it.

    Args:
        parts: Columns that the figure stacks, a bar a run.

    Raises:
        OutputError: The folder exists, or cannot be written.
    """
    data = arrow_table(declared, table)
    results = Results(None, {declared.file: data})
    title = f"A step of each run. {str(verdict['answer']).partition(' (')[0]}"
    chart = results.chart(declared.file, kind="parts", title=title, y="run", parts=[*parts])
    with OutputFolder(output, declared.file, replace=None) as folder:
        with folder.writing():
            pq.write_table(data, folder.path / f"{declared.file}.parquet")
            text = escaped_lines(json.dumps(verdict, indent=2, ensure_ascii=False)) + "\n"
            (folder.path / VERDICT_NAME).write_text(text, encoding="utf-8")
            page = chart.figure().to_html(include_plotlyjs=True, config=CONFIG)
            (folder.path / FIGURE_NAME).write_text(page, encoding="utf-8")
        return folder.publish(None)
