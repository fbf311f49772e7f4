"""What a recipe found: its run, its tables and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.report.findings import ordered
from nsys_llm.report.model_parts import with_parts
from nsys_llm.report.prices.pricing import priced
from nsys_llm.report.report import Report, all_findings, build_report, findings_table
from nsys_llm.report.run import Run
from nsys_llm.report.run_tables import run_tables

#: Below the folder of an overview: a folder for each of its recipes.
PARTS_FOLDER: Final = "parts"


@dataclass(frozen=True)
class Part:
    """The results of one recipe: of a run of its own, or of a part of an overview.

    Attributes:
        run: What was read, as this recipe sees it.
        tables: All tables that its manifest declares.
    """

    run: Run
    tables: Mapping[str, pd.DataFrame]
    report: Report


#: Makes tables of a run and of its other tables, reading some ranks once more.
Look = Callable[[Run, Mapping[str, pd.DataFrame]], Mapping[str, pd.DataFrame]]


def finished(
    run: Run,
    look: Look | None = None,
    tables: Mapping[str, pd.DataFrame] | None = None,
    every: Mapping[str, pd.DataFrame] | None = None,
) -> Part:
    """Return the results of a run that was mapped: tables, findings, report.

    Args:
        look: Fills tables that `run_tables` leaves empty; None leaves them so.
        tables: Those of `run_tables`, where they are made.
        every: In an overview those of all its recipes, which give the prices; what these make
            small stays listed.
    """
    tables = dict(run_tables(run) if tables is None else tables)
    if look is not None:
        tables |= look(run, tables)
    findings = all_findings(run, tables)
    if every is not None:
        findings = with_parts(ordered(priced(findings, every)), every)
    tables["findings"] = findings_table(run.manifest, findings)
    return Part(run, tables, build_report(run, tables, findings))
