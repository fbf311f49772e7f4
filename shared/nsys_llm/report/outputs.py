"""Writes tables as their manifest declares them: checked, with units and meanings in the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.declared import Column, TableWrite
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.view.tables import ARROW_TYPES

#: The types themselves: pandas takes as long to find one by its name as to fill a short column.
_PANDAS_TYPES: Final = {
    "int64": pd.Int64Dtype(),
    "float64": pd.Float64Dtype(),
    "string": pd.StringDtype(),
    "bool": pd.BooleanDtype(),
}

#: What pandas may find in the values of a column, by declared type.
_KINDS: Final = {
    "int64": ("integer", "empty"),
    "float64": ("floating", "integer", "mixed-integer-float", "empty"),
    "string": ("string", "empty"),
    "bool": ("boolean", "empty"),
}

# A spreadsheet takes a cell that starts so for a formula, and runs it; some know the full-width
# signs too.
_FORMULA_STARTS: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


#: Arrays or lists of equal length by column name, or rows; None and NaN are null.
Cells = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def declared_rows(table: TableWrite, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of rows that have more than a table what it declares."""
    return [{column.name: row.get(column.name) for column in table.columns} for row in rows]


def declared_frames(manifest: Manifest, tables: Mapping[str, Cells]) -> dict[str, pd.DataFrame]:
    """Return tables as their manifest declares them, by name; see `declared_frame`."""
    return {name: declared_frame(manifest.table(name), cells) for name, cells in tables.items()}


def declared_frame(table: TableWrite, cells: Cells) -> pd.DataFrame:
    """Return a data frame with exactly the declared columns, in their order and types.

    Args:
        cells: What a row lacks is null. No column and no row at all: no rows.

    Raises:
        ManifestError: A column is missing, not declared, of another type or length, or null where
            it may not be.
    """
    declared = {column.name for column in table.columns}
    rows = () if isinstance(cells, Mapping) else cells
    columns = cells if isinstance(cells, Mapping) else {}
    names = declared.union(*rows)
    columns = columns or {name: [row.get(name) for row in rows] for name in names}
    if len(set(map(len, columns.values()))) > 1:
        raise ManifestError(f"{table.file}: columns of different lengths.")
    if columns.keys() != declared:
        odd = sorted(columns.keys() ^ declared)
        raise ManifestError(f"{table.file}: columns and manifest differ in {', '.join(odd)}.")
    if not any(map(len, columns.values())):
        return _without_rows(table).copy()
    return _frame(table, columns)


@cache
def _without_rows(table: TableWrite) -> pd.DataFrame:
    # Half of a small run's tables: their types take as long as its numbers.
    return _frame(table, {column.name: [] for column in table.columns})


def _frame(table: TableWrite, columns: Mapping[str, Any]) -> pd.DataFrame:
    typed = {column.name: _typed(table, column, columns[column.name]) for column in table.columns}
    frame = pd.DataFrame(typed, index=pd.RangeIndex(len(next(iter(columns.values())))))
    return frame if table.index is None else frame.set_index(table.index)


def write_tables(
    folder: Path, manifest: Manifest, tables: Mapping[str, pd.DataFrame], *, csv: bool
) -> dict[str, pa.Table]:
    """Write the tables of a manifest that have rows as parquet, and as CSV if asked.

    Returns:
        All tables as the files have them, those without rows too.

    Raises:
        ManifestError: The tables are not those that the manifest declares.
    """
    declared = {table.file: table for table in manifest.writes}
    if tables.keys() != declared.keys():
        odd = sorted(tables.keys() ^ declared.keys())
        raise ManifestError(f"{manifest.name}: tables and manifest differ in {', '.join(odd)}.")
    written = {name: arrow_table(table, tables[name]) for name, table in declared.items()}
    for name, table in declared.items():
        if tables[name].empty:
            continue
        pq.write_table(written[name], folder / f"{name}.parquet")
        if csv:
            # Lines end as RFC 4180 says; cells with a lone carriage return are quoted only then.
            for_spreadsheets(tables[name]).to_csv(
                folder / f"{name}.csv", index=table.index is not None, lineterminator="\r\n"
            )
    return written


def _typed(table: TableWrite, column: Column, values: Any) -> Any:
    """Return a column's values as a pandas array of the declared type."""
    where = f"{table.file}.{column.name}"
    if _is_wrapped(values):
        values = values.to_numpy()
    # An array without values has whatever type numpy gave it.
    kind = pd.api.types.infer_dtype(values, skipna=True) if len(values) else "empty"
    if kind not in _KINDS[column.dtype]:
        raise ManifestError(f"{where}: not {column.dtype}, as the manifest says, but {kind}.")
    try:
        typed = pd.array(values, dtype=_PANDAS_TYPES[column.dtype])
    except (TypeError, ValueError, OverflowError) as error:
        raise ManifestError(f"{where}: not {column.dtype} ({error}).") from error
    if column.dtype == "float64":
        # NaN says the same as null, and only one of the two survives parquet unchanged.
        typed[np.isnan(typed.to_numpy(dtype=np.float64, na_value=np.nan))] = pd.NA
    if column.nullable:
        return typed
    if typed.isna().any():
        raise ManifestError(f"{where}: null, and the manifest says that it never is.")
    return typed if column.dtype == "string" else typed.to_numpy(dtype=column.dtype)


def _is_wrapped(values: Any) -> bool:
    """Return whether it is the wrapper of a numpy array that pandas 2 gives, and cannot type."""
    wrapper = isinstance(values, pd.api.extensions.ExtensionArray)
    return wrapper and isinstance(pd.Series(values).dtype, np.dtype)


def arrow_table(table: TableWrite, frame: pd.DataFrame) -> pa.Table:
    """Return the frame as Arrow, with unit and meaning in each field, and pandas' own record."""
    data = pa.Table.from_pandas(frame, preserve_index=table.index is not None)
    declared = {column.name: column for column in table.columns}
    fields = [arrow_field(declared[name]) for name in data.column_names]
    return data.cast(pa.schema(fields, metadata=data.schema.metadata))


def arrow_field(column: Column) -> pa.Field:
    """Return a column as its file has it."""
    return pa.field(
        column.name,
        ARROW_TYPES[column.dtype],
        nullable=column.nullable,
        metadata={"unit": column.unit or "", "meaning": column.meaning},
    )


def for_spreadsheets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts no spreadsheet takes for a formula."""
    safe = frame.reset_index() if frame.index.name else frame.copy()
    for name in safe.columns:
        if pd.api.types.is_string_dtype(safe[name].dtype):
            risky = safe[name].str.startswith(_FORMULA_STARTS).fillna(False).astype(bool)
            safe[name] = safe[name].mask(risky, "'" + safe[name])
    return safe.set_index(frame.index.name) if frame.index.name else safe
