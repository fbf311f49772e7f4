"""Tables of a report in memory, under our names, and where each comes from in an export.

Every column is an int64 array, or an array of str for texts. NULL is `NULL_INT`, or None in a text.
Identifiers that an export stores unsigned are kept bit by bit in int64.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray

#: Clears the thread from a globalTid, which leaves the globalPid of its process (schema 3.1-3.30).
PID_MASK: Final = ~0xFFFFFF

_TEXT_COLUMNS: Final = frozenset({"text", "key"})
_FLAG_COLUMNS: Final = frozenset({"goes_on"})


@dataclass(frozen=True)
class TableSource:
    """Where one of our tables stands in an export.

    Attributes:
        name: Our name.
        nsys: The name in an export.
        columns: Our column name -> the column's name in an export.
        optional: Our names of columns that some schema versions lack; NULL throughout then.
    """

    name: str
    nsys: str
    columns: Mapping[str, str]
    optional: frozenset[str]

    @staticmethod
    def is_text(column: str) -> bool:
        """Return whether a column holds text rather than integers."""
        return column in _TEXT_COLUMNS

    @staticmethod
    def is_flag(column: str) -> bool:
        """Return whether a column holds 0 and 1, which parquet exports write as truth values."""
        return column in _FLAG_COLUMNS


@dataclass(frozen=True)
class Table:
    """Rows of one table; all columns have the same length."""

    columns: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def empty(cls, names: Sequence[str]) -> Table:
        """Return a table of these columns without rows."""
        return cls({name: _empty(name) for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Return the rows that a mask or an index array selects; itself if a mask leaves all."""
        masked = rows.dtype == bool
        taken_n = int(np.count_nonzero(rows)) if masked else rows.size
        if masked and taken_n == rows.size:
            return self
        return Table({name: _taken(values, rows, taken_n) for name, values in self.columns.items()})


@dataclass(frozen=True)
class Trace:
    """What was read of one report.

    Attributes:
        tables: By our names; a table that the report lacks is there without rows.
        absent: Our names of the tables that the report lacks.
        strings: The report's strings as far as a column refers to them; ids that the report does
            not explain are left out.
    """

    tables: Mapping[str, Table]
    absent: frozenset[str] = frozenset()
    strings: Mapping[int, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Table:
        return self.tables[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tables


def table_source(name: str) -> TableSource:
    """Return where one of our tables stands in an export; KeyError for an unknown one."""
    return _sources()[name]


def table_names() -> tuple[str, ...]:
    """Return our names of all tables that anything here reads."""
    return tuple(_sources())


def process_of_thread(global_tid: IntArray) -> IntArray:
    """Return the globalPid of each globalTid; NULL stays NULL."""
    processes: IntArray = global_tid & PID_MASK
    processes[global_tid == NULL_INT] = NULL_INT
    return processes


def pid_of(global_pid: int) -> int | None:
    """Return the operating system's process id of a globalPid; None for NULL.

    A globalPid holds hardware id (8 bits), VM id (8), pid (24) and 24 zero bits.
    """
    return None if global_pid == NULL_INT else (global_pid >> 24) & 0xFFFFFF


def _taken(values: npt.NDArray[Any], rows: npt.NDArray[Any], taken_n: int) -> npt.NDArray[Any]:
    """Return the values of some rows; a view of one value stays such a view."""
    if values.strides == (0,) and taken_n:
        return np.broadcast_to(values[0], (taken_n,))
    return values[rows]


def _empty(name: str) -> npt.NDArray[Any]:
    return np.empty(0, dtype=object if TableSource.is_text(name) else np.int64)


@lru_cache
def _sources() -> Mapping[str, TableSource]:
    text = resources.files("nsys_llm.profile").joinpath("data/nsys_tables.json").read_text("utf-8")
    return {
        name: TableSource(name, raw["nsys"], raw["columns"], frozenset(raw["optional"]))
        for name, raw in json.loads(text).items()
    }
