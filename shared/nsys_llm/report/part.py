"""What a recipe found: its run, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from nsys_llm.report.report import Report, all_findings, build_report, findings_table
from nsys_llm.report.run import Run
from nsys_llm.report.run_tables import run_tables


@dataclass(frozen=True)
class Part:
    """The results of one recipe: of a run of its own, or of a part of an overview.

    Attributes:
        run: What was read, as this recipe sees it.
        tables: All tables that its manifest declares.
        report: What it tells.
    """

    run: Run
    tables: Mapping[str, pd.DataFrame]
    report: Report


def finished(run: Run) -> Part:
    """Return the results of a run that was mapped: tables, findings, report."""
    tables = run_tables(run)
    findings = all_findings(run, tables)
    tables["findings"] = findings_table(run.manifest, findings)
    return Part(run, tables, build_report(run, tables, findings))
