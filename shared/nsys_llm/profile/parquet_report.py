"""Reads a parquet export of a report: a folder with one file per table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nsys_llm.core.errors import ReportError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.arrow_text import texts
from nsys_llm.profile.tables import Table, TableSource, table_source
from nsys_llm.taxonomy.secret_names import DEVICE_ENVIRONMENT, names_in

T = TypeVar("T")


#: Of each file of a folder by name: what differs once it is written to, or another takes its place.
_States = Mapping[str, tuple[int, int, int]]


class ParquetReport:
    """One `_pqtdir` folder. Use as a context manager.

    All files must stay as they are from here to the last read, also those that are read once:
    tables of two exports do not fit together.

    Raises:
        ReportError: The folder is missing, unreadable, or holds no table of Nsight Systems.
    """

    kind: Final = "parquet"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._states = _states(path)
            self._files = {Path(name).stem: path / name for name in self._states}
        except OSError as error:
            raise ReportError(f"{path.name}: cannot be read ({error.strerror}).") from error
        if not {"StringIds", "META_DATA_EXPORT"} & self._files.keys():
            raise ReportError(
                f"{path.name}: a folder, but not a parquet export of Nsight Systems (no "
                "StringIds.parquet); make one with: nsys export --type parquetdir REPORT.nsys-rep."
            )

    def __enter__(self) -> ParquetReport:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing stays open between reads; what was read must still be there.

        Raises:
            ReportError: The folder has changed, which also explains what else went wrong.
        """
        if error is not None and not isinstance(error, Exception):
            return  # interrupted
        try:
            same = _states(self.path) == self._states
        except OSError:
            same = False
        if not same:
            raise ReportError(
                f"{self.path.name}: changed while it was read; wait until its writer has finished, "
                "and run again."
            )

    def has(self, table: str) -> bool:
        """Return whether the export has one of our tables."""
        return table_source(table).nsys in self._files

    def columns(self, table: str) -> frozenset[str]:
        """Return the names, as exported, of the columns of one of our tables."""
        if not self.has(table):
            return frozenset()
        return frozenset(self._names(table))

    def read(self, table: str, columns: Sequence[str]) -> Table:
        """Read columns, all in our names, all present in the export.

        Raises:
            ReportError: The file is damaged or holds something else where integers belong.
        """
        source = table_source(table)
        names = list(dict.fromkeys(source.columns[column] for column in columns))
        self._require_once(table, names)
        # ParquetFile.read is twice as fast as pq.read_table for the 2,048-row groups of nsys.
        data = self._guarded(table, lambda: self._open(table).read(columns=names))
        return self._guarded(
            table,
            lambda: Table({col: _values(data.column(source.columns[col]), col) for col in columns}),
        )

    def texts(self, ids: npt.NDArray[np.int64]) -> Mapping[int, str]:
        """Return the strings behind these ids; ids without a string are left out."""
        if not self.has("strings") or not len(ids):
            return {}
        strings = self.read("strings", ("id", "text"))
        rows = np.flatnonzero(np.isin(strings["id"], ids))
        pairs = zip(strings["id"][rows].tolist(), strings["text"][rows], strict=True)
        return {key: value for key, value in pairs if value is not None}

    def key_values(self, table: str, keys: Iterable[str]) -> list[tuple[str, str]]:
        """Return the rows of a name and value table that have one of these names."""
        if not self.has(table):
            return []
        rows = self.read(table, ("key", "text"))
        wanted = set(keys)
        pairs = zip(rows["key"], rows["text"], strict=True)
        return [(key, value) for key, value in pairs if key in wanted and value is not None]

    def environment(self, names: Iterable[str]) -> dict[str, str]:
        """Return these variables of the profiled command; parquet of 2023.4 records none."""
        prefixes = tuple(f"{name}=" for name in names)
        rows = self.key_values("capture", ("PROCESS_0:ENVIRONMENT_VARIABLE",))
        pairs = (value.partition("=") for _, value in rows if value.startswith(prefixes))
        return {name: value.strip('"') for name, _, value in pairs}

    def variable_names(self) -> list[str]:
        """Return the names of the profiled command's variables that have a value."""
        rows = self.key_values("capture", ("PROCESS_0:ENVIRONMENT_VARIABLE",))
        pairs = (value.partition("=") for _, value in rows)
        names = [name for name, _, value in pairs if value.strip('"')]
        for _, text in self.key_values("system", (DEVICE_ENVIRONMENT,)):
            names += names_in(text)
        return names

    def _open(self, table: str) -> pq.ParquetFile:
        path = self._files[table_source(table).nsys]
        return self._guarded(table, lambda: pq.ParquetFile(path))

    def _require_once(self, table: str, names: Sequence[str]) -> None:
        there = Counter(self._names(table))
        if odd := [name for name in names if there[name] != 1]:
            kind = "has twice" if there[odd[0]] else "lacks"
            raise ReportError(
                f"{self._file(table)}: {kind} the column {odd[0]}; export the profile again."
            )

    def _names(self, table: str) -> list[str]:
        # A name in a damaged file may be no text.
        return self._guarded(table, lambda: list(self._open(table).schema_arrow.names))

    def _file(self, table: str) -> str:
        return f"{self.path.name}/{table_source(table).nsys}.parquet"

    def _guarded(self, table: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).replace(f"{self.path.parent}{os.sep}", "")
            reason = " ".join(reason.split())[:200]
            raise ReportError(
                f"{self._file(table)}: cannot be read ({reason}); export the profile again."
            ) from error


def _states(folder: Path) -> _States:
    """Return the state of each parquet file of a folder.

    Raises:
        OSError: It cannot be told.
    """
    with os.scandir(folder) as entries:
        reported = {
            entry.name: entry.stat() for entry in entries if entry.name.endswith(".parquet")
        }
    return {name: (one.st_ino, one.st_size, one.st_mtime_ns) for name, one in reported.items()}


def _values(column: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
    if TableSource.is_text(name):
        return texts(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL_INT, dtype=np.int64)
    flag = TableSource.is_flag(name) and pa.types.is_boolean(column.type)
    if not (flag or pa.types.is_integer(column.type)):
        raise pa.ArrowInvalid(f"column {name} holds {column.type} where integers belong")
    # Identifiers are unsigned here and signed in SQLite; wrapping makes the two equal.
    integers = pc.cast(column, pa.int64(), safe=False)
    if integers.null_count:
        integers = integers.fill_null(NULL_INT)
    values: npt.NDArray[np.int64] = integers.to_numpy()
    return values
