"""Reads results back, whoever wrote them: what is not as this version writes it is damaged.

Names in a result are compared with those of the manifests before anything is opened by them, and
what a file says of its size before it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nsys_llm import __version__
from nsys_llm.core.errors import OutputError
from nsys_llm.core.rooted import open_below
from nsys_llm.manifest.declared import TableWrite
from nsys_llm.manifest.manifest import load_manifest, report_schema
from nsys_llm.report.outputs import arrow_field
from nsys_llm.report.run_record import FORMAT, REPORT_NAME
from nsys_llm.view.results import Results, no_table
from nsys_llm.view.tables import ARROW_TYPES

#: Of report.json; runs over 2,000 ranks write some MB.
_MOST_JSON_BYTES: Final = 64 << 20
#: Of a table in memory.
_MOST_BYTES: Final = 1 << 30
_ROWS_AT_A_TIME: Final = 1_024
_MOST_NUMBER: Final = 1 << 63
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    **{"array": (list,), "boolean": (bool,), "integer": (int,), "null": (type(None),)},
    **{"number": (int, float), "object": (dict,), "string": (str,)},
}
#: What is wrong with a file; Arrow's errors are among the last four.
_DAMAGE: Final = (OSError, RecursionError, ValueError, KeyError, TypeError, pa.ArrowException)


def _record(folder: Path, root: Path) -> dict[str, Any]:
    try:
        with open_below(root, (folder / REPORT_NAME).relative_to(root)) as file:
            text = file.read(_MOST_JSON_BYTES)  # of a longer one no JSON
        record: dict[str, Any] = json.loads(text)
        if isinstance(record["format"], int) and record["format"] > FORMAT:
            raise OutputError(
                f"{folder}: written by a later version of nsys-llm-recipes "
                f"({str(record.get('version'))[:20]}); this is {__version__}."
            )
        _require_shape(record, report_schema())
        known = {table.file for table in load_manifest(record["recipe"]).writes}
        if not record["tables"].keys() <= known:
            raise ValueError("tables that the recipe does not write")
    except _DAMAGE as error:
        raise OutputError(
            f"{folder}: no result of a recipe ({REPORT_NAME} is missing or damaged); give the "
            "output folder of a run."
        ) from error
    return record


def _require_shape(value: Any, schema: Mapping[str, Any]) -> None:
    """Raise a ValueError where a JSON schema is not met; later versions may have further keys."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    allowed = [schema["const"]] if "const" in schema else schema.get("enum", [value])
    fits = (
        isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
    )
    if (kinds and not any(fits)) or value not in allowed:
        raise ValueError(schema.get("description", "of another type"))
    if isinstance(value, (int, float)) and not (
        abs(value) < _MOST_NUMBER and schema.get("minimum", value) <= value
    ):
        raise ValueError("a number out of range")
    if isinstance(value, list):
        for item in value:
            _require_shape(item, schema.get("items", {}))
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
        if not value.keys() >= set(schema.get("required", ())):
            raise ValueError("a field is missing")
        for key, item in value.items():
            _require_shape(item, known.get(key, others))


class StoredResults(Results):
    """A result folder, its tables as their manifest declares them, without other columns.

    Args:
        folder: The result, in `root` or itself that.
        root: Nothing outside of it is opened.

    Raises:
        OutputError: There is none, it is damaged, or a later version wrote it.
        UsageError: It is of no recipe of this version.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._root, self._read = root, dict[str, pa.Table]()
        super().__init__(folder, self._read)
        self._report = _record(folder, root)

    def record(self) -> dict[str, Any]:
        """Return report.json."""
        return self._report

    def _arrow(self, name: str) -> pa.Table:
        """Return a table, see `Results`; an OutputError where report.json says another."""
        tables = self._report["tables"]
        if name not in tables:
            raise no_table(name, tables)
        rows_n = tables[name]["rows"]
        declared = load_manifest(self._report["recipe"]).table(name)
        if not rows_n:  # there is no file
            return pa.schema(map(arrow_field, declared.columns)).empty_table()
        if name not in self._read:
            place = self._file(name)
            try:
                with open_below(self._root, place.relative_to(self._root)) as file:
                    self._read[name] = _checked(file, declared, rows_n)
            except _DAMAGE as error:
                raise OutputError(f"{place}: missing or damaged; run the recipe again.") from error
        return self._read[name]


def _checked(file: BinaryIO, declared: TableWrite, rows_n: int) -> pa.Table:
    """Return the declared columns of a table; those that it lacks and may be null are null."""
    footer = pq.ParquetFile(file)
    columns = {column.name: column for column in declared.columns}
    there = {item.name: item.type for item in footer.schema_arrow if item.name in columns}
    typed = all(kind == ARROW_TYPES[columns[name].dtype] for name, kind in there.items())
    if footer.metadata.num_rows != rows_n or not typed:
        raise ValueError("other rows or columns than declared")
    parts, room_bytes = [], _MOST_BYTES
    # Of few bytes a file can make more than memory holds: it is unpacked bit by bit.
    for part in footer.iter_batches(_ROWS_AT_A_TIME, columns=[*there], use_threads=False):
        parts.append(part)
        if (room_bytes := room_bytes - part.nbytes) < 0:
            raise ValueError("larger than any")
    table = pa.Table.from_batches(parts)
    for name in columns.keys() - there.keys():
        table = table.append_column(name, pa.nulls(rows_n, ARROW_TYPES[columns[name].dtype]))
    table = table.cast(pa.schema([arrow_field(columns[name]) for name in table.column_names]))
    table.validate(full=True)
    for name, column in columns.items():
        if not column.nullable and table[name].null_count:
            raise ValueError(f"{name}: null")
        if column.dtype == "float64" and pc.all(pc.is_finite(table[name])).as_py() is False:
            raise ValueError(f"{name}: not finite")
    return table
