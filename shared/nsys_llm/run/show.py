"""`nsys-llm show RESULT [FINDING | TABLE]`: a result in bounded, read-only pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, UsageError
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.run.api import Result, load
from nsys_llm.run.guard import RunOutcome
from nsys_llm.view.tables import Field, cells, headings
from nsys_llm.view.text import format_value

#: More are in the parquet file; what is shown stays bounded.
_MOST_ROWS: Final = 1_000
_CELL_LENGTH: Final = 60
#: What stands in the list of findings, and in its JSON.
_OF_FINDING: Final = (
    "kind",
    "severity",
    "title",
    "recommendation",
    "record",
    "ncu",
    "gain_ns",
    "gain_pct",
    "gain_step_ns",
    "bound_ns",
    "bound_pct",
    "about_basis",
    "replay_reason",
    "cause",
    "cause_rank",
    "cause_detail",
    "rank",
)
_UNIT_BY_END: Final = {"_ns": "ns", "_pct": "%", "_bytes": "bytes"}
_UP: Final = ":up"
_NULL: Final = "null"
_WHERE: Final = re.compile(r"(\w+)\s*(==|!=|>=|<=|=|>|<|~)\s*(.*)")


def show(given: Mapping[str, Any], console: Console) -> RunOutcome:
    """Print what was asked for; nothing is written.

    Raises:
        UsageError: There is no such finding, table or column.
        OutputError: The folder holds no result.
    """
    result = load(given["result"])
    what = given["what"]
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
        raise UsageError(
            f"{result.folder}: there is no finding {number} of {len(result.findings)}."
        )
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
    for cell in finding["evidence"]:
        where = ", ".join(f"{name} = {value}" for name, value in cell["where"].items())
        cells = f"{cell['table']}[{where}].{cell['column']}"
        cells = f"{cell['how']}({cells})" if "how" in cell else cells
        per = " / {table}.{column} {value}".format(**cell["over"]) if "over" in cell else ""
        lines.append(f"{cells}{per} = {cell['value']}")
    return lines


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
    for condition in where:
        frame = frame[_holds(frame, condition)]
    if sort:
        frame = _sorted(frame, sort)
    why_empty = result.results.why_empty(name)
    if frame.empty and not whole.empty:
        why_empty = f"none of its {len(whole):,} rows meets the conditions"
    fields = result.results.fields(name)
    return ShownRows(frame, fields, _chosen(fields, columns), why_empty)


def _table(result: Result, what: str, given: Mapping[str, Any]) -> list[str]:
    chosen = chosen_rows(result, what, given["where"], given["columns"], given["sort"])
    frame, fields, columns = chosen.frame, chosen.fields, chosen.columns
    rows_n = max(0, min(given["top"], _MOST_ROWS))
    if given["json"]:
        return [chosen.json(rows_n)]
    rows = [
        [shown for shown, _ in row]
        for row in cells(frame, fields, columns, rows_n, length=_CELL_LENGTH)
    ]
    lines = aligned([headings(fields, columns), *rows])
    return [*lines, chosen.why_empty or f"{len(frame):,} rows"]


def _of_part(result: Result, what: str) -> tuple[Result, str]:
    """Return the result that has a table, and its name; the recipe may be left out if one has it.

    Raises:
        UsageError: None has it, or several have.
    """
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
    if odd := [name for name in columns if name not in fields]:
        raise _no_column("--columns", odd[0], fields)
    return columns


def _sorted(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return the rows by a column, the largest first, or with `:up` the smallest; null last."""
    name, up = text.removesuffix(_UP), text.endswith(_UP)
    if name not in frame:
        raise _no_column("--sort", name, frame)
    return frame.sort_values(name, ascending=up, kind="stable", na_position="last")


def _no_column(option: str, name: str, columns: Iterable[Any]) -> UsageError:
    return UsageError(f"{option}: no column '{name}'; there are: {', '.join(map(str, columns))}.")


def _number(text: str) -> float:
    """Return a number; times since an epoch keep their last digits only as whole ones."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _holds(frame: pd.DataFrame, condition: str) -> Any:
    """Return which rows a condition chooses; null fulfils none but `= null`."""
    match = _WHERE.fullmatch(condition.strip())
    if match is None:
        raise UsageError(f"--where '{condition}': write COLUMN OP VALUE, like rank = 2.")
    name, sign, text = match.groups()
    column = frame.get(name)
    if column is None:
        raise _no_column("--where", name, frame)
    if text == _NULL and sign in ("=", "==", "!="):
        return (column.notna() if sign == "!=" else column.isna()).to_numpy()
    value: Any = text.strip("\"'")
    if sign == "~":
        pattern = parse_pattern(value)
        found = {cell for cell in column.dropna().unique() if pattern.matches(str(cell))}
        return column.isin(found).to_numpy()
    if pd.api.types.is_bool_dtype(column):
        value = text.lower() in ("true", "yes", "1")
    elif pd.api.types.is_numeric_dtype(column):
        try:
            value = _number(text)
        except ValueError as error:
            raise UsageError(f"--where: '{text}' is not a number, and {name} is.") from error
    compare = {
        "=": column.eq,
        "==": column.eq,
        "!=": column.ne,
        ">": column.gt,
        ">=": column.ge,
        "<": column.lt,
        "<=": column.le,
    }
    return compare[sign](value).fillna(False).astype(bool).to_numpy()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line a row, its columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
