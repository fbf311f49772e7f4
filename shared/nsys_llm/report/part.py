"""What a recipe found: its run, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.facts.timeline.step_lanes import KeptRanks
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
    """

    run: Run
    tables: Mapping[str, pd.DataFrame]
    report: Report


def finished(
    run: Run,
    kept: KeptRanks | None = None,
    tables: Mapping[str, pd.DataFrame] | None = None,
    every: Mapping[str, pd.DataFrame] | None = None,
) -> Part:
    """Return the results of a run that was mapped: tables, findings, report.

    Args:
        kept: What a timeline is drawn from; None leaves it empty.
        tables: Those of `run_tables`, where they are made.
        every: In an overview those of all its recipes, which give the prices; what these make
            small stays listed.
    """
    tables = dict(run_tables(run) if tables is None else tables)
    if kept is not None and (timeline := run.analysis.timeline) is not None:
        working = {rank.key for profile in run.profiles for rank in profile.ranks}
        ranks = [rank for rank in run.ranks if rank.key in working]
        tables |= timeline(run.parts, ranks, tables, run.options, kept)
    findings = all_findings(run, tables)
    if every is not None:
        findings = with_parts(ordered(priced(findings, every)), every)
    tables["findings"] = findings_table(run.manifest, findings)
    return Part(run, tables, build_report(run, tables, findings))
