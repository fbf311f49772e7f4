"""Writes report.md and the notebook of a result that has its tables and report.json only.

The recipes' folders of an overview are such results. Findings are made of the tables again, as in
the run; what only the run knew stands in report.json.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from nsys_llm.core.console import Console
from nsys_llm.core.errors import OutputError
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.capture_summary import Unrecorded
from nsys_llm.report.notebook import NOTEBOOK_NAME
from nsys_llm.report.report import Report, findings_of, known_walls, shown_sections
from nsys_llm.report.report_files import MARKDOWN_NAME, write_report
from nsys_llm.report.run_record import REPORT_NAME
from nsys_llm.run.api import Result
from nsys_llm.run.publish import ANALYSIS_SUFFIX, names_below


def write_report_later(result: Result, console: Console) -> list[str]:
    """Write report.md and the notebook into a result's folder; return their names.

    Raises:
        OutputError: The folder cannot be written.
    """
    there = [name for name in (MARKDOWN_NAME, NOTEBOOK_NAME) if (result.folder / name).exists()]
    if there:
        raise OutputError(f"{result.folder}: has {there[0]} already; move it away first.")
    try:
        report = _report_of(result)
    except (KeyError, TypeError, AttributeError) as error:
        raise OutputError(f"{result.folder}: {REPORT_NAME} is damaged.") from error
    try:
        before = names_below(result.folder)
        _, written = write_report(result.folder, report, result.results, console)
        added = names_below(result.folder) - before
        # Of its own, and of the overview that it is a part of.
        for folder in (result.folder, result.folder.parent.parent):
            _add_to_record(folder, result.folder, added, written)
    except OSError as error:
        raise OutputError(f"{result.folder}: cannot be written ({error.strerror}).") from error
    return list(written)


def _report_of(result: Result) -> Report:
    """Return the report that the run of a result had."""
    manifest, analysis = load_manifest(result.recipe), load_analysis(result.recipe)
    reported = result.report["report"]
    findings = tuple(findings_of(analysis, result.tables))
    return Report(
        manifest=manifest,
        answer=reported["answer"],
        findings=findings,
        facts=tuple(reported["facts"].items()),
        caveats=tuple(reported["caveats"]),
        unrecorded=tuple(Unrecorded(**item) for item in reported["unrecorded"]),
        sections=shown_sections(manifest, result.tables),
        wall=known_walls(result.tables, findings),
    )


def _add_to_record(
    folder: Path, written_in: Path, added: Collection[str], written: Mapping[str, str]
) -> None:
    """List new files in the record of a folder, which is replaced only if it lists all it holds.

    Args:
        folder: That with the record, which may list the other one's files.
        added: All that were not there before.
        written: Those to open, with their labels.
    """
    records = list(folder.glob(f"*{ANALYSIS_SUFFIX}"))
    if len(records) != 1:
        return
    record = json.loads(records[0].read_text("utf-8"))
    files = set(record.get("Files", ()))
    inside = written_in.relative_to(folder)
    if not any(Path(name).is_relative_to(inside) for name in files):
        return
    record["Files"] = sorted(files | {(inside / name).as_posix() for name in added})
    record["Outputs"] |= {(inside / name).as_posix(): label for name, label in written.items()}
    records[0].write_text(json.dumps(record, indent=4), encoding="utf-8")
