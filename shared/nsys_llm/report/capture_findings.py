"""Remarks made of the statements on a capture."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from nsys_llm.report.capture_texts import KINDS, RULES
from nsys_llm.report.findings import Evidence, Finding, claim
from nsys_llm.report.records import Tables
from nsys_llm.report.work_findings import lost_work, silent_processes
from nsys_llm.view.text import cleaned, first_quoted, quoted

_MOST_NAMED: Final = 5


def capture_findings(tables: Tables) -> list[Finding]:
    """Return a remark for each kind of statement in the table `capture`."""
    there = set(tables["capture"]["kind"].tolist())
    own = {"silent_processes": silent_processes, "lost_work": lost_work}
    return [
        own[kind](tables) if kind in own else _said(kind, tables)
        for kind in KINDS
        if kind in there and kind in RULES
    ]


def limiting(findings: Iterable[Finding]) -> Finding | None:
    """Return the first remark that limits what can be said of a run; None where none does."""
    return next((some for some in findings if some.rule in KINDS and KINDS[some.rule].limits), None)


def _said(kind: str, tables: Tables) -> Finding:
    rows = tables["capture"][tables["capture"]["kind"] == kind]
    # Of several earlier runs the command is that of the latest.
    commands = [cleaned(name).replace("`", "'") for name in rows["name"].dropna()]
    by_name = rows.dropna(subset=["name"]).groupby("name", sort=False)["count_n"].sum()
    kinds = ", ".join(
        f"{quoted(name)}" if kind == "unknown_table" else f"{count:,} {name}"
        for name, count in by_name.items()
    )
    command = f"`{commands[-1]}`" if commands else None
    names = first_quoted(dict.fromkeys(rows["file"]), _MOST_NAMED)
    fields = {"names": names, "kinds": kinds, "command": command}
    return RULES[kind].finding(fields=fields, evidence=_counts(kind, tables))


def _counts(kind: str, tables: Tables) -> tuple[Evidence, ...]:
    """Return how many there are of a kind, of how many, and in how many files and when."""
    of = partial(claim, tables)
    return (
        of("count_n", "capture", "count_n", kind=kind),
        of("of_n", "capture", "of_n", kind=kind),
        of("files_n", "capture", "file", "distinct", kind=kind),
        of("processes_n", "capture", "pid", "count", kind=kind),
        of("rows_n", "capture", "file", "count", kind=kind),
        of("first_ns", "capture", "start_ns", "min", kind=kind),
        of("last_ns", "capture", "end_ns", "max", kind=kind),
    )
