"""Reads from an open profile exactly what a recipe's manifest declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.declared import TableRead
from nsys_llm.numeric.grouping import distinct, is_constant
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import Table, TableSource, Trace, table_source
from nsys_llm.taxonomy.names import MOST_RANGE_LETTERS, bounded_name, bounded_range

#: Columns that hold ids of strings.
STRING_IDS: Final = (
    "demangled_name_id",
    "short_name_id",
    "mangled_name_id",
    "name_id",
    "text_id",
    "symbol_id",
    "module_id",
)


def needed_tables(reads: Sequence[TableRead], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return our names of the tables that a recipe reads under these options."""
    return tuple(read.table for read in reads if read.projection(options))


def read_trace(
    profile: ParquetProfile | SqliteProfile, reads: Sequence[TableRead], options: Mapping[str, Any]
) -> Trace:
    """Read the declared tables and columns, and the strings that they refer to.

    A table that the profile lacks is there without rows and named in `absent`; a column that only
    some schema versions have is NULL throughout where it is missing.

    Raises:
        ProfileError: A needed column is missing, or the profile is damaged.
    """
    tables: dict[str, Table] = {}
    absent: set[str] = set()
    for read in reads:
        if not (columns := read.projection(options)):
            continue
        if read.only_if and not read.is_asked(options) and not _has_any(tables, read.only_if):
            continue
        filled = (name for name, table in tables.items() if len(table))
        columns += tuple(column for name in filled for column in read.references.get(name, ()))
        tables[read.table] = read_table(profile, read.table, columns)
        if not profile.has(read.table):
            absent.add(read.table)
    cut_n = 0
    for name in tables:
        tables[name], long_n = _cut(tables[name])
        cut_n += long_n
    strings = dict(profile.texts(_referenced(tables, STRING_IDS)))
    ranges = set(_referenced(tables, ("text_id",)).tolist())
    for key, text in strings.items():
        if len(text) > MOST_RANGE_LETTERS:
            strings[key] = bounded_range(text) if key in ranges else bounded_name(text)
            cut_n += strings[key] != text
    return Trace(tables, frozenset(absent), strings, cut_n)


def _has_any(tables: Mapping[str, Table], names: Sequence[str]) -> bool:
    """Return whether any of some tables has rows, or of some columns of tables a value."""
    for name in names:
        table, _, column = name.partition(".")
        rows = tables.get(table, Table({}))
        if len(rows) and (not column or ((rows[column] != NULL_INT) & (rows[column] != 0)).any()):
            return True
    return False


def _cut(table: Table) -> tuple[Table, int]:
    """Cut texts that stand in the rows themselves; return how many distinct ones were too long."""
    if "text" not in table or (is_constant(table["text"]) and not table["text"][0]):
        return table, 0
    texts = table["text"]
    given = np.flatnonzero(texts.astype(bool))
    lengths = np.fromiter(map(len, texts[given]), np.int64, given.size)
    long = given[lengths > MOST_RANGE_LETTERS]
    short = {text: bounded_range(text) for text in set(texts[long])}
    if not short:
        return table, 0
    texts = texts.copy()
    texts[long] = [short[text] for text in texts[long]]
    return table.plus(text=texts), sum(text != cut for text, cut in short.items())


def read_table(
    profile: ParquetProfile | SqliteProfile, table: str, columns: Sequence[str]
) -> Table:
    """Read columns of one table; optional ones that the profile lacks are NULL.

    A table that it lacks, or with none of the columns, has no rows to tell of.

    Raises:
        ProfileError: A needed column is missing, or the profile is damaged.
    """
    source, there = table_source(table), profile.columns(table)
    present = [column for column in columns if source.columns[column] in there]
    missing = [column for column in columns if source.columns[column] not in there]
    needed = [source.columns[column] for column in missing if column not in source.optional]
    if needed and profile.has(table):
        raise ProfileError(
            f"{profile.path.name}: table {source.nsys} lacks the column {', '.join(needed)}; "
            "export the profile with the Nsight Systems that made it."
        )
    if not present:
        return Table.empty(columns)
    rows = profile.read(table, present)
    return rows.plus(**{column: _nulls(column, len(rows)) for column in missing})


def _nulls(column: str, rows_n: int) -> npt.NDArray[Any]:
    """Return a column of NULL, which takes no memory."""
    null = np.array(None, dtype=object) if TableSource.is_text(column) else np.int64(NULL_INT)
    return np.broadcast_to(null, (rows_n,))


def _referenced(tables: Mapping[str, Table], columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the distinct string ids in those columns of all tables that hold any."""
    ids = [
        distinct(table[column])
        for table in tables.values()
        for column in columns
        if column in table
    ]
    used = np.unique(np.concatenate(ids)) if ids else np.empty(0, dtype=np.int64)
    return used[used != NULL_INT]
