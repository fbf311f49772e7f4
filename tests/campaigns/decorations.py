"""What others make of an SQLite export without changing a value: indexes, other names and pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

_RESERVED_BYTES = (1, 8, 12, 32, 100)


def decorate(path: Path, table: str, random: Random) -> list[str]:
    """Do some of `DECORATIONS` to a table of an export; return what was done."""
    done: list[str] = []
    if not _fields(path, table):
        return done  # a lazy export has no empty tables
    for _ in range(3):
        change = random.choice(DECORATIONS)
        # Two of a kind may not go together; what SQLite refuses is not done.
        with suppress(sqlite3.Error, UnicodeError):
            done.append(f"{change.__name__[1:]}: {change(path, table, random)}")
    return done


def _run(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {script}")


def _fields(path: Path, table: str) -> list[tuple[str, str]]:
    """Return name and declared type of the columns that are stored and not computed."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [(row[1], row[2]) for row in rows]


def _free(path: Path, stem: str) -> str:
    with closing(sqlite3.connect(path)) as database:
        (number,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return f"{stem}_{number}"


def _index(path: Path, table: str, random: Random) -> str:
    """Add an index of some columns, some or all of the rows, up or down."""
    names = [name for name, _ in _fields(path, table)]
    chosen = random.sample(names, random.randint(1, min(len(names), 4)))
    if random.random() < 0.5 and "text" in names:
        chosen = ["text", *(name for name in chosen if name != "text")]
    kind = random.choice(("", "", " DESC"))
    keys = ", ".join(f'"{name}"{kind}' for name in chosen)
    which = random.choice(("", "", f' WHERE "{chosen[0]}" IS NOT NULL'))
    _run(path, f'CREATE INDEX "{_free(path, "ix")}" ON "{table}" ({keys}){which}')
    if random.random() < 0.3:
        _run(path, "ANALYZE")
    return f"{keys}{which}"


def _reserved(path: Path, table: str, random: Random) -> str:
    """Write the file anew, with bytes at the end of every page that are not SQLite's."""
    size, reserved = random.choice((512, 1024, 4096, 65536)), random.choice(_RESERVED_BYTES)
    reserved = min(reserved, size - 480)  # the least that a page may keep
    remake(path, page_bytes=size, reserved_bytes=reserved)
    return f"{reserved} of {size}"


def _pages(path: Path, table: str, random: Random) -> str:
    size, vacuum = random.choice((512, 1024, 8192, 65536)), random.randint(0, 2)
    _run(path, f"PRAGMA page_size = {size}; PRAGMA auto_vacuum = {vacuum}; VACUUM")
    return f"{size}, auto_vacuum {vacuum}"


def _holes(path: Path, table: str, random: Random) -> str:
    """Number the rows with holes between them, or backwards."""
    factor = random.choice((-1, 7, -(2**40), 2**50))
    _run(path, f'UPDATE "{table}" SET rowid = rowid * {factor}')
    return f"times {factor}"


#: Each takes a file, a table and a generator, and says what it did.
DECORATIONS: tuple[Callable[[Path, str, Random], str], ...] = (
    _index,
    _index,
    _index,
    _reserved,
    _pages,
    _holes,
)


def remake(path: Path, *, page_bytes: int = 4096, reserved_bytes: int = 0) -> None:
    """Write a database anew, with so many bytes of each page left to others."""
    fresh = path.with_name(f"{path.name}.fresh")
    with closing(sqlite3.connect(fresh, isolation_level=None)) as database:
        database.executescript(f"PRAGMA page_size = {page_bytes}; PRAGMA user_version = 1")
    raw = bytearray(fresh.read_bytes())
    # No driver sets byte 20; an empty first page begins its content at the end of what is usable.
    raw[20] = reserved_bytes
    raw[105:107] = (page_bytes - reserved_bytes & 0xFFFF).to_bytes(2, "big")
    fresh.write_bytes(raw)
    with closing(sqlite3.connect(fresh, isolation_level=None)) as database:
        database.execute("ATTACH ? AS old", (str(path),))
        listed = "SELECT type, name, sql FROM old.sqlite_master WHERE sql IS NOT NULL"
        made = database.execute(f"{listed} AND name NOT LIKE 'sqlite_%'").fetchall()
        for kind, name, sql in sorted(made, key=lambda row: row[0] != "table"):
            database.execute(sql)
            if kind == "table":
                _copy_rows(database, name)
    fresh.replace(path)


def _copy_rows(database: sqlite3.Connection, table: str) -> None:
    listed = database.execute(f'PRAGMA old.table_info("{table}")').fetchall()
    names = [f'"{row[1]}"' for row in listed]
    if not any(row[5] for row in listed):
        names.append("rowid")
    columns = ", ".join(names)
    database.execute(
        f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM old."{table}" NOT INDEXED'
    )
