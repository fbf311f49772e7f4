"""What programs read of a run: report.json, how it ended and why, and verdict.json of its gates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nsys_llm import __version__
from nsys_llm.core.console import Console, escaped_lines
from nsys_llm.core.errors import ExitCode
from nsys_llm.core.rooted import ROOTS
from nsys_llm.manifest.declared import TableWrite
from nsys_llm.manifest.gates import FAIL, NOT_COMPARABLE, PROBABLY_FAIL, blocks
from nsys_llm.manifest.what_if import unnamed
from nsys_llm.profile.segments import SEGMENTS
from nsys_llm.profile.sqlite.pages import decoder
from nsys_llm.report.records import first_record, records
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


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record for programs, which people can read too."""
    text = escaped_lines(json.dumps(record, indent=2, ensure_ascii=False)) + "\n"
    path.write_text(text, encoding="utf-8")


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


VERDICT_NAME: Final = "verdict.json"

_VERDICT_FORMAT: Final = 1
_WORDS: Final = {
    ExitCode.DONE: "pass",
    ExitCode.GATE_FAILED: "fail",
    ExitCode.INCOMPLETE: "not_comparable",
}
_BLOCKING: Final = ("all", "totals", "per_step")


def gated(code: ExitCode, results: Iterable[str], gate_if: str) -> ExitCode:
    """Return how a run ends that would end with `code` but for its gates; `gate_if` as typed.

    What is incomplete or not comparable weighs more than what failed.
    """
    results = set(results)
    if code is not ExitCode.DONE:
        return code
    if NOT_COMPARABLE in results:
        return ExitCode.INCOMPLETE
    return ExitCode.GATE_FAILED if blocks(results, gate_if) else ExitCode.DONE


def decide(
    folder: Path,
    run: Run,
    tables: Mapping[str, pd.DataFrame],
    code: ExitCode,
    answer: str,
    console: Console,
) -> list[str]:
    """Write verdict.json, show each gate that did not pass, and return the lines of the summary."""
    record = _verdict(run.manifest.name, tables, code, answer)
    write_json(folder / VERDICT_NAME, record)
    words = {FAIL: "gate failed", NOT_COMPARABLE: "gate not decided",
             PROBABLY_FAIL: "gate probably failed"}  # fmt: skip
    for gate in record["gates"]:
        if (result := gate["result"]) in words:
            is_said = result == PROBABLY_FAIL and not blocks([result], run.options["gate_if"])
            (console.warn if is_said else console.error)(f"{words[result]}: {_gate_text(gate)}")
    lines = _verdict_lines(record)
    return ["", *lines] if lines else []


def _verdict(
    recipe: str, tables: Mapping[str, pd.DataFrame], code: ExitCode, answer: str
) -> dict[str, Any]:
    """Return what verdict.json holds; its keys are those that the manifest explains."""
    gates, comparability = tables["gates"], tables["comparability"]
    results, word = set(gates["result"]), _WORDS.get(code, "fault")
    if code is ExitCode.INCOMPLETE and NOT_COMPARABLE not in results:
        word = "incomplete"
    is_decided = code in (ExitCode.DONE, ExitCode.GATE_FAILED)
    if is_decided and {FAIL, PROBABLY_FAIL} & results == {PROBABLY_FAIL}:
        word = PROBABLY_FAIL
    return {
        "format": _VERDICT_FORMAT,
        "recipe": recipe,
        "version": __version__,
        "exit_code": int(code),
        "verdict": word if len(gates) else "none",
        "answer": answer,
        "speed": first_record(tables["verdict"]),
        "gates": records(gates),
        "not_comparable": records(comparability[comparability["status"].isin(_BLOCKING)]),
        # How many further runs of the baseline noise is known from.
        "noise_runs": int(tables["runs"]["tells_noise"].sum()),
    }


def _verdict_lines(record: Mapping[str, Any]) -> list[str]:
    if not record["gates"]:
        return []
    width = max(len(gate["result"]) for gate in record["gates"])
    lines = [f"  {gate['result']:{width}}  {_gate_text(gate)}" for gate in record["gates"]]
    counts = [
        f"{sum(gate['result'] == result for gate in record['gates'])} {result}"
        for result in dict.fromkeys(gate["result"] for gate in record["gates"])
    ]
    word, exits = record["verdict"], f"exit {record['exit_code']}"
    if word == PROBABLY_FAIL and not record["exit_code"]:
        lines.append("  --gate-if probably ends such a run with exit 1")
    ending = f"{word[:-1]}; {exits})" if word == PROBABLY_FAIL else f"{word} ({exits})"
    return [f"Gates: {ending}, {', '.join(counts)}", *lines]


def _gate_text(gate: Mapping[str, Any]) -> str:
    if gate["told"] is None:
        return f"{gate['gate']}: {gate['reason']}"
    return f"{gate['gate']}: {gate['told']}" + (f" ({gate['reason']})" if gate["reason"] else "")
