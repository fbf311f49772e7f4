"""NVTX ranges around some launches, out of many events with few texts read.

Texts of events are looked at where they are needed only: a capture may have millions of ranges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.ranges import PUSH_POP, START_END, closed_ends, lasting


def innermost_events(
    events: Table, at_ns: IntArray, thread: IntArray, capture_end_ns: int
) -> IntArray:
    """Return for each instant the row of the innermost range that is open, or -1.

    A push/pop range holds what happens on its own thread. A start/end range holds what happens on
    any thread, and counts only where no push/pop range is open.

    Args:
        at_ns: Shape (k,), few beside the events.
        thread: Shape (k,), globalTid.
        capture_end_ns: Where ranges without an end stop.
    """
    row_of = np.full(at_ns.shape, -1, dtype=np.int64)
    starts = events["start_ns"]
    ends, _ = closed_ends(events["end_ns"], capture_end_ns)
    real = lasting(starts, ends)
    pushed = real & (events["event_type"] == PUSH_POP)
    threads = distinct(thread).tolist()
    for value in threads:
        selected = slice(None) if len(threads) == 1 else np.flatnonzero(thread == value)
        thread_rows = np.flatnonzero(pushed & (events["global_tid"] == value))
        row_of[selected] = innermost_rows(thread_rows, starts, ends, at_ns[selected])
    rest = np.flatnonzero(row_of < 0)
    shared = np.flatnonzero(real & (events["event_type"] == START_END))
    row_of[rest] = innermost_rows(shared, starts, ends, at_ns[rest])
    return row_of


def innermost_rows(
    rows: npt.NDArray[np.int64], starts: IntArray, ends: IntArray, at_ns: IntArray
) -> IntArray:
    """Return which of some rows is open at each instant, the innermost, or -1; none is empty."""
    row_starts, row_ends = starts[rows], ends[rows]
    if (np.diff(row_starts) <= 0).any():
        order = np.lexsort((-row_ends, row_starts))
        rows, row_starts, row_ends = rows[order], row_starts[order], row_ends[order]
    place = innermost(at_ns, row_starts, row_ends)
    return np.where(place < 0, -1, np.append(rows, -1)[place])
