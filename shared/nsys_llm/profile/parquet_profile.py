"""Reads a parquet export of a profile: a folder with one file per table."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.core.rooted import EVERYWHERE, Roots
from nsys_llm.profile.arrow_text import hex_texts, texts
from nsys_llm.profile.column_rows import ColumnRows, TooManyRows, constant_as_view
from nsys_llm.profile.file_state import FileState, Fingerprint, fingerprint
from nsys_llm.profile.tables import FLAG_COLUMNS, MOST_BYTES, Table, TableSource, table_source
from nsys_llm.taxonomy.secret_names import process_environment

T = TypeVar("T")

#: nsys writes groups of 2,048 rows; with so many at a time all of a part stays in the cache.
_ROWS_AT_A_TIME: Final = 1 << 16


class ParquetProfile:
    """One `_pqtdir` folder. Use as a context manager.

    All files must stay as they are from here to the last read, also those that are read once:
    tables of two exports do not fit together.

    Raises:
        ProfileError: The folder is missing, unreadable, or holds no table of Nsight Systems.
    """

    kind: Final = "parquet"

    def __init__(self, path: Path, roots: Roots = EVERYWHERE) -> None:
        self.path, self._roots = path, roots
        #: Whether this run exported it, and it stays.
        self.stays_made = False
        try:
            self._states = _states(path)
            self._files = {file.stem: file for file in self._states}
        except OSError as error:
            raise ProfileError(f"{path.name}: cannot be read ({error.strerror}).") from error
        if not {"StringIds", "META_DATA_EXPORT"} & self._files.keys():
            raise ProfileError(
                f"{path.name}: a folder, but not a parquet export of Nsight Systems (no "
                "StringIds.parquet); make one with: nsys export --type parquetdir REPORT.nsys-rep."
            )

    def __enter__(self) -> ParquetProfile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Nothing stays open between reads; what was read must still be there.

        Raises:
            ProfileError: The folder has changed, which also explains what else went wrong.
        """
        if error is not None and not isinstance(error, Exception):
            return  # interrupted
        try:
            same = _states(self.path) == self._states
        except OSError:
            same = False
        if not same:
            raise ProfileError(
                f"{self.path.name}: changed while it was read; wait until its writer has finished, "
                "and run again."
            )

    @property
    def fingerprint(self) -> Fingerprint:
        """What tells it from any other export, as it was when it was opened."""
        return fingerprint(self._states)

    @property
    def names(self) -> frozenset[str]:
        """The names of the export's tables."""
        return frozenset(self._files)

    def has(self, table: str) -> bool:
        """Return whether the export has one of our tables."""
        return table_source(table).nsys in self._files

    def columns(self, table: str) -> frozenset[str]:
        """Return the names, as exported, of the columns of one of our tables."""
        if not self.has(table):
            return frozenset()
        # A name in a damaged file may be no text.
        return self._guarded(table, lambda: frozenset(self._open(table).schema_arrow.names))

    def read(self, table: str, columns: Sequence[str]) -> Table:
        """Read columns, all in our names, all present in the export.

        Raises:
            ProfileError: The file is damaged or holds something else where integers belong.
        """
        source = table_source(table)
        names = list(dict.fromkeys(source.columns[column] for column in columns))
        return self._guarded(table, lambda: _read(self._open(table), source, columns, names))

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

    def process_environments(self) -> list[list[str]]:
        """Return the names of the variables of each process whose environment is a string."""
        if not self.has("strings"):
            return []
        strings = self.read("strings", ("text",))["text"]
        environments = (process_environment(text) for text in strings if text and "\0" in text)
        return [names for names in environments if names]

    def _open(self, table: str) -> pq.ParquetFile:
        def opened() -> pq.ParquetFile:
            with self._roots.opened(self._files[table_source(table).nsys]) as place:
                return pq.ParquetFile(place)

        return self._guarded(table, opened)

    def _guarded(self, table: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except (pa.ArrowException, OSError, TooManyRows, UnicodeDecodeError, KeyError) as error:
            reason = str(error).replace(f"{self.path.parent}{os.sep}", "")
            reason = " ".join(reason.split())[:200]
            file = f"{self.path.name}/{table_source(table).nsys}.parquet"
            raise ProfileError(
                f"{file}: cannot be read ({reason}); export the profile again."
            ) from error


def _states(folder: Path) -> dict[Path, FileState]:
    """Return the state of each parquet file of a folder.

    Raises:
        OSError: It cannot be told.
        ProfileError: One of them is no file; a pipe would never end.
    """
    with os.scandir(folder) as entries:
        reported = {
            entry.name: entry.stat() for entry in entries if entry.name.endswith(".parquet")
        }
    if odd := [name for name, state in reported.items() if not stat.S_ISREG(state.st_mode)]:
        raise ProfileError(f"{folder.name}/{min(odd)}: not a file; export the profile again.")
    return {folder / name: FileState.of(state) for name, state in reported.items()}


def _read(
    file: pq.ParquetFile, source: TableSource, columns: Sequence[str], names: Sequence[str]
) -> Table:
    """Read some row groups at a time: Arrow never holds more of the table than those."""
    integers, rows_n = {}, _rows_n(file.metadata)
    for column in columns:
        if not TableSource.is_text(column):
            kind = file.schema_arrow.field(source.columns[column]).type
            flag = column in FLAG_COLUMNS and pa.types.is_boolean(kind)
            if not (flag or pa.types.is_integer(kind) or pa.types.is_null(kind)):
                raise pa.ArrowInvalid(f"column {column} holds {kind} where integers belong")
            integers[column] = ColumnRows(rows_n)
    words: dict[str, list[npt.NDArray[Any]]] = {
        column: [] for column in columns if column not in integers
    }
    for groups in _some_groups(file.metadata):
        data = file.read_row_groups(groups, columns=names)
        for column, rows in integers.items():
            for chunk in data.column(source.columns[column]).chunks:
                rows.add(_integers(chunk))
        for column, parts in words.items():
            some = data.column(source.columns[column])
            is_bytes = TableSource.is_bytes(column)
            parts.append(hex_texts(some, MOST_BYTES) if is_bytes else texts(some))
    no_words = np.empty(0, dtype=object)
    return Table.stored(
        {
            column: integers[column].rows()
            if column in integers
            else np.concatenate([no_words, *words[column]])
            for column in columns
        }
    )


def _rows_n(metadata: pq.FileMetaData) -> int:
    """Return how many rows a file has.

    Raises:
        pa.ArrowInvalid: Its row groups have others than it says.
    """
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    rows_n = sum(group.num_rows for group in groups)
    if not 0 <= rows_n == metadata.num_rows:
        raise pa.ArrowInvalid(
            f"its row groups have {rows_n:,} rows, the file has {metadata.num_rows:,}"
        )
    return rows_n


def _some_groups(metadata: pq.FileMetaData) -> Iterator[range]:
    """Yield neighboring row groups with some ten thousand rows together; all of them in the end."""
    first, rows_n = 0, 0
    for group in range(metadata.num_row_groups):
        rows_n += metadata.row_group(group).num_rows
        if rows_n >= _ROWS_AT_A_TIME or group == metadata.num_row_groups - 1:
            yield range(first, group + 1)
            first, rows_n = group + 1, 0


def _integers(chunk: pa.Array) -> npt.NDArray[np.int64]:
    """Return the values of a part of a column; of one value throughout, a view of that one."""
    if chunk.null_count == len(chunk):
        return np.broadcast_to(np.int64(NULL_INT), (len(chunk),))
    # Identifiers are unsigned here and signed in SQLite; wrapping makes the two equal.
    integers = pc.cast(chunk, pa.int64(), safe=False)
    if integers.null_count:
        integers = integers.fill_null(NULL_INT)
    return constant_as_view(integers.to_numpy())
