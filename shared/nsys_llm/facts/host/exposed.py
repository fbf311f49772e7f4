"""The time in which a GPU was exposed to its host: parts of gaps before the launching call returns.

Of each gap whose next operation was launched in it: from its begin until the call that launched
returns, on the thread that makes this call; without the time in which a server had no request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.idle_split import situate
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.gaps import Gaps, Positions
from nsys_llm.numeric.grouping import (
    distinct,
    distinct_codes,
    position_in_group,
    sorted_distinct,
    split_by_code,
)
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.taxonomy.idle_causes import AWAY, HOST_NO_CUDA, PROFILER_OVERHEAD


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
    global_tid: int
    start_ns: IntArray
    end_ns: IntArray
    other: IntArray

    def take(self, some: slice) -> Exposed:
        """Return some of them."""
        parts = (self.start_ns[some], self.end_ns[some], self.other[some])
        return Exposed(self.thread, self.global_tid, *parts)


def exposed_stretches(gaps: Gaps, launch_row: Positions, host: HostTimeline) -> list[Exposed]:
    """Return when a device was exposed to each thread that launched what ends a gap.

    Args:
        launch_row: Shape (operations,), row of the launching call in the table; -1 without one.
    """
    parts = [np.empty((4, 0), dtype=np.int64)]
    for block in blocks(len(gaps)):
        some = gaps.take(block)
        where = situate(some, launch_row, host)
        rows = np.flatnonzero((where.whole < 0) & (where.done_ns > some.start_ns))
        thread, ends = host.calls.thread[where.call[rows]], where.done_ns[rows]
        parts.append(np.stack((thread, some.start_ns[rows], ends, where.other[rows])))
    thread, *columns = np.concatenate(parts, axis=1)
    threads, code = distinct_codes(thread)
    return [
        Exposed(of, int(host.calls.threads[of]), *(column[rows] for column in columns))
        for of, rows in zip(threads.tolist(), split_by_code(code, threads.size), strict=True)
    ]


def pieces_of(exposed: Exposed, edges: IntArray, host: HostTimeline) -> tuple[IntArray, ...]:
    """Cut stretches where a call begins or ends, where their cause changes, and at some instants.

    Causes are those of `idle_split`, which sums the same time up by gap.

    Returns:
        Begin and end of each piece, its cause, and the place of the outermost call that the thread
        was in, -1 outside of any; shape (pieces,) each.
    """
    stretches = np.column_stack((exposed.start_ns, exposed.end_ns))
    layers = [(work.cause, work.spans) for work in host.driver if work.thread == exposed.thread]
    layers += [*host.away.items(), (PROFILER_OVERHEAD, host.profiler)]
    layers = [(cause, _near(spans, stretches)) for cause, spans in layers]
    before = [code for code in distinct(exposed.other).tolist() if code >= 0]
    others = {code: host.spans(code, blocking=True) for code in before}
    handed = (_near(spans, stretches) for spans, _ in others.values())
    changes = (spans.reshape(-1) for spans in (*(spans for _, spans in layers), *handed))
    every = np.concatenate((edges, *_call_edges(exposed, host), *changes))
    at_ns = sorted_distinct(np.append(exposed.start_ns, every[starts_inside(every, stretches)]))
    owner = np.searchsorted(exposed.start_ns, at_ns, side="right") - 1
    ends = np.minimum(np.append(at_ns[1:], exposed.end_ns[-1]), exposed.end_ns[owner])
    call = host.calls.open_at(exposed.thread, at_ns)
    cause = np.where(call >= 0, host.cause[call], HOST_NO_CUDA).astype(np.int64)
    for code, (spans, causes) in others.items():
        rows = np.flatnonzero((call < 0) & (exposed.other[owner] == code))
        rows = rows[starts_inside(at_ns[rows], spans)]
        cause[rows] = causes[np.searchsorted(spans[:, 0], at_ns[rows], side="right") - 1]
    for code, spans in layers:
        cause[starts_inside(at_ns, spans)] = code
    kept = ~np.isin(cause, AWAY)
    return at_ns[kept], ends[kept], cause[kept], call[kept]


def _call_edges(exposed: Exposed, host: HostTimeline) -> tuple[IntArray, IntArray]:
    """Return begin and end of the calls that reach into stretches, far fewer; some twice."""
    rows = slice(*host.calls.bounds[exposed.thread : exposed.thread + 2].tolist())
    starts, ends = host.calls.start_ns[rows], host.calls.end_ns[rows]
    first = np.searchsorted(ends, exposed.start_ns, side="right")
    calls_n = np.maximum(np.searchsorted(starts, exposed.end_ns, side="left") - first, 0)
    owner = np.repeat(np.arange(first.size), calls_n)
    place = first[owner] + position_in_group(owner)
    return starts[place], ends[place]


def _near(spans: IntArray, stretches: IntArray) -> IntArray:
    """Return those of sorted, disjoint spans that reach into the time of stretches."""
    first = np.searchsorted(spans[:, 1], stretches[0, 0], side="right")
    return spans[first : np.searchsorted(spans[:, 0], stretches[-1, 1], side="left")]
