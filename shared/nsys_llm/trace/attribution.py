"""Joins GPU operations with the API calls that launched them. Pure, one process at a time.

A correlation id is unique in a process and nowhere else. Work that was launched before a capture
began is not missing from a profile: no setting records its call, only a longer capture. No
operation can start before its call begins: where some do, the clocks of host and GPU differ by at
least as much, and what is told from both (who was first, how long a launch took to reach the GPU)
is no finer than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import sane_instants, sane_times

# While ids are dense, a lookup table takes a quarter of a sorted search's time (1M: 6 ms, 25 ms).
_DENSE: Final = 8
# For few operations a table of all calls does not pay.
_FEW: Final = 16


def join_launches(
    op_ids: IntArray, call_ids: IntArray, call_starts_ns: IntArray | None
) -> IntArray:
    """Return for each operation the row of the API call with its correlation id, or -1.

    Many operations may share one call (a graph launch). Where several calls claim an id, the
    earliest is taken.

    Args:
        op_ids: Shape (n,), correlation ids; negative ones (NULL among them) match nothing.
        call_ids: Shape (m,), correlation ids of the calls.
        call_starts_ns: Shape (m,), to tell the earliest; None: the first row is.
    """
    if op_ids.size == 0 or call_ids.size == 0:
        return np.full(op_ids.shape, -1, dtype=np.int64)
    low, high = int(call_ids.min()), int(call_ids.max())
    dense = low >= 0 and high - low < _DENSE * (call_ids.size + op_ids.size)
    if dense and _FEW * op_ids.size > call_ids.size:
        table = _row_of_id(call_ids, call_starts_ns, low, high)
        if op_ids.min() >= low and op_ids.max() <= high:
            return table[op_ids - low].astype(np.int64)
        valid = (op_ids >= low) & (op_ids <= high)
        return np.where(valid, table[np.where(valid, op_ids - low, 0)], -1).astype(np.int64)
    valid = (op_ids >= max(low, 0)) & (op_ids <= high)
    rows = _by_start(call_starts_ns, call_ids.size)
    order = rows[np.argsort(call_ids[rows], kind="stable")]
    index = np.minimum(np.searchsorted(call_ids[order], op_ids), call_ids.size - 1)
    row = order[index]
    return np.where(valid & (call_ids[row] == op_ids), row, -1)


def _by_start(starts_ns: IntArray | None, rows_n: int) -> IntArray:
    """Return the rows in order of time; as they are without times."""
    if starts_ns is not None and (starts_ns[1:] < starts_ns[:-1]).any():
        return np.argsort(starts_ns, kind="stable")
    return np.arange(rows_n)


def _row_of_id(ids: IntArray, starts_ns: IntArray | None, low: int, high: int) -> npt.NDArray[Any]:
    """Return the row of each id from `low` to `high`, -1 where there is none; the earliest row.

    Args:
        ids: Shape (n,), all from `low` to `high`.
        starts_ns: Shape (n,), to tell the earliest; None: the first row is.
    """
    # Half as much to fill and to look up where rows have 32 bits.
    dtype = np.int32 if ids.size < 1 << 31 else np.int64
    table = np.full(high - low + 1, -1, dtype=dtype)
    row = np.arange(ids.size, dtype=dtype)
    place = ids - low if low else ids
    if (ids[1:] > ids[:-1]).all():
        table[place] = row  # calls in order of time, the common case
        return table
    table[place[::-1]] = row[::-1]  # the last assignment, the first row, stays
    # Which row is the earliest matters only to an id that several have.
    if starts_ns is not None and (table[place] != row).any():
        latest_first = _by_start(starts_ns, ids.size)[::-1]
        table[place[latest_first]] = latest_first
    return table


def duplicate_keys(call_ids: IntArray) -> IntArray:
    """Return the correlation ids that more than one API call claims, each once, sorted."""
    if (call_ids[1:] > call_ids[:-1]).all():
        return np.empty(0, dtype=np.int64)  # calls in order of time, the common case
    ordered = np.sort(call_ids[call_ids >= 0])
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


_NEVER: Final = int(np.iinfo(np.int64).max)

_Rows = npt.NDArray[np.bool_]


def launched_before(
    start_ns: IntArray,
    correlation_id: IntArray,
    launch_row: npt.NDArray[np.integer[Any]],
    calls: Table | None,
) -> _Rows:
    """Return which operations were launched before the first API call that the profile has.

    Their own call is not there, and they began before any was made, or a smaller number says that
    it came earlier: a process counts its calls up.

    Args:
        launch_row: The row of the call that launched each, -1 for none.
        calls: The API calls of the process; None or empty where none were traced.
    """
    if calls is None or not len(calls):
        return np.zeros(start_ns.shape, dtype=bool)
    before = np.asarray(launch_row < 0) & ~uncalled(correlation_id)
    rows = np.flatnonzero(before)  # mostly few or none
    if rows.size:
        ids, some = calls["correlation_id"], correlation_id[rows]
        earlier = (some >= 0) & (some < ids.min(where=ids >= 0, initial=_NEVER))
        before[rows] = earlier | (start_ns[rows] < first_call_ns(calls))
    return before


def uncalled(correlation_id: IntArray) -> _Rows:
    """Return which operations no call launches: migrations of pages, launches by kernels.

    CUPTI counts calls from 1; NULL is an export without such numbers.
    """
    return np.asarray(correlation_id == 0)


def first_call_ns(calls: Table) -> int:
    """Return the first start of API calls that a capture can have; the largest number for none."""
    starts = calls["start_ns"]
    return int(starts.min(where=sane_instants(starts), initial=_NEVER))


#: Percent of the launched operations whose early starts the robust figure covers: a few odd rows
#: say nothing about a clock. Ours.
_COVERED_PCT: Final = 99
_TIMES: Final = frozenset({"start_ns", "end_ns"})


@dataclass(frozen=True)
class EarlyStarts:
    """Operations that start before their launch call begins.

    Attributes:
        usual_ns: 99 % of the operations whose call is known start no earlier before it; 0 where
            99 % do not start before it at all.
        most_ns: The earliest of all starts so long before its call; 0 for none.
    """

    early_n: int = 0
    usual_ns: int = 0
    most_ns: int = 0


def early_starts(op: Table, calls: Table | None) -> EarlyStarts:
    """Return how long before their calls operations start.

    Args:
        op: Operations, with the row of the call that launched each, or -1.
        calls: The API calls; None where they are not traced, or without times.
    """
    if calls is None or not len(calls) or not len(op) or not set(calls.columns) >= _TIMES:
        return EarlyStarts()
    known_n = int(np.count_nonzero(op["launch_row"] >= 0))
    early_ns = np.sort(_early_ns(op, calls))
    # The nearest rank from above: the value that 99 % do not exceed.
    place = -(-known_n * _COVERED_PCT // 100) - 1 - (known_n - early_ns.size)
    usual_ns = int(early_ns[place]) if place >= 0 and early_ns.size else 0
    return EarlyStarts(early_ns.size, usual_ns, int(early_ns.max(initial=0)))


def _early_ns(op: Table, calls: Table) -> IntArray:
    """Return how long before their calls operations start, of those that do."""
    row, starts, ends = op["launch_row"], calls["start_ns"], calls["end_ns"]
    op_starts, parts = op["start_ns"], []
    for block in blocks(row.size):
        early_ns = np.where(row[block] >= 0, starts[row[block]] - op_starts[block], 0)
        # Where a call has no time, the difference is nonsense; few rows are left to look at.
        some = np.flatnonzero(early_ns > 0)
        of = row[block][some]
        parts.append(early_ns[some[sane_times(starts[of], ends[of])]])
    return joined(parts)
