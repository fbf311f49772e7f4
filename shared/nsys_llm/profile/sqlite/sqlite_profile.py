"""Reads an SQLite export of a profile, read-only and without ever creating anything.

Integers of large tables are read from the file's pages (see `nsys_llm.profile.sqlite.pages`), and
all other columns through ADBC's low-level module, which is 5 times faster than `pandas.read_sql`
and releases the GIL; the few rows of metadata go through the standard library.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import adbc_driver_manager
import adbc_driver_sqlite
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.core.rooted import EVERYWHERE, Roots
from nsys_llm.profile.arrow_text import texts
from nsys_llm.profile.file_state import Fingerprint, fingerprint
from nsys_llm.profile.sqlite.files import (
    RowSpan,
    all_rows,
    check_file,
    explained,
    file_state,
    plain_places,
    quoted_name,
    read_only_uri,
    row_id_name,
    row_span,
    sample_agrees,
    table_fields,
)
from nsys_llm.profile.sqlite.pages import UnexpectedCell, decoder, read_integers
from nsys_llm.profile.tables import MOST_BYTES, Table, TableSource, table_source
from nsys_llm.taxonomy.secret_names import process_environment

T = TypeVar("T")

_BATCH_ROWS: Final = "65536"
_BUSY_SECONDS: Final = 2.0
#: From this many rows on, the pages are read without the driver.
_LARGE_ROWS: Final = 1_000
#: A pointer of 2 bytes, a length, a row id, and the header of a record.
_LEAST_ROW_BYTES: Final = 5
#: One connection may take 100 instructions of SQLite's machine for each byte of its file; reading
#: all of a table takes less than 10.
_INSTRUCTIONS_PER_STEP: Final = 1_000_000
_BYTES_PER_STEP: Final = 10_000
_LEAST_STEPS: Final = 100
#: Names in a damaged schema, and SQLite's own words about them, may be no text.
_ERRORS: Final = (
    sqlite3.Error,
    adbc_driver_manager.Error,
    pa.ArrowException,
    OSError,
    UnicodeDecodeError,
    MemoryError,  # SQLite's too: a damaged length asks for more than there is
)
# SQLite takes at most 32,766 parameters and 1 MB of statement by default; ids are written out.
_IDS_PER_QUERY: Final = 20_000
_TABLES: Final = "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 0"


class SqliteProfile:
    """One SQLite export. Use as a context manager.

    Raises:
        ProfileError: The file is missing, empty, truncated, locked, or no export of Nsight Systems.
    """

    kind: Final = "sqlite"
    stays_made: Final = False

    def __init__(self, path: Path, roots: Roots = EVERYWHERE) -> None:
        self.path, self._roots = path, roots
        self._state = check_file(path, roots)
        self._uri = read_only_uri(path)
        self._database = self._guarded(self._connected)
        # Rows that are read over and over because pages lead back to each other.
        steps_n = max(self._state.size_bytes // _BYTES_PER_STEP, _LEAST_STEPS)
        self._database.set_progress_handler(_limit(steps_n), _INSTRUCTIONS_PER_STEP)
        self._driver = ExitStack()
        self._connection: adbc_driver_manager.AdbcConnection | None = None
        # A name may have been cut off in the middle of a character.
        self._database.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
        try:
            # The first page of each table that has rows in pages.
            self._tables = {str(name): int(page) for name, page in self._rows(_TABLES, ())}
        except ProfileError:
            self._database.close()
            raise
        if not {"StringIds", "META_DATA_EXPORT"} & self._tables.keys():
            self._database.close()
            raise ProfileError(
                f"{path.name}: an SQLite database, but not an export of Nsight Systems (no table "
                "StringIds); make one with: nsys export --type sqlite REPORT.nsys-rep."
            )

    def __enter__(self) -> SqliteProfile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._driver.close()
        self._database.close()

    @property
    def fingerprint(self) -> Fingerprint:
        """What tells it from any other export, as it was when it was opened."""
        return fingerprint({self.path: self._state})

    @property
    def names(self) -> frozenset[str]:
        """The names of the export's tables."""
        return frozenset(self._tables)

    def has(self, table: str) -> bool:
        """Return whether the export has one of our tables; a view is none."""
        return table_source(table).nsys in self._tables

    def columns(self, table: str) -> frozenset[str]:
        """Return the names, as exported, of the stored columns of one of our tables."""
        if not self.has(table):
            return frozenset()
        name = table_source(table).nsys
        fields = self._guarded(lambda: table_fields(self._database, name))
        return frozenset(field.name for field in fields)

    def read(self, table: str, columns: Sequence[str]) -> Table:
        """Read columns, all in our names, all present in the export.

        Raises:
            ProfileError: The file is damaged, locked, or holds text where integers belong.
        """
        source = table_source(table)
        return self._guarded(lambda: self._read(source, columns))

    def texts(self, ids: npt.NDArray[np.int64]) -> Mapping[int, str]:
        """Return the strings behind these ids; ids without a string are left out."""
        text_of: dict[int, str] = {}
        if not self.has("strings"):
            return text_of
        for first in range(0, len(ids), _IDS_PER_QUERY):
            some = ",".join(map(str, ids[first : first + _IDS_PER_QUERY].tolist()))
            query = f"SELECT id, value FROM StringIds NOT INDEXED WHERE id IN ({some})"
            text_of.update(self._rows(query, ()))
        return {key: str(value) for key, value in text_of.items() if value is not None}

    def key_values(self, table: str, keys: Iterable[str]) -> list[tuple[str, str]]:
        """Return the rows of a name and value table that have one of these names."""
        if not self.has(table):
            return []
        wanted = tuple(keys)
        marks = ",".join("?" * len(wanted))
        query = (
            f"SELECT name, value FROM {quoted_name(table_source(table).nsys)} NOT INDEXED "
            f"WHERE name IN ({marks}) AND value IS NOT NULL"
        )
        return [(str(key), str(value)) for key, value in self._rows(query, wanted)]

    def process_environments(self) -> list[list[str]]:
        """Return the names of the variables of each process whose environment is a string.

        SQL's text functions stop at the first NUL byte, so the bytes are searched.
        """
        if not self.has("strings"):
            return []
        query = (
            "SELECT value FROM StringIds NOT INDEXED WHERE instr(CAST(value AS BLOB), x'00') > 0"
        )
        environments = (process_environment(str(text)) for (text,) in self._rows(query, ()))
        return [names for names in environments if names]

    def _rows(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        return self._guarded(lambda: self._database.execute(query, parameters).fetchall())

    def _read(self, source: TableSource, columns: Sequence[str]) -> Table:
        """Read integers of a large table from its pages, and all else through the driver."""
        if (span := row_span(self._database, source.nsys)) is None:
            return Table.empty(columns)
        if decoder() == "native" and span.high - span.low >= _LARGE_ROWS:
            with suppress(UnexpectedCell):  # then the driver reads, or explains, the table
                return self._past_driver(source, columns, span)
        return self._bulk(source, columns)

    def _past_driver(self, source: TableSource, columns: Sequence[str], span: RowSpan) -> Table:
        """Read integers from the pages, all else beside them, and some rows to compare.

        Raises:
            UnexpectedCell: It is no plain table.
        """
        fields = table_fields(self._database, source.nsys)
        integers = [column for column in columns if not source.is_text(column)]
        stored = [name for name in integers if source.columns[name] != row_id_name(fields)]
        if (places := plain_places(fields, [source.columns[name] for name in stored])) is None:
            raise UnexpectedCell
        root_page, most_rows = self._tables[source.nsys], span.high - span.low + 1
        with self._roots.opened(self.path) as place:
            read = read_integers(place, root_page, len(fields), places, most_rows)
        arrays = dict(zip(stored, read, strict=True))
        if {column.size for column in read} == {most_rows}:  # none between is missing
            row_ids = np.arange(span.low, span.high + 1)
            arrays |= {name: row_ids for name in integers if name not in arrays}
        if others := [column for column in columns if column not in arrays]:
            arrays |= self._bulk(source, others).columns
        asked = [selected(source, column) for column in columns]
        in_order = [arrays[column] for column in columns]
        if not sample_agrees(self._database, source.nsys, asked, span, in_order):
            raise UnexpectedCell
        return Table.stored(dict(zip(columns, in_order, strict=True)))

    def _bulk(self, source: TableSource, columns: Sequence[str]) -> Table:
        query = all_rows(source.nsys, [selected(source, column) for column in columns])
        with closing(adbc_driver_manager.AdbcStatement(self._opened())) as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            batches = self._bounded(pa.RecordBatchReader._import_from_c(stream.address))
        return Table(
            {
                name: concatenated([batch.column(index) for batch in batches], name)
                for index, name in enumerate(columns)
            }
        )

    def _connected(self) -> sqlite3.Connection:
        connect = partial(sqlite3.connect, self._uri, uri=True, timeout=_BUSY_SECONDS)
        return self._roots.made(self.path, connect, lambda database: database.close())

    def _opened(self) -> adbc_driver_manager.AdbcConnection:
        """Return the driver's connection, opened for the first query, closed with the profile."""
        if self._connection is None:
            database = adbc_driver_sqlite.connect(self._uri)
            self._driver.callback(database.close)
            connect = partial(adbc_driver_manager.AdbcConnection, database)
            made = self._roots.made(self.path, connect, lambda connection: connection.close())
            self._driver.callback(made.close)
            self._connection = made
        return self._connection

    def _bounded(self, batches: Iterable[Any]) -> list[Any]:
        """Return all batches, unless there are more rows than a file of this size can hold."""
        most_rows = self._state.size_bytes // _LEAST_ROW_BYTES
        kept = []
        for batch in batches:
            kept.append(batch)
            most_rows -= len(batch)
            if most_rows < 0:
                # Pages that stand below several others, which would go on for ever.
                raise sqlite3.DatabaseError("malformed: more rows than the file can hold")
        return kept

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            result = action()
            file_state(self.path, self._state)
            return result
        except _ERRORS as error:
            # What goes wrong after the first batch comes out of Arrow's stream as an OSError.
            raise ProfileError(explained(self.path, error)) from error


def _limit(steps_n: int) -> Callable[[], int]:
    """Return what SQLite asks now and then: 0 to go on, 1 after so many times."""
    times = count(1)
    return lambda: int(next(times) > steps_n)


def selected(source: TableSource, column: str) -> str:
    """Return what to select for one of our columns."""
    name = quoted_name(source.columns[column])
    if source.is_bytes(column):
        return f"hex(substr(CAST({name} AS BLOB), 1, {MOST_BYTES}))"
    # ADBC takes a column's type from its first batch; a batch of NULLs would have none.
    null = "''" if source.is_text(column) else NULL_INT
    return name if column == "key" else f"coalesce({name}, {null})"


def concatenated(batches: Sequence[Any], column: str) -> npt.NDArray[Any]:
    """Return one column of all batches, int64 or texts.

    Raises:
        pyarrow.ArrowInvalid: It holds something else.
    """
    # A batch without rows has whatever type the driver makes up for it.
    chunks = [chunk for chunk in batches if len(chunk)]
    if TableSource.is_text(column):
        parts = [texts(chunk) for chunk in chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=object)
    for chunk in chunks:
        if not pa.types.is_int64(chunk.type):
            raise pa.ArrowInvalid(f"column {column} holds {chunk.type} where integers belong")
    parts = [chunk.to_numpy(zero_copy_only=not chunk.null_count) for chunk in chunks]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
