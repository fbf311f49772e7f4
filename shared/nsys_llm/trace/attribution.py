"""Joins GPU operations with the API calls that launched them, and calls with NVTX ranges. Pure.

All functions work on one process: a correlation id is unique there and nowhere else.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

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
