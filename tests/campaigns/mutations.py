"""Damage to reports: to their rows and tables, as a buggy exporter would do, and to their bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: What may stand in any cell of a SQLite table, whatever its column is declared as.
_CELLS: tuple[Any, ...] = (
    None,
    0,
    1,
    -1,
    -50,
    4294967295,
    2**31,
    2**53 + 1,
    2**62,
    2**63 - 1,
    -(2**63),
    -(2**63) + 1,
    1.5,
    1e300,
    float("inf"),
    "",
    "ten",
    "12",
    "1e3",
    b"",
    b"\xff\xfe\x00",
    "\ud7ff\x00\x1b[31m",
    "n" * 5_000,
)
EVENT_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "NVTX_EVENTS",
    "StringIds",
)
_MOST_CHANGES = 4


def mutate_sqlite(path: Path, random: Random, of: str = "") -> list[str]:
    """Change rows and tables of a SQLite export, those that begin so; return what was done.

    Whatever SQLite itself refuses was not done.
    """
    done = []
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = [name for (name,) in database.execute(listed) if name.startswith(of)]
        for _ in range(random.randint(1, _MOST_CHANGES)):
            events = [name for name in EVENT_TABLES if name in tables]
            if not tables:
                break
            table = random.choice(events if random.random() < 0.8 and events else tables)
            change = random.choice(_SQLITE_CHANGES)
            # A table that was replaced may have no columns to choose from.
            with suppress(sqlite3.Error, UnicodeEncodeError, IndexError):
                done.append(f"{change.__name__[1:]} {table}: {change(database, table, random)}")
    return done


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def _without_constraints(database: sqlite3.Connection, table: str) -> None:
    """Make a table anew, so that any cell may hold anything."""
    columns = database.execute(f'PRAGMA table_info("{table}")').fetchall()
    if not any(not_null or key for *_, not_null, _, key in columns):
        return
    shape = ", ".join(f'"{name}" {kind}' for _, name, kind, *_ in columns)
    database.executescript(
        f'CREATE TABLE "copy" ({shape}); INSERT INTO "copy" SELECT * FROM "{table}";'
        f'DROP TABLE "{table}"; ALTER TABLE "copy" RENAME TO "{table}"'
    )


def _cells(database: sqlite3.Connection, table: str, random: Random) -> str:
    """Write one odd value into a column: of one row, some, or all."""
    _without_constraints(database, table)
    column, value = random.choice(_columns(database, table)), random.choice(_CELLS)
    if value == -(2**63) and column in ("value", "name", "text"):
        value = "least"  # as a text it would be a name like any other
    which = random.choice(("rowid % 97 = 1", "rowid % 3 = 0", "1", "rowid = 2"))
    database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {which}', (value,))
    return f"{column} = {value!r:.40} where {which}"


def _moved(database: sqlite3.Connection, table: str, random: Random) -> str:
    """Shift the times of some rows, so that they overlap, go back, or are far away."""
    by_ns = random.choice((-(10**6), -7, 3, 10**12, 2**61))
    column = random.choice(("start", '"end"'))
    database.execute(f'UPDATE "{table}" SET {column} = {column} + ? WHERE rowid % 4 = 0', (by_ns,))
    return f"{column} by {by_ns}"


def _repeated(database: sqlite3.Connection, table: str, random: Random) -> str:
    _without_constraints(database, table)
    database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid % 3 = 0')
    return "rows twice"


def _removed(database: sqlite3.Connection, table: str, random: Random) -> str:
    which = random.choice(("1", "rowid % 2 = 0", "rowid < 5"))
    database.execute(f'DELETE FROM "{table}" WHERE {which}')
    return which


def _dropped(database: sqlite3.Connection, table: str, random: Random) -> str:
    database.execute(f'DROP TABLE "{table}"')
    return ""


def _renamed(database: sqlite3.Connection, table: str, random: Random) -> str:
    column = random.choice(_columns(database, table))
    database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"')
    return column


def _exchanged(database: sqlite3.Connection, table: str, random: Random) -> str:
    _without_constraints(database, table)
    column, other = (random.choice(_columns(database, table)) for _ in range(2))
    database.execute(f'UPDATE "{table}" SET "{column}" = "{other}", "{other}" = "{column}"')
    return f"{column} and {other}"


def _declared(database: sqlite3.Connection, table: str, random: Random) -> str:
    columns = database.execute(f'PRAGMA table_info("{table}")').fetchall()
    chosen = random.choice(columns)[1]
    kind = random.choice(("TEXT", "REAL", "BLOB", "", "BIGINT", "FLOATING POINT", "NUMERIC"))
    if random.random() < 0.2:
        kind = "INTEGER PRIMARY KEY"
    parts = [f'"{name}" {kind if name == chosen else was}' for _, name, was, *_ in columns]
    database.executescript(
        f'CREATE TABLE "copy" ({", ".join(parts)});'
        f'INSERT OR IGNORE INTO "copy" SELECT * FROM "{table}";'
        f'DROP TABLE "{table}"; ALTER TABLE "copy" RENAME TO "{table}"'
    )
    return f"{chosen} {kind}"


def _added(database: sqlite3.Connection, table: str, random: Random) -> str:
    """Add a column behind the rows that are there: a default, or one that is computed."""
    name = random.choice(("more", "end", "textId", "graphNodeId", "callchainId"))
    tail = random.choice(
        ("INTEGER DEFAULT 7", "TEXT", "INTEGER AS (start * 2)", "REAL DEFAULT 0.5")
    )
    database.execute(f'ALTER TABLE "{table}" ADD COLUMN "{name}" {tail}')
    return f"{name} {tail}"


def _replaced(database: sqlite3.Connection, table: str, random: Random) -> str:
    """Put something else in a table's place: a view, a virtual table, one without row ids."""
    kind = random.choice(("view", "virtual", "keyed", "strict"))
    database.execute(f'ALTER TABLE "{table}" RENAME TO "was"')
    if kind == "view":
        database.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "was"')
    elif kind == "virtual":
        names = ", ".join(f'"{name}"' for name in _columns(database, "was"))
        database.execute(f'CREATE VIRTUAL TABLE "{table}" USING fts5({names})')
        database.execute(f'INSERT INTO "{table}" SELECT * FROM "was"')
    else:
        columns = database.execute('PRAGMA table_info("was")').fetchall()
        shape = ", ".join(f'"{name}" {was}' for _, name, was, *_ in columns)
        extra = ", key0 INTEGER PRIMARY KEY) WITHOUT ROWID" if kind == "keyed" else ") STRICT"
        database.execute(f'CREATE TABLE "{table}" ({shape}{extra}')
        number = ", rowid" if kind == "keyed" else ""
        database.execute(f'INSERT INTO "{table}" SELECT *{number} FROM "was"')
    return kind


def _logged(database: sqlite3.Connection, table: str, random: Random) -> str:
    database.execute("PRAGMA journal_mode = WAL")
    return ""


_SQLITE_CHANGES = (
    *(_cells,) * 8,
    *(_moved,) * 4,
    _repeated,
    _removed,
    _dropped,
    _renamed,
    _exchanged,
    _declared,
    _declared,
    _added,
    _replaced,
    _logged,
)


def mutate_parquet(folder: Path, random: Random) -> list[str]:
    """Change columns of some files of a parquet export; return what was done."""
    done = []
    for _ in range(random.randint(1, _MOST_CHANGES)):
        files = sorted(folder.glob("*.parquet"))
        events = [file for file in files if file.stem in EVENT_TABLES]
        file = random.choice(events if random.random() < 0.8 and events else files)
        try:
            table = pq.read_table(file)
            if not table.num_columns:  # all of them are gone
                continue
            kind, table = _changed(table, random)
            pq.write_table(table, file, row_group_size=random.choice((3, 2048)))
            done.append(f"{file.stem}: {kind}")
        except (pa.ArrowException, OSError, OverflowError):
            continue
    if random.random() < 0.1:
        target, other = (random.choice(sorted(folder.glob("*.parquet"))) for _ in range(2))
        target.write_bytes(other.read_bytes())
        done.append(f"{target.stem} is {other.stem}")
    if random.random() < 0.1:
        gone = random.choice(sorted(folder.glob("*.parquet")))
        gone.unlink()
        done.append(f"no {gone.stem}")
    return done


_TYPES = (
    pa.string(),
    pa.large_string(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.binary(),
    pa.timestamp("ns"),
    pa.duration("ns"),
    pa.decimal128(30, 2),
    pa.null(),
)


def _changed(table: pa.Table, random: Random) -> tuple[str, pa.Table]:
    place = random.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    kind = random.choice(("type", "cells", "cells", "cells", "dictionary", "list", "gone", "twice"))
    kind = random.choice((kind, "rows", "empty")) if random.random() < 0.2 else kind
    if kind == "type":
        to = random.choice(_TYPES)
        return f"{name} as {to}", table.set_column(place, name, column.cast(to, safe=False))
    if kind == "cells":
        value = random.choice(_CELLS)
        values = [value if row % 3 == 1 else cell for row, cell in enumerate(column.to_pylist())]
        cells = pa.array(values, column.type)
        return f"{name} = {value!r:.40}", table.set_column(place, pa.field(name, cells.type), cells)
    if kind == "dictionary":
        encoded = column.dictionary_encode()
        return f"{name} encoded", table.set_column(place, pa.field(name, encoded.type), encoded)
    if kind == "list":
        lists = pa.array([[cell] for cell in column.to_pylist()], pa.list_(column.type))
        return f"lists of {name}", table.set_column(place, pa.field(name, lists.type), lists)
    if kind == "gone":
        return f"no {name}", table.remove_column(place)
    if kind == "twice":
        return f"{name} twice", table.append_column(pa.field(name, column.type), column)
    if kind == "rows":
        return "rows twice", pa.concat_tables([table, table])
    return "no rows", table.slice(0, 0)


#: Fields of the header of an SQLite file: page size, reserved bytes, versions, counters, encoding.
_HEADER_FIELDS = ((16, 2), (18, 1), (19, 1), (20, 1), (24, 4), (28, 4), (56, 4), (92, 4), (100, 8))


def damage_bytes(raw: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """Flip, cut, repeat and exchange bytes of a file."""
    data = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 5, 40))):
        at = random.randrange(max(len(data), 1))
        kind = random.random()
        if kind < 0.45 and data:
            data[at] ^= 1 << random.randrange(8)
        elif kind < 0.6 and data:
            data[at] = random.choice((0, 1, 5, 10, 13, 127, 128, 255, random.randrange(256)))
        elif kind < 0.7:
            first, length = random.choice(_HEADER_FIELDS)
            data[first : first + length] = random.randbytes(length)
        elif kind < 0.78:
            del data[at:]
        elif kind < 0.88:
            source = random.choice(others) if others and random.random() < 0.5 else bytes(data)
            length = random.choice((4, 100, 512, 4096))
            start = random.randrange(max(len(source), 1))
            data[at : at + length] = source[start : start + length]
        elif kind < 0.94:
            data[at : at + random.choice((1, 16, 4096))] = b""
        else:
            page = 4096
            data[at // page * page : (at // page + 1) * page] = random.choice(
                (bytes(page), b"\xff" * page)
            )
    return bytes(data)
