"""What every run writes whatever its recipe: files, coverage, and report.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nsys_llm import __version__
from nsys_llm.core.errors import ExitCode
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.report.outputs import declared_frame
from nsys_llm.report.report import Report, report_record
from nsys_llm.trace.identity import Rank, RankKey, clock_offsets
from nsys_llm.trace.outcomes import MapResult, ReportOutcome, report_notes

REPORT_NAME: Final = "report.json"

#: Version of what report.json holds; it grows when a key changes its meaning or goes.
FORMAT: Final = 1


def absent_ranks(ranks: Sequence[Rank], options: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the ranks that --world-size or --ranks asks for and no report has, by side.

    A report that could not be read is not absent: it failed, and is counted as such.
    """
    sides = sorted({rank.key.side for rank in ranks})
    return [
        (side, number)
        for side in sides
        for number in _absent([rank for rank in ranks if rank.key.side == side], options)
    ]


def _absent(ranks: Sequence[Rank], options: Mapping[str, Any]) -> list[int]:
    # Beside ranks with a number of the job, an index is no rank.
    sources = {rank.source for rank in ranks} - {None}
    there = {rank.number for rank in ranks if len(sources) == 1 or rank.source != "index"}
    wanted = options["ranks"] if options["ranks"] is not None else range(options["world_size"] or 0)
    return [number for number in wanted if number not in there]


def run_tables(
    manifest: Manifest, result: MapResult, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Return the tables files and coverage."""
    files = [*_file_rows(result, ranks, options), *_absent_rows(absent_ranks(ranks, options))]
    coverage = list(_coverage_rows(result, ranks))
    return {
        "files": _frame(manifest, "files", files),
        "coverage": _frame(manifest, "coverage", coverage),
    }


def run_record(
    manifest: Manifest,
    options: Mapping[str, Any],
    result: MapResult,
    ranks: Sequence[Rank],
    tables: Mapping[str, pd.DataFrame],
    code: ExitCode,
    notes: Sequence[str],
    report: Report,
) -> dict[str, Any]:
    """Return what report.json holds: how the run ended, the capture's facts, what was lost."""
    lost = {read.table: read.lost for read in manifest.reads}
    return {
        "format": FORMAT,
        "recipe": manifest.name,
        "version": __version__,
        "exit_code": int(code),
        "options": {name: value for name, value in options.items() if name not in _PATH_OPTIONS},
        "ranks": [_rank_facts(rank) for rank in ranks],
        "failed": {
            report.label: {"reason": report.reason, "traceback": report.fault}
            for report in result.reports
            if report.reason is not None
        },
        "lost": {
            report.label: {table: lost[table] for table in report.absent_tables}
            for report in result.reports
            if report.absent_tables
        },
        "notes": [*notes, *(f"{who}: {note}." for who, note in report_notes(result))],
        "report": report_record(report),
        "tables": {name: len(table) for name, table in tables.items()},
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write report.json."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (folder / REPORT_NAME).write_text(text, encoding="utf-8")


# Absolute paths stand in the .nsys-analysis file alone.
_PATH_OPTIONS: Final = frozenset({"input", "output", "export_dir", "rank_map"})


def _rank_facts(rank: Rank) -> dict[str, Any]:
    facts = rank.facts
    shown: dict[str, Any] = {"side": rank.key.side} if rank.key.side else {}
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


def _file_rows(
    result: MapResult, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    reports = {(report.side, report.path): report for report in result.reports}
    devices = {one.key: one.device_ids for report in result.reports for one in report.ranks}
    clocks = {}
    # Runs that are compared have no clock in common.
    for side in {report.side for report in result.reports}:
        own = [report for report in result.reports if report.side == side]
        facts = {report.path: report.facts for report in own if report.facts is not None}
        clocks[side] = ({}, None) if options["disable_alignment"] else clock_offsets(facts)
    rows = []
    for rank in ranks:
        key = rank.key
        if report := reports.get((key.side, key.path)):
            offsets, clock = clocks[key.side]
            rows.append(_file_row(rank, report, devices, offsets.get(key.path), clock))
    return rows


def _file_row(
    rank: Rank,
    report: ReportOutcome,
    devices: Mapping[RankKey, tuple[int, ...]],
    offset_ns: int | None,
    clock: str | None,
) -> dict[str, Any]:
    facts = report.facts
    status, reason = "ok", None
    if report.reason is not None:
        status, reason = "failed", report.reason
    elif rank.key not in devices:
        status, reason = "no_gpu_work", "a valid report, but without GPU work"
    used = ",".join(map(str, devices.get(rank.key, ())))
    return {
        "side": rank.key.side,
        "Rank": rank.number,
        "File": rank.file,
        "rank_source": rank.source,
        "status": status,
        "reason": reason,
        "host": facts.host if facts else None,
        "pid": rank.pid,
        "process_name": facts.processes.get(rank.key.global_pid) if facts else None,
        "gpu": ", ".join(sorted(set(facts.gpus))) or None if facts else None,
        "device_ids": used or None,
        "nsys_version": facts.nsys_version if facts else None,
        "schema_version": facts.schema_version if facts else None,
        "clock_offset_ns": offset_ns,
        "clock_source": clock if offset_ns is not None else None,
        "secret_variables": ", ".join(facts.secret_variables) or None if facts else None,
    }


def _absent_rows(absent: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    reason = "no report of this rank was given"
    rows = [
        {"side": side, "Rank": number, "File": _absent_label(side, number)}
        for side, number in absent
    ]
    return [{**row, "status": "absent", "reason": reason} for row in rows]


def _absent_label(side: str, number: int) -> str:
    return f"({side} rank {number})" if side else f"(rank {number})"


def _coverage_rows(result: MapResult, ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    by_key = {rank.key: rank for rank in ranks}
    rows = [
        {
            "side": one.key.side,
            "rank": by_key[one.key].number,
            "file": by_key[one.key].file,
            **asdict(row),
        }
        for report in result.reports
        for one in report.ranks
        for row in one.coverage
    ]
    return sorted(rows, key=lambda row: (row["side"], row["rank"]))


def _frame(manifest: Manifest, name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    table = manifest.table(name)
    return declared_frame(
        table, {column.name: [row.get(column.name) for row in rows] for column in table.columns}
    )
