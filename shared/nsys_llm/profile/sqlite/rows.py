"""In which order SQLite hands out the rows of a table, and a sample of them to compare with.

A query without an explicit order is answered in whatever order is fastest: where an index covers
what is asked for, in that of the index. Two reads of one table belong side by side only if both
come in the order of the row ids, and a table need not have any that can be named.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: Names of the row id (https://www.sqlite.org/rowidtable.html); a column may take any of them.
_ROW_ID_NAMES: Final = ("rowid", "_rowid_", "oid")
#: Rows of a sample: enough that rows in another order all but never agree by chance.
_SAMPLE_ROWS: Final = 32


class Field(NamedTuple):
    """A column as declared; `computed` where it is generated, `key` where in the primary key."""

    name: str
    declared: str
    key: bool
    computed: bool


class RowSpan(NamedTuple):
    """The least and the greatest row id of a table."""

    low: int
    high: int


class TableShape(NamedTuple):
    """The columns of a table in their order, and how to name its row id.

    `row_id` is None for a table WITHOUT ROWID, and where columns have taken all the names: such a
    table is read by one query only, in the order of `keys`, its primary key, if it has one. SQLite
    answers from an index of such a table even where it is told not to.
    """

    name: str
    fields: tuple[Field, ...]
    row_id: str | None
    keys: tuple[str, ...] = ()

    @property
    def scanned(self) -> str:
        """The table in a query that no index may answer."""
        return f"{quoted_name(self.name)} NOT INDEXED"

    @property
    def ordered(self) -> str:
        """The clause that asks for the order of the pages; it costs nothing in a scan."""
        if self.row_id is not None:
            return f" ORDER BY {self.row_id}"
        return f" ORDER BY {', '.join(map(quoted_name, self.keys))}" if self.keys else ""

    def queries(self, selected: Sequence[str], halved: RowSpan | None) -> list[str]:
        """Return what asks for all rows in their order, or for one half of them after the other."""
        query = f"SELECT {', '.join(selected)} FROM {self.scanned}"
        if halved is None:
            return [f"{query}{self.ordered}"]
        middle = (halved.low + halved.high) // 2
        sides = (f" WHERE {self.row_id} {side} {middle}" for side in ("<=", ">"))
        return [f"{query}{side}{self.ordered}" for side in sides]

    def plain_places(self, names: Sequence[str]) -> list[int] | None:
        """Return where some integer columns stand in a record; None where that is not known."""
        # An INTEGER PRIMARY KEY is the row id, and a computed column may not be in the record.
        if any(field.computed or field.key for field in self.fields):
            return None
        listed = [field.name for field in self.fields]
        places = [listed.index(name) for name in names]
        # Other declarations turn integers into something else as they are read.
        plain = all("INT" in self.fields[place].declared.upper() for place in places)
        return places if plain and places else None


#: By name and statement: what a table looks like follows from these.
_SHAPES: Final[dict[tuple[str, str], TableShape]] = {}
_MOST_SHAPES: Final = 1_000


def quoted_name(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def listed_tables(database: sqlite3.Connection) -> tuple[dict[str, str], frozenset[str]]:
    """Return the tables that have rows in pages, and the names of views and virtual tables.

    These could run anything, and are not read.

    Returns:
        The statement that made each table, by name; and names.
    """
    listed = "SELECT name, type = 'table' AND rootpage > 0, sql FROM sqlite_master"
    rows = database.execute(f"{listed} WHERE type IN ('table', 'view')").fetchall()
    tables = {str(name): str(made) for name, stored, made in rows if stored}
    return tables, frozenset(str(name) for name, stored, _ in rows if not stored)


def table_shape(database: sqlite3.Connection, table: str, made: str) -> TableShape:
    """Look at a table that the database has.

    Args:
        database: To ask, unless a table made by the same statement is known: the ranks of a job
            have the same tables, and to ask takes as long as to read a small one.
        table: Its name.
        made: The statement that made it.

    Raises:
        sqlite3.Error: The schema is damaged.
    """
    if (table, made) not in _SHAPES:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        _SHAPES[table, made] = _asked_shape(database, table)
    return _SHAPES[table, made]


def _asked_shape(database: sqlite3.Connection, table: str) -> TableShape:
    rows = database.execute(f"PRAGMA table_xinfo({quoted_name(table)})").fetchall()
    fields = tuple(
        Field(str(name), str(declared), bool(key), bool(hidden))
        for _, name, declared, _, _, key, hidden in rows
    )
    taken = {field.name.lower() for field in fields}
    free = next((name for name in _ROW_ID_NAMES if name not in taken), None)
    if free is not None and not _has_row_ids(database, table, free):
        free = None
    keys = sorted((int(row[5]), str(row[1])) for row in rows if row[5])
    return TableShape(table, fields, free, tuple(name for _, name in keys))


def _has_row_ids(database: sqlite3.Connection, table: str, row_id: str) -> bool:
    try:
        database.execute(f"SELECT {row_id} FROM {quoted_name(table)} LIMIT 0")
    except sqlite3.OperationalError as error:
        if "no such column" in str(error):
            return False  # WITHOUT ROWID
        raise
    return True


def row_span(database: sqlite3.Connection, shape: TableShape) -> RowSpan | None:
    """Return the span of the row ids of a table that has any; None for a table without rows."""
    # Two subqueries, because min and max in one query would scan the table.
    least, most = (
        f"(SELECT {item}({shape.row_id}) FROM {shape.scanned})" for item in ("min", "max")
    )
    low, high = database.execute(f"SELECT {least}, {most}").fetchone()
    return None if low is None else RowSpan(low, high)


def sample_agrees(
    database: sqlite3.Connection,
    shape: TableShape,
    selected: Sequence[str],
    span: RowSpan,
    columns: Sequence[npt.NDArray[Any]],
) -> bool:
    """Return whether columns that were read one by one hold the table's rows, as far as a sample.

    Args:
        database: To ask.
        shape: Of the table, with row ids.
        selected: The expression of each column.
        span: Of the table's row ids.
        columns: Shape (rows,) each.

    Raises:
        sqlite3.Error: The table is damaged.
    """
    rows_n = len(columns[0])
    if not rows_n or any(len(column) != rows_n for column in columns):
        return False
    position, rows = _sampled_rows(database, shape, selected, span, rows_n)
    sample = (column[position].tolist() for column in columns)
    return list(zip(*sample, strict=True)) == rows


def _sampled_rows(
    database: sqlite3.Connection,
    shape: TableShape,
    selected: Sequence[str],
    span: RowSpan,
    rows_n: int,
) -> tuple[IntArray, list[tuple[Any, ...]]]:
    """Return some positions of a table's rows, in the order of row ids, and the rows there.

    Of row ids without a hole, rows from all over the table; else its begin, its middle and its
    end. More or fewer rows than positions: the table does not have `rows_n` rows.
    """
    query = f"SELECT {', '.join(selected)} FROM {shape.scanned}"
    if rows_n == span.high - span.low + 1:
        position = np.unique(np.linspace(0, rows_n - 1, _SAMPLE_ROWS).astype(np.int64))
        ids = ",".join(str(span.low + value) for value in position.tolist())
        cursor = database.execute(f"{query} WHERE {shape.row_id} IN ({ids}){shape.ordered}")
        return position, cursor.fetchall()
    length = min(_SAMPLE_ROWS // 3, rows_n)
    positions, rows = [], []
    for first in (0, (rows_n - length) // 2, rows_n - length):
        # One more than there should be behind the last.
        limit = length + (first == rows_n - length)
        asked = f"{query}{shape.ordered} LIMIT {limit} OFFSET {first}"
        positions.append(np.arange(first, first + length))
        rows += database.execute(asked).fetchall()
    return np.concatenate(positions), rows
