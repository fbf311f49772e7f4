"""Which transfers are matched before others: programs, streams, and what is left. Pure numpy.

Context parallelism exchanges keys and values on one stream of all ranks, beside the transfers
between stages on others, with kernels of one name. In one track neither is a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.alignment import Executions
from nsys_llm.analyses.collectives.lanes import LaneRows
from nsys_llm.analyses.collectives.matching import Lane, Matched
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

#: Share of each member's transfers that a sequence made of them has to hold, in percent.
WHOLE_PCT: Final = 90


def common_streams(lanes: Sequence[Lane]) -> list[list[Lane]]:
    """Return the lanes of each stream that all devices have, if all have others, too.

    Of what stages exchange the first has no stream to receive on, and the last none to send.
    """
    streams: dict[int, set[int]] = {}
    for lane in lanes:
        streams.setdefault(lane.owner, set()).add(lane.stream)
    shared = set.intersection(*streams.values())
    if any(len(some) == len(shared) for some in streams.values()):
        return []
    return [[lane for lane in lanes if lane.stream == stream] for stream in sorted(shared)]


def is_all_of(lanes: Sequence[Lane], matched: Sequence[Matched]) -> bool:
    """Return whether pairs of devices hold nearly all transfers of each."""
    pairs = [item for item in matched if len(item.lanes) == 2]
    held = {
        lane.owner: rows.size
        for item in pairs
        for lane, rows in zip(item.lanes, item.rows, strict=True)
    }
    every_n: dict[int, int] = {}
    for lane in lanes:
        every_n[lane.owner] = every_n.get(lane.owner, 0) + len(lane.track)
    return len(pairs) == len(matched) and all(
        100 * held.get(owner, 0) >= WHOLE_PCT * n for owner, n in every_n.items()
    )


def without(lanes: Sequence[Lane], matched: Sequence[Matched]) -> list[Lane]:
    """Return lanes without the transfers that are matched; none that is empty then."""
    rows_of: dict[int, list[IntArray]] = {}
    for item in matched:
        for lane, rows in zip(item.lanes, item.rows, strict=True):
            rows_of.setdefault(lane.owner, []).append(rows)
    left = []
    ordered = sorted(lanes, key=lambda lane: (lane.owner, lane.kernel, lane.stream))
    for owner, group in groupby(ordered, key=lambda lane: lane.owner):
        owner_lanes = list(group)
        starts = np.concatenate([lane.track.start_ns for lane in owner_lanes])
        ends = np.concatenate([lane.track.end_ns for lane in owner_lanes])
        keep = np.ones(ends.size, dtype=bool)
        order = np.lexsort((starts, ends))
        keep[order[joined(rows_of.get(owner, []))]] = False
        sizes = np.cumsum([len(lane.track) for lane in owner_lanes])[:-1]
        for lane, some in zip(owner_lanes, np.split(keep, sizes), strict=True):
            if some.any():
                track = Executions(lane.track.start_ns[some], lane.track.end_ns[some])
                left.append(replace(lane, track=track))
    return left


def programs(devices: Sequence[Sequence[LaneRows]]) -> dict[int, int]:
    """Return the number of the program of each device that sends or receives, by position.

    Ranks of one stage of a pipeline launch the same kernels between two transfers, however fast
    each is; those of the next stage do not, at the turns of the schedule. How many were launched is
    known by the order of the calls, whatever the GPUs did meanwhile. Two captures of one program
    may begin or end elsewhere: what both have decides.
    """
    firsts: list[IntArray] = []
    result = {}
    for place, lanes in enumerate(devices):
        before_n = joined([lane.before_n for lane in lanes if lane.operation == SEND_RECV])
        if before_n.size:
            ordered = np.sort(before_n)
            between_n: IntArray = ordered[1:] - ordered[:-1]
            same = (at for at, first in enumerate(firsts) if _is_same(first, between_n))
            result[place] = next(same, len(firsts))
            if result[place] == len(firsts):
                firsts.append(between_n)
    return result


def _is_same(one: IntArray, other: IntArray) -> bool:
    n = min(one.size, other.size)
    return np.array_equal(one[:n], other[:n]) or np.array_equal(
        one[one.size - n :], other[other.size - n :]
    )
