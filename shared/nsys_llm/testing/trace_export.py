"""Writes rows as a Nsight Systems export: a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nsys_llm.core.errors import OutputError
from nsys_llm.profile.trace_schema import Cell, ExportColumn, ExportSchema

Cells = Cell | Sequence[Cell] | NDArray[Any]

#: Types of a value that holds for all rows.
_SINGLE: Final = frozenset({int, str, float, type(None)})


@dataclass
class TableRows:
    """Rows of one table in the order they were added, kept in chunks of columns.

    Attributes:
        chunks: Row count and columns of each addition; a single value holds for all its rows.
    """

    chunks: list[tuple[int, Mapping[str, Cells]]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(count for count, _ in self.chunks)

    def add(self, count: int, values: Mapping[str, Cells]) -> None:
        """Append `count` rows; each value is one for all rows, or has a length of `count`."""
        if count:
            self.chunks.append((count, values))

    def column(self, column: ExportColumn) -> list[Cell]:
        """Return the cells of one column as Python values."""
        cells: list[Cell] = []
        missing, name = column.missing(), column.name
        for count, values in self.chunks:
            if name not in values and column.primary_key:
                cells.extend(range(len(cells), len(cells) + count))
                continue
            value = values.get(name, missing)
            if count == 1 and type(value) in _SINGLE:
                # Most chunks of tests are single events.
                cells.append(value)  # type: ignore[arg-type]
            else:
                cells.extend(_spread(value, count))
        return cells

    def last_end_ns(self) -> int:
        """Return the last end of an event; 0 where there is none."""
        ends = (values["end"] for _, values in self.chunks if "end" in values)
        return max((_largest(end) for end in ends), default=0)

    def rows(self, columns: Sequence[ExportColumn]) -> Iterator[tuple[Cell, ...]]:
        """Return the rows with their cells in the order of `columns`."""
        return zip(*(self.column(column) for column in columns), strict=True)


def _largest(values: Cells) -> int:
    if isinstance(values, np.ndarray):
        return int(values.max(initial=0))
    return max((int(value) for value in _spread(values, 1) if isinstance(value, int)), default=0)


def _spread(value: Cells, count: int) -> Sequence[Cell]:
    if isinstance(value, np.ndarray):
        cells: list[Cell] = value.tolist()
        return cells
    if value is None or isinstance(value, int | float | str):
        return [value] * count
    return value


def write_sqlite_tables(
    path: Path, schema: ExportSchema, tables: Mapping[str, TableRows], *, omit: frozenset[str]
) -> None:
    """Write a SQLite export.

    A NOT NULL is left out where a row breaks it, so that damaged exports can be made.

    Args:
        tables: Rows per table; a table without an entry is written empty.

    Raises:
        OutputError: The file is there already.
    """
    if path.exists():
        raise OutputError(f"{path} is there already; name a file that does not exist.")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # The file is thrown away when writing fails, so a journal protects nothing.
        database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN")
        for name, columns in schema.tables.items():
            if name not in omit:
                _write_sqlite_table(database, name, columns, tables.get(name, TableRows()))
        for name, rows in schema.enums.items():
            if name not in omit:
                shape = "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT"
                database.execute(f'CREATE TABLE "{name}" ({shape})')
                cells = ((code, *row) for code, row in enumerate(rows))
                database.executemany(f'INSERT INTO "{name}" VALUES (?,?,?)', cells)
        database.execute("COMMIT")


def _write_sqlite_table(
    database: sqlite3.Connection, name: str, columns: Sequence[ExportColumn], rows: TableRows
) -> None:
    cells = [rows.column(column) for column in columns]
    declared = []
    for column, values in zip(columns, cells, strict=True):
        not_null = "" if column.nullable or None in values else " NOT NULL"
        unique = column.primary_key and len(set(values)) == len(values)
        declared.append(f'"{column.name}" {column.sql_type}{not_null}{" PRIMARY KEY" * unique}')
    database.execute(f'CREATE TABLE "{name}" ({", ".join(declared)})')
    marks = ",".join("?" * len(columns))
    database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', zip(*cells, strict=True))
