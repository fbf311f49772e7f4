"""What is known of Nsight Systems by version: tables and columns of its exports, and its recipes.

From `data/export_schema.json` of `profile`; for synthetic profiles, whose rows are written here.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nsys_llm.core.errors import OutputError, UsageError
from nsys_llm.taxonomy.data_files import data_file

Cell = int | float | str | None

_COLUMN_SPEC: Final = re.compile(
    r"(?P<sql>INTEGER|REAL|TEXT)(?P<filled> NOT NULL)?(?P<key> PRIMARY KEY)? (?P<arrow>\w+)"
    r"(?: since (?P<since>[\d.]+))?(?: until (?P<until>[\d.]+))?"
)


@dataclass(frozen=True)
class ExportColumn:
    """One column of an exported table.

    Attributes:
        sql_type: INTEGER, REAL or TEXT.
        arrow_type: Type in a parquet export, as arrow prints it.
        nullable: Whether a real export may hold NULL there.
    """

    name: str
    sql_type: str
    arrow_type: str
    nullable: bool
    primary_key: bool

    def missing(self) -> Cell:
        """Return what a row holds that leaves this column out: NULL, or zero where NOT NULL."""
        if self.nullable:
            return None
        return "" if self.sql_type == "TEXT" else 0


@dataclass(frozen=True)
class ExportSchema:
    """The tables of one schema version.

    Attributes:
        product_version: Of the Nsight Systems that writes this schema.
        tested: What it is tested with: `nsys` (the release itself), `exports` (real ones),
            `generated` (ours).
        capture_prefix: What the names of capture options begin with.
        no_green_context: The greenContextId of work in no green context.
        buffer_flush: How the profiler's buffer flush is named.
        sync_codes: The syncType that real exports hold by API call, as far as it was seen.
        sqlite_only: Tables that parquet exports leave out.
        gpus: Properties (columns of TARGET_INFO_GPU) of some GPU models by name.
    """

    version: str
    product_version: str
    product_date: str
    known_from: str
    tested: tuple[str, ...]
    capture_prefix: str
    no_green_context: int | None
    buffer_flush: str
    sync_codes: Mapping[str, int]
    tables: Mapping[str, tuple[ExportColumn, ...]]
    enums: Mapping[str, Sequence[tuple[str, str]]]
    sqlite_only: frozenset[str]
    gpus: Mapping[str, Mapping[str, Cell]]

    @classmethod
    @cache
    def load(cls, version: str) -> ExportSchema:
        """Return the tables of a schema version.

        Raises:
            UsageError: It is none of those that can be written.
        """
        facts = data_file("export_schema", "profile")
        if version not in facts["versions"]:
            known = ", ".join(facts["versions"])
            raise UsageError(f"schema version {version} is not one that can be written: {known}.")
        version_facts = facts["versions"][version]
        present = {
            name: table
            for name, table in facts["tables"].items()
            if _numbers(table.get("since", "0")) <= _numbers(version)
        }
        return cls(
            version=version,
            product_version=version_facts["product"],
            product_date=version_facts["release"],
            known_from=version_facts["known_from"],
            tested=tuple(version_facts["tested"]),
            capture_prefix=version_facts["capture_prefix"],
            no_green_context=version_facts["no_green_context"],
            buffer_flush=version_facts["buffer_flush"],
            sync_codes=version_facts["sync_codes"],
            tables={name: _columns(table["columns"], version) for name, table in present.items()},
            enums={
                name: [(symbol, label) for symbol, label in rows]
                for name, rows in facts["enums"].items()
            },
            sqlite_only=frozenset(
                name for name, table in present.items() if not table.get("parquet", True)
            ),
            gpus=facts["gpus"],
        )


@dataclass(frozen=True)
class Framework:
    """A release of the framework under `nsys recipe`.

    Attributes:
        tested: `nsys` (the release itself) or `stand-in` (one of ours, after its documents).
        covers: The releases of Nsight Systems that it is tested for.
    """

    release: str
    tested: str
    covers: tuple[str, ...]


def schema_versions() -> tuple[str, ...]:
    """Return the schema versions that can be written, oldest first."""
    return tuple(data_file("export_schema", "profile")["versions"])


def frameworks() -> tuple[Framework, ...]:
    """Return the releases of the framework that are tested, oldest first."""
    return tuple(
        Framework(release, facts["tested"], tuple(facts["covers"]))
        for release, facts in data_file("export_schema", "profile")["frameworks"].items()
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _columns(specs: Mapping[str, str], version: str) -> tuple[ExportColumn, ...]:
    columns = []
    for name, spec in specs.items():
        parts = _COLUMN_SPEC.fullmatch(spec)
        if parts is None:
            raise ValueError(f"export_schema.json: '{spec}' does not describe column {name}.")
        first, last = parts["since"] or version, parts["until"] or version
        if _numbers(first) <= _numbers(version) <= _numbers(last):
            not_null, key = bool(parts["filled"]), bool(parts["key"])
            columns.append(ExportColumn(name, parts["sql"], parts["arrow"], not not_null, key))
    return tuple(columns)


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
