"""Host time on paths by what the thread did: NVTX ranges, the profiler's work, the driver's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.nvtx.launch_ranges import innermost_events
from nsys_llm.analyses.nvtx.range_names import RangeNames
from nsys_llm.analyses.path.classes import (
    BACK_PRESSURE,
    HOST_NO_CUDA,
    MODULE_LOAD,
    PROFILER,
    SYNC_LATENCY,
)
from nsys_llm.analyses.path.stretches import Keys, Stretches, class_of, make_key, split_key
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.names import step_key
from nsys_llm.trace.ranges import PUSH_POP, closed_ends
from nsys_llm.trace.rank_trace import RankTrace

_DRIVER: Final = {"module_load": MODULE_LOAD, "back_pressure": BACK_PRESSURE}

#: Ranges of host time; the first stands for none.
NO_RANGE: Final = ""


def with_host_parts(
    stretches: Stretches, trace: RankTrace, host: HostTimeline, calls_from: int
) -> tuple[Stretches, tuple[str, ...]]:
    """Split host time where its thread entered or left a range, or other work began.

    Args:
        stretches: The stretches of a rank.
        trace: The rank.
        host: Its calls.
        calls_from: The first segment of calls; those before it are of operations.

    Returns:
        The stretches, and the names of ranges that details of `host_no_cuda` stand for.
    """
    of_ops = int(stretches.first[calls_from])
    if of_ops == stretches.begin_ns.size:
        return stretches, (NO_RANGE,)
    calls = Stretches(
        stretches.begin_ns[of_ops:],
        stretches.key[of_ops:],
        stretches.thread[of_ops:],
        stretches.doubtful[of_ops:],
        stretches.first[calls_from:] - of_ops,
        stretches.top_ns[calls_from:],
    )
    calls, names = _named(_split(calls, trace, host), trace, host)
    first = np.concatenate((stretches.first[:calls_from], calls.first + of_ops))
    whole = Stretches(
        begin_ns=np.concatenate((stretches.begin_ns[:of_ops], calls.begin_ns)),
        key=np.concatenate((stretches.key[:of_ops], calls.key)),
        thread=np.concatenate((stretches.thread[:of_ops], calls.thread)),
        doubtful=np.concatenate((stretches.doubtful[:of_ops], calls.doubtful)),
        first=first,
        top_ns=stretches.top_ns,
    )
    return whole, names


def _split(stretches: Stretches, trace: RankTrace, host: HostTimeline) -> Stretches:
    """Cut stretches of calls at the instants at which what their threads did changes."""
    kind = class_of(stretches.key)
    ends = stretches.ends_ns()
    pieces_n = np.ones(stretches.begin_ns.size, dtype=np.int64)
    last = np.zeros(stretches.begin_ns.size, dtype=np.int64)
    breaks: dict[int, tuple[IntArray, IntArray]] = {}
    for thread in np.unique(stretches.thread).tolist():
        breaks[thread] = _breaks(trace, host, thread)
        for is_free, at in zip((False, True), breaks[thread], strict=True):
            chosen = (stretches.thread == thread) & ((kind == HOST_NO_CUDA) == is_free)
            rows = np.flatnonzero(chosen & (kind != SYNC_LATENCY))
            if at.size and rows.size:
                low = np.searchsorted(at, stretches.begin_ns[rows], side="right")
                last[rows] = np.searchsorted(at, ends[rows], side="left")
                pieces_n[rows] = np.maximum(last[rows] - low, 0) + 1
    return _cut(stretches, kind, pieces_n, last, breaks)


def _breaks(trace: RankTrace, host: HostTimeline, thread: int) -> tuple[IntArray, IntArray]:
    """Return when the profiler's and driver's work begins or ends, and that with ranges too."""
    spans = [host.profiler, *(work.spans for work in host.driver if work.thread == thread)]
    work = _distinct(np.concatenate(spans).reshape(-1))
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return work, work
    tid = int(host.calls.threads[thread])
    thread_events = events.take((events["event_type"] == PUSH_POP) & (events["global_tid"] == tid))
    ends, _ = closed_ends(thread_events["end_ns"], trace.last_end_ns)
    return work, _distinct(np.concatenate((work, thread_events["start_ns"], ends)))


def _distinct(instants: IntArray) -> IntArray:
    """Return instants sorted, each once; np.unique hashes first, which takes far longer."""
    ordered = np.sort(instants)
    return ordered[np.append(ordered[1:] != ordered[:-1], True)[: ordered.size]]


def _cut(
    stretches: Stretches,
    kind: IntArray,
    pieces_n: IntArray,
    last: IntArray,
    breaks: dict[int, tuple[IntArray, IntArray]],
) -> Stretches:
    """Cut stretches at the instants of their threads.

    Args:
        stretches: The stretches.
        kind: Shape (stretches,), their classes.
        pieces_n: Shape (stretches,), in how many pieces.
        last: Shape (stretches,), one beyond the last instant inside of it.
        breaks: By thread, see `_breaks`.
    """
    if (pieces_n == 1).all():
        return stretches
    owner = np.repeat(np.arange(pieces_n.size), pieces_n)
    offset = np.concatenate(([0], np.cumsum(pieces_n)))
    nth = np.arange(owner.size) - offset[owner]
    begin = stretches.begin_ns[owner]
    upper = np.flatnonzero(nth < pieces_n[owner] - 1)
    thread, free = stretches.thread[owner[upper]], kind[owner[upper]] == HOST_NO_CUDA
    for code, both in breaks.items():
        for is_free, at in zip((False, True), both, strict=True):
            rows = upper[(thread == code) & (free == is_free)]
            begin[rows] = at[last[owner[rows]] - 1 - nth[rows]]
    return Stretches(
        begin,
        stretches.key[owner],
        stretches.thread[owner],
        stretches.doubtful[owner],
        offset[stretches.first],
        stretches.top_ns,
    )


def _named(
    stretches: Stretches, trace: RankTrace, host: HostTimeline
) -> tuple[Stretches, tuple[str, ...]]:
    """Give each piece of host time its class and its range."""
    on_host = np.flatnonzero((stretches.thread >= 0) & (class_of(stretches.key) != SYNC_LATENCY))
    kind, edge, new_detail = split_key(stretches.key[on_host])
    at_ns, thread = stretches.begin_ns[on_host], stretches.thread[on_host]
    new_kind = kind.copy()
    free = np.flatnonzero(kind == HOST_NO_CUDA)
    names, new_detail[free] = _ranges(trace, host, at_ns[free], thread[free])
    for work in host.driver:
        inside = (thread == work.thread) & starts_inside(at_ns, work.spans)
        new_kind[inside] = _DRIVER.get(CAUSE_NAMES[work.cause], BACK_PRESSURE)
        new_detail[inside & (kind == HOST_NO_CUDA)] = 0
    inside = starts_inside(at_ns, host.profiler)
    new_kind[inside], new_detail[inside] = PROFILER, 0
    key: Keys = stretches.key.copy()
    key[on_host] = make_key(new_kind, edge, new_detail)
    return replace(stretches, key=key), names


def _ranges(
    trace: RankTrace, host: HostTimeline, at_ns: IntArray, thread: npt.NDArray[np.int16]
) -> tuple[tuple[str, ...], IntArray]:
    """Return names of ranges, and the innermost one of a thread at each instant."""
    events = trace.tables.get("nvtx_events")
    nothing = (NO_RANGE,), np.zeros(at_ns.shape, dtype=np.int64)
    if events is None or not len(events) or not at_ns.size:
        return nothing
    events = events.take(events["event_type"] == PUSH_POP)
    row = innermost_events(events, at_ns, host.calls.threads[thread], trace.last_end_ns)
    rows, code = distinct_codes(row)
    known = rows[rows >= 0]
    range_names = RangeNames.of(events, known, trace.strings)
    keys = [step_key(text) for text in range_names.texts]
    names = (NO_RANGE, *sorted(set(keys) - {NO_RANGE}))
    place = {name: index for index, name in enumerate(names)}
    of_text = np.array([place[key] for key in keys], dtype=np.int64)
    of_row = np.zeros(rows.size, dtype=np.int64)
    of_row[rows >= 0] = of_text[range_names.code] if known.size else 0
    return names, of_row[code]
