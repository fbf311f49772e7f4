"""Tables of a profile in memory, under our names, and where each comes from in an export.

Every column is an int64 array, or an array of str for texts. NULL is `NULL_INT`, or None in a text.
Identifiers that an export stores unsigned are kept bit by bit in int64.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.data_files import data_file

#: Clears the thread from a globalTid, which leaves the globalPid of its process (schema 3.1-3.30).
PID_MASK: Final = ~0xFFFFFF

_BYTES_COLUMNS: Final = frozenset({"payload"})
_TEXT_COLUMNS: Final = frozenset({"text", "key", "uuid", "bus"}) | _BYTES_COLUMNS
#: Of bytes; the longest payload that anybody decodes here has a tenth.
MOST_BYTES: Final = 4096
#: Of 0 and 1, which parquet exports write as truth values.
FLAG_COLUMNS: Final = frozenset({"goes_on"})


@dataclass(frozen=True)
class TableSource:
    """Where one of our tables stands in an export.

    Attributes:
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
    def is_bytes(column: str) -> bool:
        """Return whether a column holds bytes: as text, two digits each, `MOST_BYTES` at most."""
        return column in _BYTES_COLUMNS


class _Columns(Mapping[str, npt.NDArray[Any]]):
    """Columns of which some are made when they are asked for."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._columns = columns

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class StoredColumns(_Columns):
    """Columns as they are kept, integers in any width; whoever asks for some gets int64.

    Wide ones last as long as anybody uses them: half of the columns are looked at once.
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__(columns)
        self._wide: WeakValueDictionary[str, npt.NDArray[Any]] = WeakValueDictionary()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        stored = self._columns[name]
        if stored.dtype.kind != "i" or stored.dtype == np.int64:
            return stored
        wide = self._wide.get(name)
        if wide is None:  # two threads may both make it: equal values
            wide = stored.astype(np.int64)
            # The caller's is the only reference that counts: numpy would compute in its place, as
            # of any temporary array, and whoever asks next would be given the outcome.
            wide.flags.writeable = False
            self._wide[name] = wide
        return wide


class _TakenColumns(_Columns):
    """Some rows of columns; each is taken when it is asked for first, and kept.

    An analysis looks at two or three columns of a dozen.
    """

    def __init__(
        self, columns: Mapping[str, npt.NDArray[Any]], rows: npt.NDArray[np.bool_], rows_n: int
    ) -> None:
        super().__init__(columns)
        self._rows, self._rows_n = rows, rows_n
        self._taken: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._taken:  # two threads may both take it: equal values
            self._taken[name] = _taken(self._columns[name], self._rows, self._rows_n)
        return self._taken[name]


@dataclass(frozen=True)
class Table:
    """Rows of one table; all columns have the same length.

    Attributes:
        rows_n: How many rows there are; None: as many as the first column has.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    rows_n: int | None = None

    @classmethod
    def stored(cls, columns: Mapping[str, npt.NDArray[Any]]) -> Table:
        """Return a table of these columns, at least one, integers of any width."""
        return cls(StoredColumns(columns), len(next(iter(columns.values()))))

    @classmethod
    def empty(cls, names: Sequence[str]) -> Table:
        """Return a table of these columns without rows."""
        dtypes = {name: object if TableSource.is_text(name) else np.int64 for name in names}
        return cls({name: np.empty(0, dtype=dtype) for name, dtype in dtypes.items()})

    def __len__(self) -> int:
        if self.rows_n is not None:
            return self.rows_n
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Return the rows that a mask or an index array selects; itself if a mask leaves all.

        A mask is kept, and must not change.
        """
        if rows.dtype != bool:
            columns = {
                name: _taken(values, rows, rows.size) for name, values in self.columns.items()
            }
            return Table(columns)
        taken_n = int(np.count_nonzero(rows))
        if taken_n == rows.size:
            return self
        return Table(_TakenColumns(self.columns, rows, taken_n), taken_n)

    def plus(self, **columns: npt.NDArray[Any]) -> Table:
        """Return the same rows with further columns, integers of any width."""
        further = StoredColumns(columns)
        return Table(ChainMap(further, self.columns), len(self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Trace:
    """What was read of one profile.

    Attributes:
        tables: By our names; a table that the profile lacks is there without rows.
        strings: The profile's strings as far as a column refers to them; ids that the profile does
            not explain are left out.
        cut_names_n: Those of them that are cut: longer than `taxonomy.names` lets them be.
    """

    tables: Mapping[str, Table]
    absent: frozenset[str] = frozenset()
    strings: Mapping[int, str] = field(default_factory=dict)
    cut_names_n: int = 0

    def __getitem__(self, name: str) -> Table:
        return self.tables[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tables


def table_source(name: str) -> TableSource:
    """Return where one of our tables stands in an export; KeyError for an unknown one."""
    return _sources()[name]


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


@lru_cache
def _sources() -> Mapping[str, TableSource]:
    return {
        name: TableSource(name, raw["nsys"], raw["columns"], frozenset(raw["optional"]))
        for name, raw in data_file("nsys_tables", "profile").items()
    }
