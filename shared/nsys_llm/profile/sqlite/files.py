"""An SQLite file: what it is, how to open it, what goes wrong with it, and the order of its rows.

A query without an explicit order is answered in whatever order is fastest: where an index covers
what is asked for, in that of the index. Two reads of one table belong side by side only if both
come in the order of the row ids; a sample of them is compared.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.rooted import Roots
from nsys_llm.profile.file_state import FileState

_MAGIC: Final = b"SQLite format 3\x00"
_WAL_MODE: Final = b"\x02\x02"


def file_state(path: Path, known: FileState | None = None) -> FileState:
    """Return the state of a file, which must be the known one if there is one.

    Raises:
        ProfileError: It is not: parts that were read before do not fit those that come now.
    """
    state = FileState.of(path.stat())
    if known not in (None, state):
        raise ProfileError(
            f"{path.name}: changed while it was read; wait until its writer has finished, and run "
            "again."
        )
    return state


def read_only_uri(path: Path) -> str:
    """Return the URI that opens a database without changing it or creating anything beside it.

    Raises:
        ProfileError: Rows of it stand in a log beside it, or its journal is no file.
    """
    file = path.resolve()
    journal = file.with_name(f"{file.name}-journal")
    # Of a file whose name is so long that it can have no journal, Path.exists raises.
    if os.path.exists(journal) and not journal.is_file():
        # SQLite would open a pipe, and wait for ever.
        raise ProfileError(f"{path.name}: {journal.name} beside it is not a file; remove it.")
    # Percent-encoding keeps '?', '#' and '%' of a file name out of the URI's syntax.
    uri = f"file:{quote(os.fsencode(file))}?mode=ro"
    with file.open("rb") as opened:
        if opened.read(20)[18:20] != _WAL_MODE:
            return uri
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise ProfileError(
            f"{path.name}: {log.name} beside it holds rows that are not in it yet; "
            f"wait for its writer, or run: sqlite3 {path.name} 'PRAGMA wal_checkpoint'."
        )
    # Opening a database in WAL mode creates files beside it, unless it is said not to change.
    return f"{uri}&immutable=1"


def check_file(path: Path, roots: Roots) -> FileState:
    """Return the state of a file; refuse what is no SQLite file, or not all of one.

    Raises:
        ProfileError: The file is missing, empty, truncated, or no database.
    """
    try:
        with roots.opened(path) as place, place.open("rb") as file:
            header = file.read(100)
            state = FileState.of(os.fstat(file.fileno()))
    except OSError as error:
        raise ProfileError(f"{path.name}: cannot be read ({error.strerror}).") from error
    if state.size_bytes == 0:
        raise ProfileError(f"{path.name}: the file is empty; export the profile again.")
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise ProfileError(
            f"{path.name}: not an SQLite database; give a .nsys-rep, or an export made with: "
            "nsys export --type sqlite REPORT.nsys-rep."
        )
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    pages_n = int.from_bytes(header[28:32], "big")
    # The page count is valid only if the two counters agree (SQLite file format, 1.3.7).
    if header[24:28] == header[92:96] and pages_n * page_bytes > state.size_bytes:
        raise ProfileError(
            f"{path.name}: truncated, {state.size_bytes:,} of {pages_n * page_bytes:,} bytes are "
            "there; copy or export it again."
        )
    return state


def explained(path: Path, error: Exception) -> str:
    """Return the one line that describes an error of SQLite or of its driver."""
    if isinstance(error, UnicodeDecodeError):
        return f"{path.name}: damaged (a name is not text); copy or export it again."
    if isinstance(error, MemoryError):
        return (
            f"{path.name}: needs more memory than is available, or is damaged; read fewer profiles "
            "at a time (--mode none), or copy or export it again."
        )
    text = str(error)
    if "Type mismatch" in text:
        return f"{path.name}: holds text where integers belong ({' '.join(text.split())})."
    if "locked" in text or "busy" in text:
        return f"{path.name}: locked by another program; wait until its export has finished."
    if text == "interrupted":
        return f"{path.name}: damaged (its pages form a cycle); copy or export it again."
    if "malformed" in text or "not a database" in text or "CORRUPT" in text.upper():
        return f"{path.name}: damaged ({text}); copy or export it again."
    return f"{path.name}: cannot be read ({' '.join(text.split())}); export the profile again."


#: Rows of a sample: enough that rows in another order all but never agree by chance.
_SAMPLE_ROWS: Final = 32
#: The order of the pages; it costs nothing in a scan.
_ORDERED: Final = "ORDER BY rowid"


class StoredField(NamedTuple):
    """A stored column as declared; `key` where it is in the primary key."""

    name: str
    declared: str
    key: bool


class RowSpan(NamedTuple):
    """The least and the greatest row id of a table."""

    low: int
    high: int


def quoted_name(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def all_rows(table: str, selected: Sequence[str]) -> str:
    """Return the query for expressions of all rows of a table, in the order of their row ids."""
    return f"{_scan(table, selected)} {_ORDERED}"


def _scan(table: str, selected: Sequence[str]) -> str:
    return f"SELECT {', '.join(selected)} FROM {quoted_name(table)} NOT INDEXED"


def table_fields(database: sqlite3.Connection, table: str) -> tuple[StoredField, ...]:
    """Return the stored columns of a table in their order.

    Raises:
        sqlite3.Error: The schema is damaged.
    """
    rows = database.execute(f"PRAGMA table_info({quoted_name(table)})").fetchall()
    return tuple(StoredField(str(row[1]), str(row[2]), bool(row[5])) for row in rows)


def row_id_name(fields: Sequence[StoredField]) -> str | None:
    """Return the column that may be the row id, an INTEGER PRIMARY KEY: it is in no record."""
    keys = [field.name for field in fields if field.key]
    return keys[0] if len(keys) == 1 else None


def plain_places(fields: Sequence[StoredField], names: Sequence[str]) -> list[int] | None:
    """Return where some integer columns stand in a record; None where that is not known."""
    listed = [field.name for field in fields]
    places = [listed.index(name) for name in names]
    # Other declarations turn integers into something else as they are read.
    plain = all("INT" in fields[place].declared.upper() for place in places)
    return places if plain and places else None


def row_span(database: sqlite3.Connection, table: str) -> RowSpan | None:
    """Return the span of the row ids of a table; None for a table without rows."""
    # Two subqueries, because min and max in one query would scan the table.
    least, most = (f"({_scan(table, [f'{item}(rowid)'])})" for item in ("min", "max"))
    low, high = database.execute(f"SELECT {least}, {most}").fetchone()
    return None if low is None else RowSpan(low, high)


def sample_agrees(
    database: sqlite3.Connection,
    table: str,
    selected: Sequence[str],
    span: RowSpan,
    columns: Sequence[npt.NDArray[Any]],
) -> bool:
    """Return whether columns that were read one by one hold the rows of a table, by a sample.

    Of row ids without a hole, these are rows from all over the table; else its begin, its middle
    and its end. `selected` has the expression of each column.

    Raises:
        sqlite3.Error: The table is damaged.
    """
    rows_n, query = len(columns[0]), _scan(table, selected)
    if not rows_n or any(len(column) != rows_n for column in columns):
        return False
    if rows_n == span.high - span.low + 1:
        position = np.unique(np.linspace(0, rows_n - 1, _SAMPLE_ROWS).astype(np.int64))
        ids = ",".join(str(span.low + value) for value in position.tolist())
        rows = database.execute(f"{query} WHERE rowid IN ({ids}) {_ORDERED}").fetchall()
    else:
        length, rows = min(_SAMPLE_ROWS // 3, rows_n), []
        firsts = (0, (rows_n - length) // 2, rows_n - length)
        position = np.concatenate([np.arange(first, first + length) for first in firsts])
        for first in firsts:
            # One more than there should be behind the last.
            limit = length + (first == rows_n - length)
            asked = f"{query} {_ORDERED} LIMIT {limit} OFFSET {first}"
            rows += database.execute(asked).fetchall()
    sample = (column[position].tolist() for column in columns)
    return list(zip(*sample, strict=True)) == rows
