"""NVTX ranges around some launches, and the steps, out of many events with few texts read.

Texts of events are looked at where they are needed only: a capture may have millions of ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.range_choice import RangeChoice, parse_choice
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.attribution import open_ranges_n
from nsys_llm.trace.ranges import PUSH_POP, START_END, Ranges, closed_ends, read_ranges, step_ranges
from nsys_llm.trace.rank_trace import RankTrace

#: Share of the launched GPU time that repeated ranges must hold to be the steps of a job; ours.
_LEAST_HELD_PCT: Final = 50


def innermost_events(
    events: Table, at_ns: IntArray, thread: IntArray, capture_end_ns: int
) -> IntArray:
    """Return for each instant the row of the innermost range that is open, or -1.

    A push/pop range holds what happens on its own thread. A start/end range holds what happens on
    any thread, and counts only where no push/pop range is open.

    Args:
        events: NVTX events of one process.
        at_ns: Shape (k,), few beside the events.
        thread: Shape (k,), globalTid.
        capture_end_ns: Where ranges without an end stop.
    """
    found = np.full(at_ns.shape, -1, dtype=np.int64)
    starts = events["start_ns"]
    ends, _ = closed_ends(events["end_ns"], capture_end_ns)
    real = ends > starts
    pushed = real & (events["event_type"] == PUSH_POP)
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        own = np.flatnonzero(pushed & (events["global_tid"] == one))
        found[mine] = _innermost(own, starts, ends, at_ns[mine])
    rest = np.flatnonzero(found < 0)
    shared = np.flatnonzero(real & (events["event_type"] == START_END))
    found[rest] = _innermost(shared, starts, ends, at_ns[rest])
    return found


def find_steps(
    events: Table, strings: Mapping[int, str], capture_end_ns: int, choice: RangeChoice | None
) -> Ranges:
    """Return the steps as `nsys_llm.trace.ranges.step_ranges` finds them among all ranges.

    Args:
        events: NVTX events of one process.
        strings: Texts behind ids.
        capture_end_ns: Where ranges without an end stop.
        choice: The range that a user calls a step; None: the outermost that repeats.
    """
    if choice is not None:
        return step_ranges(read_ranges(events, strings, capture_end_ns), choice)
    starts = events["start_ns"]
    ends, _ = closed_ends(events["end_ns"], capture_end_ns)
    rows = np.flatnonzero((events["event_type"] == PUSH_POP) & (ends > starts))
    depth = open_ranges_n(starts[rows], ends[rows], events["global_tid"][rows])
    for level in np.unique(depth):
        # The outermost level with a name that repeats decides; mostly that is the first.
        own = events.take(rows[depth == level])
        steps = step_ranges(read_ranges(own, strings, capture_end_ns), None)
        if len(steps.start_ns):
            return steps
    return step_ranges(read_ranges(events.take(rows[:0]), strings, capture_end_ns), None)


def event_text(events: Table, row: int, strings: Mapping[int, str]) -> str:
    """Return the text of an event."""
    text_id = int(events["text_id"][row])
    if text_id != NULL_INT:
        return strings.get(text_id, f"[unknown name {text_id}]")
    text: Any = events["text"][row]
    return "" if text is None else str(text)


def _innermost(
    rows: npt.NDArray[np.int64], starts: IntArray, ends: IntArray, at_ns: IntArray
) -> IntArray:
    """Return which of some rows is open at each instant, or -1."""
    own, own_ends = starts[rows], ends[rows]
    if (np.diff(own) <= 0).any():
        order = np.lexsort((-own_ends, own))
        rows, own, own_ends = rows[order], own[order], own_ends[order]
    place = innermost(at_ns, own, own_ends)
    return np.where(place < 0, -1, np.append(rows, -1)[place])


def rank_steps(
    trace: RankTrace, launched_ns: IntArray, time_ns: IntArray, options: Mapping[str, Any]
) -> tuple[Ranges | None, IntArray]:
    """Return the steps of a rank, and the step in which each operation was launched, -1 for none.

    Without --step, the outermost range that repeats is a step only if the steps hold at least half
    of the GPU time that was launched by a recorded call: where operators alone are marked, the most
    frequent of them is no step. None where there is no step.

    Args:
        trace: The rank.
        launched_ns: Shape (n,), when each of its operations was launched, whatever the filters
            leave; NULL_INT where no call is recorded.
        time_ns: Shape (n,), how long each ran.
        options: step.
    """
    events = trace.tables.get("nvtx_events")
    nothing = np.full(launched_ns.shape, -1, dtype=np.int64)
    if events is None or not len(events):
        return None, nothing
    choice = parse_choice(options["step"]) if options.get("step") else None
    steps = find_steps(events, trace.strings, trace.last_end_ns, choice)
    if not len(steps.start_ns):
        return None, nothing
    known = launched_ns != NULL_INT
    found = np.where(known, innermost(launched_ns, steps.start_ns, steps.end_ns), -1)
    held_ns, all_ns = int(time_ns[found >= 0].sum()), int(time_ns[known].sum())
    if choice is None and 100 * held_ns < _LEAST_HELD_PCT * all_ns:
        return None, nothing
    return steps, found
