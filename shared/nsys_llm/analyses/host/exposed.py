"""The time in which a GPU was exposed to its host: parts of gaps before the launching call returns.

Of each gap whose next operation was launched in it: from its begin until the call that launched
returns, on the thread that makes this call; without the time in which a server had no request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.device.idle_split import launching_calls, situate
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.gaps import Gaps, Positions
from nsys_llm.numeric.grouping import distinct, distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import HOST_NO_CUDA, NO_WORK, PROFILER_OVERHEAD


@dataclass(frozen=True)
class Exposed:
    """Stretches of one thread in which a GPU waited for it; shape (n,), sorted and disjoint.

    Attributes:
        thread: Code of the thread in the host's calls.
        start_ns: Begin, the profile's clock.
        end_ns: Its end, later.
        other: Thread that launched the operation before, if it is another one; -1 otherwise.
    """

    thread: int
    start_ns: IntArray
    end_ns: IntArray
    other: IntArray

    def take(self, some: IntArray | slice, thread: int) -> Exposed:
        """Return some of them, as those of a thread."""
        return Exposed(thread, self.start_ns[some], self.end_ns[some], self.other[some])


def exposed_stretches(gaps: Gaps, launch_row: Positions, host: HostTimeline) -> list[Exposed]:
    """Return when a device was exposed to each thread that launched what ends a gap.

    Args:
        gaps: Of the device.
        launch_row: Shape (operations,), row of the launching call in the table; -1 without one.
        host: The calls.
    """
    parts = [np.empty((4, 0), dtype=np.int64)]
    for block in blocks(len(gaps)):
        some = gaps.take(block)
        # Most gaps were launched into before they began, where a host runs ahead.
        call = launching_calls(some.after, launch_row, host)
        rows = np.flatnonzero(call >= 0)
        some = some.take(rows[host.calls.end_ns[call[rows]] > some.start_ns[rows]])
        where = situate(some, launch_row, host)
        rows = np.flatnonzero((where.whole < 0) & (where.done_ns > some.start_ns))
        thread = host.calls.thread[where.call[rows]] if rows.size else rows
        ends = where.done_ns[rows]
        parts.append(np.stack((thread, some.start_ns[rows], ends, where.other[rows])))
    thread, *columns = np.concatenate(parts, axis=1)
    every, (threads, code) = Exposed(-1, *columns), distinct_codes(thread)
    of_threads = zip(threads.tolist(), split_by_code(code, threads.size), strict=True)
    return [every.take(rows, of) for of, rows in of_threads]


def pieces_of(exposed: Exposed, edges: IntArray, host: HostTimeline) -> tuple[IntArray, ...]:
    """Cut stretches where a call begins or ends, where their cause changes, and at some instants.

    Causes are those of `idle_split`, which sums the same time up by gap.

    Returns:
        Begin and end of each piece, its cause, and the place of the outermost call that the thread
        was in, -1 outside of any; shape (pieces,) each.
    """
    thread, calls = exposed.thread, host.calls
    low, high = int(exposed.start_ns[0]), int(exposed.end_ns[-1])
    of_thread = slice(calls.bounds[thread], calls.bounds[thread + 1])
    first = of_thread.start + np.searchsorted(calls.end_ns[of_thread], low, side="right")
    last = of_thread.start + np.searchsorted(calls.start_ns[of_thread], high, side="left")
    spans = np.column_stack((calls.start_ns[first:last], calls.end_ns[first:last]))
    driver = [(work.cause, work.spans) for work in host.driver if work.thread == thread]
    layers = [*driver, (NO_WORK, host.no_work), (PROFILER_OVERHEAD, host.profiler)]
    layers = [(cause, times[near(times, low, high)]) for cause, times in layers]
    others = {
        code: host.spans(code, blocking=True)
        for code in distinct(exposed.other).tolist()
        if code >= 0
    }
    handed = [times[near(times, low, high)] for times, _ in others.values()]
    changes = [spans[_reaching(spans, exposed)], *(times for _, times in layers), *handed]
    every = np.concatenate([edges, *(times.reshape(-1) for times in changes)])
    owner, start_ns, end_ns = cut(exposed.start_ns, exposed.end_ns, every)
    place = place_inside(start_ns, spans)
    call = np.where(place >= 0, first + place, -1)
    cause = np.where(call >= 0, host.cause[call], HOST_NO_CUDA).astype(np.int64)
    for code, (times, causes) in others.items():
        held = place_inside(start_ns, times)
        held = np.where((call < 0) & (exposed.other[owner] == code), held, -1)
        cause[held >= 0] = causes[held[held >= 0]]
    for code, times in layers:
        cause[place_inside(start_ns, times) >= 0] = code
    kept = cause != NO_WORK
    return start_ns[kept], end_ns[kept], cause[kept], call[kept]


def _reaching(spans: IntArray, exposed: Exposed) -> IntArray:
    """Return which of sorted, disjoint spans reach into stretches, far fewer; some twice."""
    first = np.searchsorted(spans[:, 1], exposed.start_ns, side="right")
    spans_n = np.maximum(np.searchsorted(spans[:, 0], exposed.end_ns, side="left") - first, 0)
    nth = np.arange(spans_n.sum()) - np.repeat(np.cumsum(spans_n) - spans_n, spans_n)
    return np.repeat(first, spans_n) + nth


def cut(start_ns: IntArray, end_ns: IntArray, edges: IntArray) -> tuple[IntArray, ...]:
    """Cut stretches at some instants.

    Args:
        start_ns: Shape (n,), at least one; stretches are sorted, disjoint, and none is empty.
        end_ns: Shape (n,).
        edges: Any instants, in any order.

    Returns:
        The stretch that each piece comes from, its begin and its end; shape (pieces,) each.
    """
    at = np.searchsorted(start_ns, edges, side="right") - 1
    inside = edges[(at >= 0) & (edges > start_ns[at]) & (edges < end_ns[at])]
    begins = np.sort(np.concatenate((start_ns, inside)), kind="stable")
    begins = begins[np.append(True, begins[1:] != begins[:-1])]
    owner = np.searchsorted(start_ns, begins, side="right") - 1
    ends = np.minimum(np.append(begins[1:], end_ns[-1]), end_ns[owner])
    return owner, begins, ends


def near(spans: IntArray, low_ns: int, high_ns: int) -> slice:
    """Return which of sorted, disjoint spans, shape (n, 2), reach into a stretch."""
    first = np.searchsorted(spans[:, 1], low_ns, side="right")
    last = np.searchsorted(spans[:, 0], high_ns, side="left")
    return slice(int(first), max(int(last), int(first)))


def place_inside(at_ns: IntArray, spans: IntArray) -> IntArray:
    """Return which of sorted, disjoint spans holds each instant, -1 for none."""
    if not len(spans):
        return np.full(at_ns.shape, -1, dtype=np.int64)
    place = np.searchsorted(spans[:, 0], at_ns, side="right") - 1
    return np.where((place >= 0) & (at_ns < spans[place, 1]), place, -1)
