"""What had to end on an operation's own stream, and on streams in order with it. Pure numpy.

A graph launch is as one operation of each stream that its nodes run on: the first node on each
comes after all that these streams ran before, and what follows on any of them after all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.critical_path.path.ops import Bools, PathOps
from nsys_llm.critical_path.path.sync_rows import last_before
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class StreamOrder:
    """The order of streams; arrays of shape (operations,).

    Attributes:
        before: What ended last of all that had to end before an operation began, by the order of
            streams alone; -1 for nothing.
        tail: For each, what ends last of the graph launch that it is a node of, if its nodes run
            on several streams; itself otherwise. None where each is its own.
        group: Code of that graph launch, -1 for none; None where there is none.
    """

    before: Positions
    tail: Positions | None
    group: Positions | None

    def tails(self, op: IntArray) -> IntArray:
        """Return the tail of some operations; -1 stays -1."""
        if self.tail is None:
            return op
        return np.where(op >= 0, self.tail[np.maximum(op, 0)], op)


def stream_order(
    ops: PathOps, issue_ns: IntArray, null_stream: Bools, blocking: Bools
) -> StreamOrder:
    """Return what each operation had to wait for by the order of streams.

    Args:
        null_stream: Shape (streams,), which are the legacy default stream.
        blocking: Shape (streams,), which wait for that, and it for them.
    """
    before = np.arange(-1, len(ops) - 1, dtype=np.int32)
    before[ops.bounds[:-1][np.diff(ops.bounds) > 0]] = -1
    group = _groups(ops)
    tail = None
    if group is not None:
        tail = _tails(ops, group)
        before = _around_graphs(ops, before, group, tail)
    for device in np.unique(ops.device_ids[null_stream]).tolist():
        on_device = ops.device_ids == device
        _legacy(
            ops, issue_ns, before, np.flatnonzero(on_device & null_stream), on_device & blocking
        )
    return StreamOrder(before, tail, group)


def _groups(ops: PathOps) -> Positions | None:
    """Return the launch of each node whose graph runs on several streams; None for none."""
    if not ops.node.any() or ops.stream_ids.size < 2:
        return None
    nodes = np.flatnonzero(ops.node & (ops.place >= 0))
    if not nodes.size:
        return None
    launches, code = distinct_codes(ops.place[nodes].astype(np.int64))
    first = np.full(launches.size, -1, dtype=np.int64)
    first[code] = ops.stream[nodes]
    several = np.zeros(launches.size, dtype=bool)
    several[code[ops.stream[nodes] != first[code]]] = True
    if not several.any():
        return None
    group = np.full(len(ops), -1, dtype=np.int32)
    group[nodes] = np.where(several[code], code, -1)
    return group


def _tails(ops: PathOps, group: Positions) -> Positions:
    """Return what ends last of the group of each operation; itself where it is in none."""
    tail = np.arange(len(ops), dtype=np.int32)
    nodes = np.flatnonzero(group >= 0)
    nodes = nodes[np.lexsort((-nodes, ops.end_ns[nodes], group[nodes]))]
    last = np.append(group[nodes][1:] != group[nodes][:-1], True)
    of_group = np.full(int(group.max()) + 1, -1, dtype=np.int64)
    of_group[group[nodes[last]]] = nodes[last]
    tail[nodes] = of_group[group[nodes]]
    return tail


def _around_graphs(ops: PathOps, before: Positions, group: Positions, tail: Positions) -> Positions:
    """Return `before` where the first node on each stream waits for all streams of its graph."""
    inside = (before >= 0) & (group >= 0) & (group[np.maximum(before, 0)] == group)
    previous = np.where(inside | (before < 0), before, tail[np.maximum(before, 0)])
    first = np.flatnonzero((group >= 0) & ~inside)
    candidate = previous[first]
    end_ns = np.where(candidate >= 0, ops.end_ns[np.maximum(candidate, 0)], np.iinfo(np.int64).min)
    # Of equal ends the first stream counts.
    order = np.lexsort((-first, end_ns, group[first]))
    last = np.append(group[first[order]][1:] != group[first[order]][:-1], True)
    best = np.full(int(group.max()) + 1, -1, dtype=np.int64)
    best[group[first[order[last]]]] = candidate[order[last]]
    previous[first] = best[group[first]]
    return previous.astype(np.int32)


def _legacy(
    ops: PathOps, issue_ns: IntArray, before: Positions, null: IntArray, blocking: Bools
) -> None:
    """Let the null stream and blocking streams of a device wait for each other, in place."""
    others = np.flatnonzero(blocking)
    for waiting, waits_for in ((null, others), (others, null)):
        for code in waiting.tolist():
            rows = np.arange(ops.bounds[code], ops.bounds[code + 1])
            for stream in waits_for.tolist():
                last = last_before(ops, issue_ns, np.full(rows.shape, stream), issue_ns[rows])
                here = before[rows]
                later = (last >= 0) & (
                    (here < 0) | (ops.end_ns[np.maximum(last, 0)] > ops.end_ns[np.maximum(here, 0)])
                )
                before[rows] = np.where(later, last, here)
