"""What is said of groups of ranks that have nothing in common; made of the table `files`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import pandas as pd

from nsys_llm.report.findings import CAPTURE, Finding
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import quoted

_BY_ORDER: Final = "index"


def group_of_ranks(tables: Tables) -> dict[int, int]:
    """Return the group of each rank with GPU work; nothing where runs are compared."""
    return {int(row["Rank"]): int(row["group"]) for row in _working(tables)}


def group_names(tables: Tables) -> dict[int, str]:
    """Return what each group is called, in order; nothing where all ranks are one."""
    names = {row["group"]: row["group_name"] for row in _working(tables)}
    return {group: name for group, name in sorted(names.items()) if name is not None}


def of_largest(tables: Tables, table: str) -> pd.DataFrame:
    """Return the rows of a table, by `file`, that are of ranks of the largest group."""
    others = [row["File"] for row in _working(tables) if row["group"]]
    return tables[table][~tables[table]["file"].isin(others)]


def with_whose(findings: Iterable[Finding], tables: Tables) -> list[Finding]:
    """Return findings whose titles name the group, or the file of a rank that only files tell.

    Ranks that are numbered by the order of their files are known to nobody by that number.
    """
    files = {int(row["Rank"]): row for row in _working(tables)}
    names = group_names(tables)
    return [_named(finding, files, names) for finding in findings]


def in_group(name: str, title: str) -> str:
    """Return a title behind the name of its group; a first word with more capitals is a name."""
    is_word = title.split(maxsplit=1)[0][1:].islower()
    return f"{quoted(name)}: {title[0].lower() if is_word else title[0]}{title[1:]}"


def _named(finding: Finding, files: Mapping[int, Record], names: Mapping[int, str]) -> Finding:
    ranks = finding.ranks or (() if finding.rank is None else (finding.rank,))
    if finding.kind == CAPTURE or not ranks:
        return finding
    title, rows = finding.title, [files[rank] for rank in ranks if rank in files]
    groups = {row["group"] for row in rows}
    if len(groups) == 1 and (name := names.get(groups.pop())):
        title = in_group(name, title)
    if len(rows) == 1 and rows[0]["rank_source"] == _BY_ORDER and "/" in rows[0]["File"]:
        said = f"ank {ranks[0]}" in title
        title = f"{title} ({quoted(rows[0]['File'])})" if said else title
    return replace(finding, title=title)


def _working(tables: Tables) -> list[Record]:
    """Return the rows of ranks with GPU work; none where runs are compared."""
    files = tables["files"]
    if "run" in files.columns:
        return []
    return records(files[files["group"].notna()].reset_index())
