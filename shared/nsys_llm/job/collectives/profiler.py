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

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nsys_llm.facts.held import HeldDevices
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.collectives.waits import Waits, collective_waits
from nsys_llm.numeric.intervals import IntArray, covered_ns

_NONE: Final = np.empty((0, 2), dtype=np.int64)


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
            some = [collectives.sequences[number] for number in numbers]
            times = [
                np.stack((one.start_ns[place], one.end_ns[place])) + one.ahead_ns[place]
                for one in some
            ]
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
    """Return the waits as they would be without the delays, and when each rank would come."""
    starts = [start - late for start, late in zip(start_ns, delay, strict=True)]
    return replace(collective_waits(starts, end_ns), met=waits.met), starts


def profiler_waits_ns(waits: Waits, net: Waits) -> IntArray:
    """Return the profiler's part of the waiting in each collective; 0 where ranks do not meet."""
    less = np.clip(waits.wait_ns - net.wait_ns, 0, np.maximum(waits.wait_ns, 0))
    return np.where(waits.met, less, 0)


def _delays(start_ns: IntArray, end_ns: IntArray, spans: IntArray) -> IntArray:
    """Return how long a device was held before each collective, after the one before it."""
    order = np.lexsort((end_ns, start_ns))
    starts, ends = start_ns[order], np.maximum.accumulate(end_ns[order])
    left = np.concatenate(([min(int(spans[0, 0]), int(starts[0]))], ends[:-1]))
    late = np.empty_like(starts)
    late[order] = covered_ns(starts, spans) - covered_ns(np.minimum(left, starts), spans)
    return late
