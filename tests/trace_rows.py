"""What synthetic reports of tests have besides: rows as they are, tables left out, parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from nsys_llm.core.errors import OutputError
from nsys_llm.testing.trace_bulk import BulkTraceBuilder
from nsys_llm.testing.trace_schema import Cell, Cells, ExportSchema, TableRows

if TYPE_CHECKING:
    from typing_extensions import Self

#: Rows per group of the parquet files that Nsight Systems 2023.4 writes.
_GROUP_ROWS: Final = 2048

#: Columns that hold ids of StringIds.
_STRING_COLUMNS: Final = frozenset(
    {"demangledName", "shortName", "mangledName", "nameId", "textId", "symbol", "module"}
)


class RowTraceBuilder(BulkTraceBuilder):
    """A report with single rows, whose tables may be left out."""

    def process_environment(self, **variables: str) -> Self:
        """Keep another process's environment as a string that nothing refers to."""
        self._string_id("\0".join(f"{name}={value}" for name, value in variables.items()) + "\0")
        return self

    def capture_option(self, name: str, value: str) -> Self:
        self._options[name] = value
        return self

    def mpi_rank(self, tid: int, rank: int, *, pid: int | None = None) -> Self:
        return self._add("MPI_RANKS", 1, {"globalTid": self._thread(pid, tid), "rank": rank})

    def raw(self, table: str, /, **columns: Cell) -> Self:
        """Add one row as it is, broken ones too.

        Args:
            columns: Values by nsys column name; a str for a column of string ids is interned.
                Process, thread, device, context and stream default to the usual ones, others to
                NULL, or 0 where a real export has no NULL.

        Raises:
            ValueError: This schema version has no such table or column.
        """
        shape = {column.name for column in self._schema.tables.get(table, ())}
        if not columns.keys() <= shape:
            unknown = ", ".join(sorted(columns.keys() - shape))
            raise ValueError(f"schema {self._schema.version} has no {table}.{unknown}.")
        row: dict[str, Cells] = {}
        if shape & {"globalPid", "globalTid"}:
            row = {"globalTid": self._thread(), **self._place()}
        for name, value in columns.items():
            interned = name in _STRING_COLUMNS and isinstance(value, str)
            row[name] = self._string_id(str(value)) if interned else value
        self._add(table, 1, row)
        return self

    def has_table(self, name: str) -> bool:
        return name in self._tables

    def drop_table(self, name: str) -> Self:
        if name not in self._schema.tables and name not in self._schema.enums:
            raise ValueError(f"schema {self._schema.version} has no table {name}.")
        self._dropped.add(name)
        return self

    def write_parquet(self, folder: Path) -> Path:
        """Write the report as a folder of parquet files; raises OutputError where it exists."""
        tables = self._complete_tables()
        write_parquet_tables(folder, self._schema, tables, omit=frozenset(self._dropped))
        return folder

    def _rows_n(self, table: str) -> int:
        return sum(count for count, _ in self._tables[table].chunks)

    def _correlation_id(self, wanted: int | None, pid: int | None) -> int:
        return int(self._correlation_ids(None if wanted is None else [wanted], 1, pid)[0])


def write_parquet_tables(
    folder: Path, schema: ExportSchema, tables: Mapping[str, TableRows], *, omit: frozenset[str]
) -> None:
    """Write a parquet export, one uncompressed file per table, as Nsight Systems 2023.4 does.

    Args:
        folder: The folder to make; by custom its name ends in `_pqtdir`.

    Raises:
        OutputError: The folder is there already.
    """
    if folder.exists():
        raise OutputError(f"{folder} is there already; name a folder that does not exist.")
    folder.mkdir(parents=True)
    for name, columns in schema.tables.items():
        if name not in omit and name not in schema.sqlite_only:
            cells = [tables.get(name, TableRows()).column(column) for column in columns]
            fields = [
                pa.field(column.name, column.arrow_type, column.nullable or None in values)
                for column, values in zip(columns, cells, strict=True)
            ]
            _write_parquet(folder / f"{name}.parquet", pa.schema(fields), cells)
    kinds = pa.schema([pa.field("id", "int64", False), ("name", "string"), ("label", "string")])
    for name, rows in schema.enums.items():
        if name not in omit:
            labels: list[list[Cell]] = [
                list(range(len(rows))),
                [row[0] for row in rows],
                [row[1] for row in rows],
            ]
            _write_parquet(folder / f"{name}.parquet", kinds, labels)


def _write_parquet(path: Path, arrow_schema: pa.Schema, cells: Sequence[Sequence[Cell]]) -> None:
    columns = [
        pa.array(_as_flags(values) if kind.type == pa.bool_() else values, kind.type)
        for values, kind in zip(cells, arrow_schema, strict=True)
    ]
    pq.write_table(
        pa.Table.from_arrays(columns, schema=arrow_schema),
        path,
        row_group_size=_GROUP_ROWS,
        compression="none",
        version="1.0",
        store_schema=False,
    )


def _as_flags(values: Sequence[Cell]) -> list[bool | None]:
    return [None if value is None else bool(value) for value in values]
