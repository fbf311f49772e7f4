"""Profiles of one process that was recorded several times, read as one on one clock.

Pauses are left out of that.

Nsight Systems writes NAME.1, NAME.2 and so on under `--capture-range-end=repeat`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.core.rooted import EVERYWHERE, ROOTS
from nsys_llm.manifest.declared import TableRead
from nsys_llm.numeric.grouping import replaced
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
    renamed = _renaming(strings, later.strings)
    above = {
        column: 1 + max((_largest(table, column) for table in first.tables.values()), default=0)
        for column in _IDS
    }
    tables = {
        name: _both(name, first.tables.get(name), later.tables.get(name), renamed, above, ahead_ns)
        for name in dict.fromkeys((*first.tables, *later.tables))
    }
    cut_n = first.cut_names_n + later.cut_names_n
    return Trace(tables, first.absent & later.absent, strings, cut_n)


def _both(
    name: str,
    first: Table | None,
    later: Table | None,
    renamed: Callable[[IntArray], IntArray],
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
            values = renamed(values)
        columns[column] = np.concatenate((first[column], values))
    return Table(columns)


def _largest(table: Table, column: str) -> int:
    return int(table[column].max()) if column in table and len(table) else 0


def _renaming(strings: dict[int, str], later: Mapping[int, str]) -> Callable[[IntArray], IntArray]:
    """Return what turns ids of strings of a later segment into those of the first, which it adds.

    Equal texts have one id; one that has no text gets a new one.
    """
    id_of = {text: key for key, text in strings.items()}
    free = count(1 + max((*strings, *later), default=0))
    new = {key: id_of.setdefault(text, next(free)) for key, text in later.items()}
    strings |= {new[key]: text for key, text in later.items()}
    new[NULL_INT] = NULL_INT

    def renamed(ids: IntArray) -> IntArray:
        return replaced(ids, lambda used: np.array([*map(of, used.tolist())], dtype=np.int64))

    def of(key: int) -> int:
        return new.setdefault(key, next(free))

    return renamed
