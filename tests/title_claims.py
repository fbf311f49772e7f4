"""Each number that a finding says first is recomputed from the rows of what its title names.

Shares nothing with the code that makes findings but the functions that write numbers as texts.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import compress
from typing import Any

import pandas as pd

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report import run_texts
from nsys_llm.report.analysis import load_rules
from nsys_llm.view.text import (
    format_bytes,
    format_count,
    format_instant,
    format_ns,
    format_percent,
    format_value,
    quoted,
    shortened,
    spans,
)

_NUMBER = re.compile(r"(?<![\w.#-])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
#: Ranks, stages, layers, steps and devices that a sentence names by their numbers.
_NAMED = re.compile(
    r"\b(?:ranks?|stages?|GPU|device|steps?|layers?) "
    r"(\d+(?:[-/]\d+)?(?:(?:, ?| and | to )\d+(?:[-/]\d+)?)*)",
    re.I,
)
#: Columns that say whose a row is, where it is not one rank's.
_OF_RANKS = {"communicator", "ranks", "group", "stage", "pipeline", "peer_group"}
_OF_TWO_RUNS = {"wall_change", "slow_steps", "comparability"}
_REDUCED = {
    "cell": lambda values: values[0] if len(set(values)) == 1 else math.nan,
    "sum": sum,
    "max": max,
    "min": min,
    "mean": statistics.fmean,
    "median": statistics.median,
    "count": len,
    "distinct": lambda values: len(set(values)),
}


class Rows:
    """The rows of finished tables, a column at a time: each is made a list once, null as None."""

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        self._tables = tables
        self.column = cache(self._column)
        self.names = cache(self._names)

    def __contains__(self, table: str) -> bool:
        return table in self._tables

    def _names(self, table: str) -> list[str]:
        frame = self._tables[table]
        return [*filter(None, [frame.index.name]), *frame.columns]

    def _column(self, table: str, name: str) -> list[Any]:
        frame = self._tables[table]
        values = (frame.index if name == frame.index.name else frame[name]).tolist()
        return [None if _is_null(value) else value for value in values]

    def values(self, table: str, name: str, keep: Sequence[bool]) -> list[Any]:
        return [*compress(self.column(table, name), keep)]

    def files(self, table: str) -> str:
        """Return the name of the table with the profiles of a table's recipe."""
        own = f"{table.rpartition('/')[0]}/files"
        return own if own in self else "files"


def recomputed(cell: Mapping[str, Any], tables: Mapping[str, pd.DataFrame] | Rows) -> Any:
    """Return what evidence of report.json says, from the rows that it names; None for null."""
    rows = tables if isinstance(tables, Rows) else Rows(tables)
    table = cell["table"]
    keep = [True] * len(rows.column(table, rows.names(table)[0]))
    for key, wanted in cell["where"].items():
        some = _several(wanted)
        keep = [h and v in some for h, v in zip(keep, rows.column(table, key), strict=True)]
    values: list[Any] = []
    for sign, name in re.findall(r"([+-]?)(\w+|[^+-]+)", cell["column"]):
        column = rows.values(table, name, keep)
        signed = zip(values or [0.0] * len(column), column, strict=True)
        values = [_with(sign, *pair) for pair in signed] if sign else column
    values = [value for value in values if value is not None]
    how = cell.get("how", "cell")
    if not values and how not in ("sum", "count", "distinct"):
        return None
    result = _REDUCED[how](values)
    if over := cell.get("over"):
        whole = recomputed(over, rows)
        share = 100.0 if cell.get("name", "").endswith("_pct") else 1.0
        result = share * result / whole if whole else None
    return result


def _with(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    return left + right if sign == "+" else left - right


def _is_null(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)


def check_title(finding: Mapping[str, Any], tables: Mapping[str, pd.DataFrame] | Rows) -> None:
    """Fail unless what a finding says first has its numbers from rows of what its title names.

    Args:
        finding: As report.json has it.
        tables: Of the result; those of the recipes of an overview as `recipe/table`.
    """
    rows = tables if isinstance(tables, Rows) else Rows(tables)
    for cell in finding["evidence"]:
        # Those of recipes of an overview are checked there.
        if cell["table"] not in rows:
            continue
        value = recomputed(cell, rows)
        same = value == cell["value"] or (
            isinstance(value, (int, float))
            and cell["value"] is not None
            and math.isclose(value, cell["value"], rel_tol=1e-9)
        )
        assert same, (finding["rule"], cell, value)
    problems = list(false_numbers(finding, rows))
    assert problems == [], (finding["rule"], finding["title"], finding["details"], problems)


def false_numbers(
    finding: Mapping[str, Any], tables: Mapping[str, pd.DataFrame] | Rows
) -> Iterator[str]:
    """Yield the numbers of the title and the first sentence that nothing of the subjects gives.

    The subjects of a number are the ranks that the title names, the names in the title's first
    clause, and those in the number's own clause: `Host after `sync`: 605 us, 285 us in `data``.
    """
    rows = tables if isinstance(tables, Rows) else Rows(tables)
    title = finding["title"]
    ranks, subject = _ranks(title), _names(_clauses(title)[0])
    # What compares two runs has no number in a title; its sentences name whose each number is.
    is_change = {cell["table"] for cell in finding["evidence"]} & _OF_TWO_RUNS
    first = "" if is_change else _first_sentence(finding["details"])
    for text in (title, first):
        # A sentence may say that it is about all of them, or about the whole of one of them.
        of = set() if "all ranks" in text else ranks
        for clause in _clauses(text):
            names = set() if clause.startswith("its GPU") else subject | _names(clause)
            for number in _numbers(clause, finding["evidence"]):
                if number in _literals(finding["rule"]):
                    continue
                whose = [c for c in finding["evidence"] if number in set(forms(c["value"]))]
                if not any(_is_theirs(cell, of, names, rows) for cell in whose):
                    yield f"{number} in {text!r}"


def _clauses(text: str) -> list[str]:
    """Return the parts of a sentence between colons, semicolons and commas outside of names."""
    parts = [""]
    for code, part in spans(text):
        # A list of ranks is one thing, and a name stays as it is.
        listed = part if code else _NAMED.sub(lambda ranks: ranks[0].replace(", ", ","), part)
        pieces = [part] if code else re.split(r"[:;,] ", listed)
        parts[-1] += pieces[0] if not code else f"`{part.strip('`')}`"
        parts += [] if code else pieces[1:]
    return parts


def _names(text: str) -> set[str]:
    return {part.strip("`") for code, part in spans(text) if code}


def _numbers(clause: str, evidence: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the numbers of a clause that are no part of a name, nor the number of a rank or row."""
    plain = " ".join(part if not code else "_" for code, part in spans(clause))
    for cell in evidence:  # a row may be called `16-256 MiB`
        for value in _flat(cell["where"]):
            is_label = isinstance(value, str) and any(letter.isdigit() for letter in value)
            label = rf"(?<!\w){re.escape(value)}(?!\w)" if is_label else r"(?!)"
            plain = re.sub(label, "_", plain)
    yield from numbers_in(_NAMED.sub("_", plain))


def numbers_in(text: str) -> Iterator[str]:
    """Yield the numbers of a text, without signs."""
    yield from (match[0].rstrip(",").lstrip("+-") for match in _NUMBER.finditer(text))


@cache
def _literals(rule: str) -> frozenset[str]:
    """Return the numbers that a rule's own texts have, as limits do."""
    every = [run_texts.RULES, *(load_rules(recipe) for recipe in recipe_names())]
    texts = [
        text
        for rules in every
        if rule in rules
        for said in (rules[rule], *rules[rule].cases.values())
        for text in (said.title, said.details)
        if text
    ]
    plain = " ".join(re.sub(r"\{[^}]*\}", "_", text) for text in texts)
    return frozenset(_NUMBER.findall(plain))


def _first_sentence(details: str) -> str:
    """Return what stands before the first full stop outside of names."""
    said = ""
    for code, part in spans(details):
        end = None if code else re.search(r"\.(?=\s|$)", part)
        if end is not None:
            return said + part[: end.start()]
        said += f"`{part}`" if code else part
    return said


def _ranks(title: str) -> set[int]:
    plain = " ".join(part for code, part in spans(title) if not code)
    found: set[int] = set()
    for match in re.finditer(r"\branks? (\d+(?:-\d+)?(?:(?:, | and )\d+(?:-\d+)?)*)", plain, re.I):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", match[1]):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def _is_theirs(cell: Mapping[str, Any], ranks: set[int], names: set[str], rows: Rows) -> bool:
    where = cell["where"]
    # An overview calls a group by its ranks, and its recipe's tables are elsewhere.
    if "group" in where and cell["table"] not in rows:
        return True
    if not _is_of_ranks(where, ranks, cell["table"], rows):
        return False
    shown = {*_flat(where), cell["value"]} if names else set()
    shown |= _members(where, cell["table"], rows) if names else set()
    return all(any(_shows(name, value) for value in shown) for name in names)


def _members(where: Mapping[str, Any], table: str, rows: Rows) -> set[str]:
    """Return the ranks of a group that has a number; machine, file and group of a rank."""
    files = rows.files(table)
    labels, numbers = rows.column(files, "File"), rows.column(files, _rank(rows, files))
    ranks, named = _several(where.get("rank")), [*_flat(where)]
    own = [n in ranks or label in named for n, label in zip(numbers, labels, strict=True)]
    if table in rows and not {"rank", "file"} & set(rows.names(table)):
        # The job is the largest group.
        of_job = zip(own, rows.column(files, "group"), strict=True)
        own = [here or group == 0 for here, group in of_job]
    columns = {"host", "File", "group_name"} & set(rows.names(files))
    members = {name for column in columns for name in rows.values(files, column, own)}
    groups = f"{table.rpartition('/')[0]}/groups"
    groups = groups if groups in rows else "groups"
    if "group" in where and groups in rows:
        some = _several(where["group"])
        those = [group in some for group in rows.column(groups, "group")]
        its_ranks = rows.values(groups, "ranks", those)
        # Ranks without a collective in common with others are named like this.
        members |= {*its_ranks, *(f"ranks {its}" for its in its_ranks)}
    return members - {None}


def _is_of_ranks(where: Mapping[str, Any], ranks: set[int], table: str, rows: Rows) -> bool:
    if not ranks:
        return True
    for key in ("rank", "hot_rank"):
        if key in where:
            return set(_several(where[key])) <= ranks
    if where.keys() & _OF_RANKS:
        return True
    files = rows.files(table)
    of_ranks = [number in ranks for number in rows.column(files, _rank(rows, files))]
    labels = rows.values(files, "File", of_ranks)
    return any(value in labels for value in _flat(where))


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _rank(rows: Rows, files: str) -> str:
    """Return what the column with the ranks of profiles is called."""
    return "rank" if "rank" in rows.names(files) else "Rank"


def _flat(where: Mapping[str, Any]) -> Iterator[Any]:
    for value in where.values():
        yield from _several(value)


def _shows(name: str, value: Any) -> bool:
    shown = [value, shortened(value)] if isinstance(value, str) else []
    return name in {form for text in shown for form in (text, quoted(text).strip("`"))}


def forms(value: Any) -> Iterator[str]:
    """Yield the ways in which a sentence writes a number, or has those of a text."""
    if isinstance(value, str):
        yield from numbers_in(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    value = abs(value)
    texts = [format_ns(value), format_bytes(value), format_percent(value), format_count(value)]
    texts += [f"{value:.1f}", f"{value:.2f}", f"{value:.2g}", f"{value:.3g}", f"{value:g}"]
    texts += [format_value(value, "GB/s"), format_instant(value), f"{value:,}"]
    for text in texts:
        yield from numbers_in(text)
