"""Launches that a thread makes for another one, as PyTorch's autograd threads do. Pure.

`loss.backward()` hands the work to a thread of the autograd engine and waits. That thread launches
the kernels, and the range "backward" is open on the thread that waits. The trace shows it where

- the launching thread has no range open, and of all threads exactly one has;
- it launches at least three times while the innermost range there stays the same;
- the thread with the range makes no CUDA call from the first of these launches to the last.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.grouping import distinct_rows
from nsys_llm.intervals import IntArray
from nsys_llm.range_forest import RangeForest
from nsys_llm.tables import Table

__all__ = ["handed_over"]

#: Fewer launches between two calls of the other thread may be there by chance.
_LEAST_LAUNCHES: Final = 3

_Mask = npt.NDArray[np.bool_]


def handed_over(forest: RangeForest, calls: Table, launch_row: IntArray) -> IntArray:
    """Return the range for which each operation was launched by another thread, or -1.

    Args:
        forest: The ranges of the process.
        calls: Columns start_ns and global_tid.
        launch_row: Shape (n,), rows of the calls; none of them lies in a range of its own thread.

    Returns:
        Shape (n,), positions in the forest.
    """
    if not launch_row.size or not forest.threads.size:
        return np.full(launch_row.shape, -1, dtype=np.int64)
    used, of_op = np.unique(launch_row, return_inverse=True)
    at_ns, tid = calls["start_ns"][used], calls["global_tid"][used]
    piece, holder = _only_open(forest, at_ns)
    rows = np.flatnonzero(piece >= 0)
    if rows.size:
        first, group = distinct_rows([piece[rows], tid[rows]])
        sure = _waits(calls, forest.threads[holder[rows]][first], group, at_ns[rows])
        piece[rows[~sure[group]]] = -1
    return piece[of_op]


def _only_open(forest: RangeForest, at_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the innermost range, and its thread, where one thread alone has one; else -1."""
    piece = np.full(at_ns.shape, -1, dtype=np.int64)
    holder, open_n = piece.copy(), np.zeros(at_ns.shape, dtype=np.int64)
    for code in range(forest.threads.size):
        found = forest.innermost(np.full(at_ns.shape, code, dtype=np.int64), at_ns)
        is_open = found >= 0
        open_n += is_open
        piece[is_open], holder[is_open] = found[is_open], code
    return np.where(open_n == 1, piece, -1), holder


def _waits(calls: Table, holder: IntArray, group: IntArray, at_ns: IntArray) -> _Mask:
    """Tell for each group of launches whether the thread that holds the range waits all along."""
    first = np.full(holder.shape, np.iinfo(np.int64).max, dtype=np.int64)
    last = np.full(holder.shape, np.iinfo(np.int64).min, dtype=np.int64)
    np.minimum.at(first, group, at_ns)
    np.maximum.at(last, group, at_ns)
    waits = np.bincount(group, minlength=holder.size) >= _LEAST_LAUNCHES
    for one in np.unique(holder).tolist():
        starts = np.sort(calls["start_ns"][calls["global_tid"] == one])
        mine = np.flatnonzero(holder == one)
        between_n = np.searchsorted(starts, last[mine], side="right")
        between_n -= np.searchsorted(starts, first[mine], side="left")
        waits[mine] &= between_n == 0
    return np.asarray(waits)
