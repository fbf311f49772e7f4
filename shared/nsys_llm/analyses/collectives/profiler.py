"""How late ranks come to collectives because of the profiler. Pure numpy, exact integers.

A buffer flush that holds a launching thread leaves the rank's GPU idle, and the rank comes later to
its next collective by as much. So the delay of a rank is the time from where it left the collective
before (of the same ranks) to where it came to this one in which its device was idle because the
profiler held a call, or worked on a thread that makes calls. Without the delays of all ranks some
would come earlier; by how much the waiting falls then is the profiler's part of it. Before its
first collective a rank's delay counts from its first operation.

Limits. A delay that passes on through collectives of other ranks is not followed, and a flush that
the GPU's queue hides delays nothing: the part is what the trace shows, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives, Sequenced
from nsys_llm.analyses.collectives.waits import Waits, collective_waits
from nsys_llm.analyses.device.profiler_time import held_idle, held_threads
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.intervals import IntArray, covered_ns, union_intervals
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_NONE: Final = np.empty((0, 2), dtype=np.int64)


#: When devices were idle because the profiler held a call or a thread of their process, by rank and
#: CUDA device id: shape (n, 2), sorted and disjoint, the report's clock; devices without any are
#: left out.
HeldDevices = Mapping[tuple[RankKey, int], IntArray]


def map_held(view: RankView) -> HeldDevices:
    """Return the spans of one rank's devices; none where it has no collectives."""
    trace = view.trace
    if not view.collectives or "api_calls" not in trace.tables:
        return {}
    calls, _ = trace.host_calls("api_calls")
    held = np.concatenate((view.held.spans, held_threads(trace, calls)))
    if not len(held):
        return {}
    spans_of, every = {}, union_intervals(*held.T)
    for device in trace.device_ids:
        spans = held_idle(every, _busy(trace, device))
        if len(spans):
            spans_of[view.key, device] = spans
    return spans_of


def delays_ns(collectives: MatchedCollectives, held: HeldDevices) -> list[tuple[IntArray, ...]]:
    """Return by sequence and lane how much later each rank came because of the profiler.

    Returns:
        For each of `collectives.sequences`, for each of its lanes, shape (collectives,).
    """
    delays = [
        tuple(np.zeros_like(start) for start in sequence.start_ns)
        for sequence in collectives.sequences
    ]
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, sequence in enumerate(collectives.sequences):
        if len(sequence):
            groups.setdefault(sequence.owners, []).append(number)
    for owners, numbers in groups.items():
        for place, owner in enumerate(owners):
            device = collectives.devices[owner]
            spans = held.get((device.rank.key, device.device_id), _NONE)
            if not len(spans):
                continue
            times = [_own_times(collectives.sequences[number], place) for number in numbers]
            starts, ends = np.concatenate(times, axis=1)
            late = _delays(starts, ends, spans)
            sizes = np.cumsum([part.shape[1] for part in times])[:-1]
            for number, part in zip(numbers, np.split(late, sizes), strict=True):
                delays[number][place][:] = part
    return delays


def without_profiler(
    waits: Waits,
    start_ns: Sequence[IntArray],
    end_ns: Sequence[IntArray],
    delay: Sequence[IntArray],
) -> tuple[Waits, list[IntArray]]:
    """Return the waits as they would be without the delays, and when each rank would come.

    Args:
        start_ns: When each rank comes, as for `collective_waits`.
    """
    starts = [start - late for start, late in zip(start_ns, delay, strict=True)]
    return replace(collective_waits(starts, end_ns), met=waits.met), starts


def profiler_waits_ns(waits: Waits, net: Waits) -> IntArray:
    """Return the profiler's part of the waiting in each collective; 0 where ranks do not meet."""
    less = np.clip(waits.wait_ns - net.wait_ns, 0, np.maximum(waits.wait_ns, 0))
    return np.where(waits.met, less, 0)


def _own_times(sequence: Sequenced, place: int) -> IntArray:
    """Return starts and ends of a lane in its report's own clock: shape (2, collectives)."""
    return np.stack((sequence.start_ns[place], sequence.end_ns[place])) + sequence.ahead_ns[place]


def _delays(start_ns: IntArray, end_ns: IntArray, spans: IntArray) -> IntArray:
    """Return how long a device was held before each collective, after the one before it."""
    order = np.lexsort((end_ns, start_ns))
    starts, ends = start_ns[order], np.maximum.accumulate(end_ns[order])
    left = np.concatenate(([min(int(spans[0, 0]), int(starts[0]))], ends[:-1]))
    late = np.empty_like(starts)
    late[order] = covered_ns(starts, spans) - covered_ns(np.minimum(left, starts), spans)
    return late


def _busy(trace: RankTrace, device: int) -> IntArray:
    """Return when a device ran anything: shape (n, 2), sorted and disjoint."""
    if trace.device_ids == (device,):
        return trace.gpu_busy
    ops = [op for name, op in trace.unfiltered.items() if name in OP_TABLES and len(op)]
    device_ops = [op.take(op["device_id"] == device) for op in ops]
    starts = np.concatenate([_NONE[:, 0], *(op["start_ns"] for op in device_ops)])
    return union_intervals(
        starts, np.concatenate([_NONE[:, 0], *(op["end_ns"] for op in device_ops)])
    )
