"""Profiles of one process that was recorded several times, read as one on one clock.

Pauses are left out of that.

Nsight Systems writes NAME.1, NAME.2 and so on under `--capture-range-end=repeat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.core.rooted import EVERYWHERE, ROOTS
from nsys_llm.manifest.declared import TableRead
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.inputs import open_profile
from nsys_llm.profile.reader import STRING_IDS, needed_tables, read_trace
from nsys_llm.profile.tables import Table, Trace

#: Option: by the path of a first segment the later ones, see `Segment`.
SEGMENTS: Final = "segments"

_TIMES: Final = ("start_ns", "end_ns", "time_ns")
#: Of the process, and not of a segment.
_ONCE: Final = ("cuda_streams", "payload_schemas", "payload_entries", "gpus", "cuda_devices")
_IDS: Final = ("correlation_id", "id", "callchain_id")


@dataclass(frozen=True)
class Segment:
    """A later profile of a process.

    Attributes:
        ahead_ns: What takes its clock to that of the first one, pauses left out.
    """

    path: str
    ahead_ns: int


def with_segments(
    trace: Trace, path: str, reads: Sequence[TableRead], options: Mapping[str, Any]
) -> Trace:
    """Return what was read of a profile with all later segments of it, if there are any.

    Raises:
        ProfileError: One of them cannot be read.
    """
    segments: Sequence[Segment] = options.get(SEGMENTS, {}).get(path, ())
    where = {name: options.get(name) for name in ("export_dir", "nsys")}
    roots, tables = options.get(ROOTS, EVERYWHERE), needed_tables(reads, options)
    for segment in segments:
        with open_profile(segment.path, tables, **where, again=True, roots=roots) as opened:
            trace = _joined(trace, read_trace(opened, reads, options), segment.ahead_ns)
    return trace


def _joined(first: Trace, later: Trace, ahead_ns: int) -> Trace:
    strings = dict(first.strings)
    names = _Names(strings, later.strings)
    above = {
        column: 1 + max((_largest(table, column) for table in first.tables.values()), default=0)
        for column in _IDS
    }
    tables = {
        name: _both(name, first.tables.get(name), later.tables.get(name), names, above, ahead_ns)
        for name in dict.fromkeys((*first.tables, *later.tables))
    }
    cut_n = first.cut_names_n + later.cut_names_n
    return Trace(tables, first.absent & later.absent, strings, cut_n)


def _both(
    name: str,
    first: Table | None,
    later: Table | None,
    names: _Names,
    above: Mapping[str, int],
    ahead_ns: int,
) -> Table:
    """Return the rows of both; of what no segment has for itself, those of either."""
    if first is None or later is None or (name in _ONCE and len(first)):
        return first or later or Table({})
    if name == "capture_spans":
        ends = np.append(first["duration_ns"], later["duration_ns"] + ahead_ns)
        return Table({"duration_ns": ends.max(keepdims=True)})
    columns = {}
    for column in (column for column in first.columns if column in later):
        values = later[column]
        if column in _TIMES:
            values = np.where(values == NULL_INT, values, values + ahead_ns)
        elif column in _IDS:
            values = np.where(values > 0, values + above[column], values)
        elif column in STRING_IDS:
            values = names.of(values)
        columns[column] = np.concatenate((first[column], values))
    return Table(columns)


def _largest(table: Table, column: str) -> int:
    return int(table[column].max()) if column in table and len(table) else 0


class _Names:
    """Ids of strings of a later segment become those of the first; equal texts have one id."""

    def __init__(self, strings: dict[int, str], later: Mapping[int, str]) -> None:
        self._strings, self._later = strings, later
        self._id_of = {text: key for key, text in strings.items()}
        self._next = 1 + max((*strings, *later), default=0)
        self._new: dict[int, int] = {NULL_INT: NULL_INT}

    def of(self, ids: IntArray) -> npt.NDArray[np.int64]:
        """Return the ids of the first segment; one that has no text gets a new one."""
        values = distinct(ids)
        new = [self._one(value) for value in values.tolist()]
        return np.array(new, dtype=np.int64)[np.searchsorted(values, ids)]

    def _one(self, value: int) -> int:
        if value not in self._new:
            text = self._later.get(value)
            known = None if text is None else self._id_of.get(text)
            self._new[value] = self._next if known is None else known
            if known is None:
                self._next += 1
                if text is not None:
                    self._strings[self._new[value]] = text
                    self._id_of[text] = self._new[value]
        return self._new[value]
