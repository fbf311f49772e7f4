"""report.json: how a run ended, what its profiles say of themselves, what was lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nsys_llm import __version__
from nsys_llm.core.console import escaped_lines
from nsys_llm.core.errors import ExitCode
from nsys_llm.core.rooted import ROOTS
from nsys_llm.manifest.declared import TableWrite
from nsys_llm.manifest.what_if import unnamed
from nsys_llm.profile.segments import SEGMENTS
from nsys_llm.profile.sqlite.pages import decoder
from nsys_llm.report.report import Report, report_record
from nsys_llm.report.run import Run
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.shared_gpus import BESIDE
from nsys_llm.trace.steps import AGREED

REPORT_NAME: Final = "report.json"

#: Version of what report.json holds; it grows when a key changes its meaning or goes.
FORMAT: Final = 1


def run_record(
    run: Run, tables: Mapping[str, pd.DataFrame], report: Report, code: ExitCode
) -> dict[str, Any]:
    """Return what report.json holds."""
    lost = {read.table: read.lost for read in run.manifest.reads}
    options = {name: value for name, value in run.options.items() if name not in _PATH_OPTIONS}
    if options["anonymize"] and options.get("what_if"):
        options["what_if"] = [change.text for change in unnamed(options["what_if"]).values()]
    return {
        "format": FORMAT,
        "recipe": run.manifest.name,
        "version": __version__,
        "decoder": decoder(),
        "exit_code": int(code),
        "options": options,
        "ranks": [_rank_facts(rank) for rank in run.ranks],
        "failed": {
            profile.label: {"reason": profile.reason, "traceback": profile.fault}
            for profile in run.failed
        },
        "lost": {
            profile.label: {table: lost[table] for table in profile.absent_tables}
            for profile in run.profiles
            if profile.absent_tables
        },
        "notes": [*run.left_out, *(f"{who}: {note}." for who, note in run.notes)],
        "report": report_record(report),
        "tables": _table_records(run, tables),
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write report.json."""
    text = escaped_lines(json.dumps(record, indent=2, ensure_ascii=False)) + "\n"
    (folder / REPORT_NAME).write_text(text, encoding="utf-8")


# Absolute paths stand in the .nsys-analysis file alone.
_PATH_OPTIONS: Final = frozenset(
    {
        *("input", "output", "export_dir", "rank_map", "baseline", "baselines"),
        "graph_annotations",
        *(ROOTS, AGREED, SEGMENTS, BESIDE),
    }
)


def _rank_facts(rank: Rank) -> dict[str, Any]:
    facts = rank.facts
    shown: dict[str, Any] = {"run": rank.key.side} if rank.key.side else {}
    shown |= {"rank": rank.number, "file": rank.file, "rank_source": rank.source, "pid": rank.pid}
    if facts is None:
        return shown
    return {
        **shown,
        "host": facts.host,
        "gpus": list(facts.gpus),
        "driver_version": facts.driver_version,
        "cuda_version": facts.cuda_version,
        "nsys_version": facts.nsys_version,
        "schema_version": facts.schema_version,
        "cuda_graph_trace": facts.graph_mode,
    }


def _table_records(run: Run, tables: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """Return the rows of each table of a run; where it has none the reason and its columns."""
    records: dict[str, dict[str, Any]] = {}
    for table in run.manifest.writes:
        rows_n = len(tables[table.file])
        reason, flags = (None, None) if rows_n else _reason(table, run, tables)
        records[table.file] = {"rows": rows_n, "reason": reason, "record": flags}
        if not rows_n:
            records[table.file]["columns"] = {
                column.name: {"dtype": column.dtype, "unit": column.unit}
                for column in table.columns
            }
    return records


def _reason(
    table: TableWrite, run: Run, tables: Mapping[str, pd.DataFrame]
) -> tuple[str, str | None]:
    if table.option is not None and not run.options.get(table.option):
        flag = next(option.flag for option in run.manifest.options if option.name == table.option)
        return f"{flag} was not given", None
    if tables["coverage"].empty:
        return "no rank with GPU work was read", None
    readable = [profile for profile in run.profiles if profile.reason is None]
    for read in run.manifest.reads:
        if read.table in table.reads and all(
            read.table in profile.empty_tables for profile in readable
        ):
            return f"{read.lost}: not recorded, or none happened", read.capture
    return f"nothing that was read makes one; a row is {table.row}", None
