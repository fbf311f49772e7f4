"""In which order SQLite hands out the rows of a table, and a sample of them to compare with.

A query without an explicit order is answered in whatever order is fastest: where an index covers
what is asked for, in that of the index. Two reads of one table belong side by side only if both
come in the order of the row ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

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
    """Return the stored columns of a table in their order."""
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
    """Return whether columns that were read one by one hold the rows of a table, by a sample."""
    rows_n = len(columns[0])
    if not rows_n or any(len(column) != rows_n for column in columns):
        return False
    position, rows = _sampled_rows(database, table, selected, span, rows_n)
    sample = (column[position].tolist() for column in columns)
    return list(zip(*sample, strict=True)) == rows


def _sampled_rows(
    database: sqlite3.Connection,
    table: str,
    selected: Sequence[str],
    span: RowSpan,
    rows_n: int,
) -> tuple[IntArray, list[tuple[Any, ...]]]:
    """Return some positions of a table's rows, in the order of row ids, and the rows there.

    Of row ids without a hole, rows from all over the table; else its begin, its middle and its
    end. More or fewer rows than positions: the table does not have `rows_n` rows.
    """
    query = _scan(table, selected)
    if rows_n == span.high - span.low + 1:
        position = np.unique(np.linspace(0, rows_n - 1, _SAMPLE_ROWS).astype(np.int64))
        ids = ",".join(str(span.low + value) for value in position.tolist())
        cursor = database.execute(f"{query} WHERE rowid IN ({ids}) {_ORDERED}")
        return position, cursor.fetchall()
    length = min(_SAMPLE_ROWS // 3, rows_n)
    positions, rows = [], []
    for first in (0, (rows_n - length) // 2, rows_n - length):
        # One more than there should be behind the last.
        limit = length + (first == rows_n - length)
        asked = f"{query} {_ORDERED} LIMIT {limit} OFFSET {first}"
        positions.append(np.arange(first, first + length))
        rows += database.execute(asked).fetchall()
    return np.concatenate(positions), rows
