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
    rows = np.arange(call_ids.size)
    if call_starts_ns is not None and (call_starts_ns[1:] < call_starts_ns[:-1]).any():
        rows = np.argsort(call_starts_ns, kind="stable")
    order = rows[np.argsort(call_ids[rows], kind="stable")]
    row = order[np.minimum(np.searchsorted(call_ids[order], op_ids), call_ids.size - 1)]
    return np.where((op_ids >= 0) & (call_ids[row] == op_ids), row, -1)


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
