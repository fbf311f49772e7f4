"""`nsys-llm show RESULT [FINDING | TABLE]`: a result in bounded, read-only pieces."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pandas as pd

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, UsageError
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.report.outputs import for_spreadsheets
from nsys_llm.run.api import Result, load
from nsys_llm.run.guard import RunOutcome
from nsys_llm.view.choice import holding, ordered, require_column
from nsys_llm.view.tables import Field, cells, headings
from nsys_llm.view.text import counted, format_value

#: More are in the parquet file; what is shown stays bounded.
_MOST_ROWS: Final = 1_000
_CELL_LENGTH: Final = 60
#: What stands in the list of findings, and in its JSON.
_OF_FINDING: Final = (
    *("kind", "severity", "title", "recommendation", "record", "ncu"),
    *("gain_ns", "gain_pct", "gain_step_ns", "bound_ns", "bound_pct", "about_basis"),
    *("replay_reason", "cause", "cause_rank", "cause_detail", "rank"),
)
_UNIT_BY_END: Final = {"_ns": "ns", "_pct": "%", "_bytes": "bytes"}


def show(given: Mapping[str, Any], console: Console) -> RunOutcome:
    """Print what was asked for; nothing is written.

    Raises:
        UsageError: There is no such finding, table or column.
        OutputError: The folder holds no result.
    """
    result = load(given["result"])
    what = given["what"]
    if given["csv"] and (what is None or what.isdecimal()):
        raise UsageError("--csv: name a table, such as findings.")
    if what is None:
        lines = _overall(result, given["json"])
    elif what.isdecimal():
        lines = _finding(result, int(what), given["json"])
    else:
        lines = _table(result, what, given)
    console.show(*lines)
    return RunOutcome(ExitCode.DONE, None)


def overall_record(result: Result) -> dict[str, Any]:
    """Return what a run says of itself: answer, findings without details, what is missing."""
    findings = [
        {"number": number} | {name: finding.get(name) for name in _OF_FINDING}
        for number, finding in enumerate(result.findings, 1)
    ]
    reported = result.report["report"]
    return {
        "recipe": result.recipe,
        "answer": result.answer,
        "wall": reported["wall"],
        "findings": findings,
        "caveats": reported["caveats"],
        "unrecorded": reported["unrecorded"],
        "failed": result.report["failed"],
        "exit_code": result.report["exit_code"],
        "tables": {name: int(table["rows"]) for name, table in result.report["tables"].items()},
        "parts": {
            name: [table for table, facts in part.report["tables"].items() if facts["rows"]]
            for name, part in result.parts.items()
        },
    }


def _overall(result: Result, as_json: bool) -> list[str]:
    record = overall_record(result)
    if as_json:
        return [json.dumps(record, indent=2, ensure_ascii=False)]
    lines = [result.answer, ""]
    for finding in record["findings"]:
        label = finding["severity"] or finding["kind"]
        lines.append(f"{finding['number']:>3} {label:<11} {finding['title']}")
    tables = record["tables"].items()
    shown = ", ".join(f"{name} ({rows_n:,})" for name, rows_n in tables if rows_n)
    return [*lines, "", f"Tables with rows: {shown}"]


def finding_of(result: Result, number: int) -> dict[str, Any]:
    """Return one finding with all of its fields; the first is number 1.

    Raises:
        UsageError: There is none of that number.
    """
    if not 1 <= number <= len(result.findings):
        raise UsageError(f"{result.folder}: no finding {number}; there are {len(result.findings)}.")
    return result.findings[number - 1]


def _finding(result: Result, number: int, as_json: bool) -> list[str]:
    finding = finding_of(result, number)
    if as_json:
        return [json.dumps(finding, indent=2, ensure_ascii=False)]
    lines = [f"{number}. {finding['title']}", "", finding["details"], finding["recommendation"], ""]
    plain = {
        name: value
        for name, value in finding.items()
        if value not in (None, [], {}) and not isinstance(value, (list, dict))
    }
    # It stands for a size where a finding has no other.
    if not plain.get("impact_ns"):
        plain.pop("impact_ns", None)
    reported = ("title", "details", "recommendation")
    lines += [
        f"{name:<16} {_rounded(name, value)}"
        for name, value in plain.items()
        if name not in reported
    ]
    return [*lines, "", *_evidence(result, finding["evidence"])]


def _evidence(result: Result, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the numbers of a finding below the command that shows their rows, each once."""
    by_rows: dict[str, list[str]] = {}
    seen = set()
    for cell in cells:
        column = f"{cell['how']}({cell['column']})" if "how" in cell else cell["column"]
        per = f" / {cell['over']['column']}" if "over" in cell else ""
        conditions = tuple(map(_condition, cell["where"].items()))
        # Recipes of an overview may have tables of one name with the same rows.
        once = (cell["table"].rpartition("/")[2], conditions, column, per)
        if cell["value"] is None or once in seen:
            continue
        seen.add(once)
        words = [
            str(result.folder),
            cell["table"],
            *chain(*(("--where", text) for text in conditions)),
        ]
        shown = _rounded(cell.get("name", cell["column"]), cell["value"])
        by_rows.setdefault(shlex.join(words), []).append(f"  {column}{per} = {shown}")
    return [line for words, lines in by_rows.items() for line in (f"nsys-llm show {words}", *lines)]


def _condition(item: tuple[str, Any]) -> str:
    """Return what rows have in a column as `--where` takes it."""
    name, value = item
    if isinstance(value, list):
        return f"{name} ~ re:^({'|'.join(re.escape(str(one)) for one in value)})$"
    shown = json.dumps(value) if value is None or isinstance(value, bool) else value
    return f"{name} = {shown}"


def _rounded(name: str, value: Any) -> Any:
    """Return a number of a finding as tables show it, by the unit that its name ends with."""
    if isinstance(value, (bool, str)):
        return value
    unit = next((unit for end, unit in _UNIT_BY_END.items() if name.endswith(end)), None)
    if unit is None and isinstance(value, int):
        return value
    return format_value(value, unit or "ratio")


@dataclass(frozen=True)
class ShownRows:
    """Rows and columns of a table.

    Attributes:
        fields: All columns, with units and meanings.
        why_empty: Why there are no rows; None where there are some.
    """

    frame: pd.DataFrame
    fields: Mapping[str, Field]
    columns: list[str]
    why_empty: str | None

    def json(self, rows_n: int) -> str:
        """Return the first rows as JSON: a list of objects."""
        shown = self.frame.head(rows_n)[self.columns]
        return str(shown.to_json(orient="records", force_ascii=False, double_precision=15))


def chosen_rows(
    result: Result, what: str, where: Iterable[str], columns: str | None, sort: str | None
) -> ShownRows:
    """Return rows of a table; arguments are as on the command line.

    Raises:
        UsageError: There is no such table or column, or a condition is none.
    """
    result, name = _of_part(result, what)
    whole = frame = result.tables[name]
    try:
        frame = holding(frame, where, lambda text: parse_pattern(text).matches)
        frame = ordered(frame, sort) if sort else frame
        fields = result.results.fields(name)
        shown = _chosen(fields, columns)
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    why_empty = result.results.why_empty(name)
    if frame.empty and not whole.empty:
        why_empty = f"none of its {len(whole):,} rows meets the conditions"
    return ShownRows(frame, fields, shown, why_empty)


def _table(result: Result, what: str, given: Mapping[str, Any]) -> list[str]:
    chosen = chosen_rows(result, what, given["where"], given["columns"], given["sort"])
    frame, fields, columns = chosen.frame, chosen.fields, chosen.columns
    rows_n = max(0, min(given["top"], _MOST_ROWS))
    if given["json"]:
        return [chosen.json(rows_n)]
    if given["csv"]:
        shown = for_spreadsheets(frame.head(rows_n)[columns])
        return [shown.to_csv(index=False, lineterminator="\n").removesuffix("\n")]
    rows = [
        [shown for shown, _ in row]
        for row in cells(frame, fields, columns, rows_n, length=_CELL_LENGTH)
    ]
    lines = aligned([headings(fields, columns), *rows])
    counts = counted(len(frame), "row")
    if rows_n < len(frame):
        counts = f"{rows_n:,} of {counts}"
    return [*lines, chosen.why_empty or counts]


def _of_part(result: Result, what: str) -> tuple[Result, str]:
    """Return the result that has a table, and its name; without a recipe, if only one has it."""
    recipe, _, name = what.rpartition("/")
    if recipe:
        if recipe not in result.parts:
            raise UsageError(f"{result.folder}: no results of a recipe '{recipe}'.")
        result = result.parts[recipe]
    if name in result.tables:
        return result, name
    having = [part for part in result.parts if name in result.parts[part].tables]
    if len(having) == 1:
        return result.parts[having[0]], name
    of_parts = [f"{part}/{name}" for part in having]
    raise UsageError(f"no table '{name}'; there are: {', '.join([*of_parts, *result.tables])}.")


def _chosen(fields: Mapping[str, Any], text: str | None) -> list[str]:
    if text is None:
        return list(fields)
    columns = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in columns:
        require_column("columns", name, fields)
    return columns


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line a row, its columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
