"""Segments of paths, and their stretches of time, each with what it is charged to.

Following predecessors is the named exception to "no row loops": a walk is a chain. Nodes stand in
the order of streams and threads, so that most predecessors are the node before; those runs are one
hop, and a loop of Python takes as many as a path changes between streams, threads and calls.

A node gives two stretches: what it is itself, back to its start, and the way from there back to the
end of its predecessor. A stretch is known by its begin: it ends where the one above begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path import classes
from nsys_llm.critical_path.path.classes import COMMUNICATION
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray

#: Where nothing ends the last stretch of a path: before every time of a capture.
OPEN_NS: Final = -(1 << 60)
REASONS: Final = (classes.NO_API, classes.OPAQUE_GRAPH, classes.BEFORE_CAPTURE)
#: Bits of a key: a class, above it an edge, above that a detail.
_CLASS_BITS: Final = 5
_EDGE_BITS: Final = 5
#: Where in a key the class is, and where the edge.
CLASS_MASK: Final = (1 << _CLASS_BITS) - 1
EDGE_MASK: Final = ((1 << _EDGE_BITS) - 1) << _CLASS_BITS

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """What walks visit, cut where any of them begins, joins another, or is in communication.

    Arrays of shape (segments,), in the order of `top`. A segment is a run of nodes, each the
    predecessor of the one above it.

    Attributes:
        top: Its first node on the way back, the largest.
        next: The segment that goes on below; -1 for none.
    """

    top: IntArray
    bottom: IntArray
    next: IntArray


def run_bottoms(edges: Edges) -> npt.NDArray[np.int32]:
    """Return for each node the last one that is reached from it by steps of one; shape (nodes,).

    A communication operation is a run of its own: there a path may go on in another rank.
    """
    before = edges.before
    nodes = np.arange(before.size, dtype=np.int32)
    alone = np.flatnonzero(edges.ops.kind == COMMUNICATION)
    breaks = before != nodes - 1
    breaks[:1] = True
    breaks[alone] = True
    breaks[np.minimum(alone + 1, max(before.size - 1, 0))] = True
    bottoms = np.where(breaks, nodes, 0)
    return np.maximum.accumulate(bottoms, out=bottoms)


def segments(edges: Edges, begins: Iterable[int]) -> Segments:
    """Return all that walks from some nodes visit."""
    bottoms = run_bottoms(edges)
    top = _tops(edges, bottoms, begins)
    bottom = bottoms[top].astype(np.int64)
    if top.size:
        # Another walk that joins the run further down begins a segment there.
        joined = np.concatenate(([-1], top[:-1]))
        bottom = np.where(joined >= bottom, joined + 1, bottom)
    below = np.where(bottom > bottoms[top], bottom - 1, edges.before[bottom])
    at = np.minimum(np.searchsorted(top, below), max(top.size - 1, 0))
    known = (below >= 0) & (top[at] == below) if top.size else below >= 0
    return Segments(top, bottom, np.where(known, at, -1))


def _tops(edges: Edges, bottoms: npt.NDArray[np.int32], begins: Iterable[int]) -> IntArray:
    """Return the nodes at which a walk enters a run, ascending."""
    bottom_of, before = bottoms.data, edges.before.data
    entered = bytearray(bottoms.size)
    for begin in begins:
        node = begin
        while node >= 0 and not entered[node]:
            entered[node] = 1
            node = before[bottom_of[node]]
    return np.flatnonzero(np.frombuffer(entered, dtype=np.uint8))


@dataclass(frozen=True)
class Stretches:
    """Stretches of all segments of a rank, one segment after the other, each from its top down.

    Attributes:
        begin_ns: Shape (stretches,), never later than the one above; `OPEN_NS` at the end of a
            path.
        key: Shape (stretches,), see `split_key`.
        thread: Shape (stretches,), code of the thread of host time; -1 for the device's.
        doubtful: Shape (stretches,), whether an edge between it and the segment's top is inferred.
        first: Shape (segments + 1,): stretches of segment s lie at first[s] to first[s + 1].
        top_ns: Shape (segments,), when its top ended.
    """

    begin_ns: IntArray
    key: Keys
    thread: npt.NDArray[np.int32]
    doubtful: Bools
    first: IntArray
    top_ns: IntArray

    def ends_ns(self) -> IntArray:
        """Return when each stretch ends, shape (stretches,)."""
        ends, filled = np.empty_like(self.begin_ns), np.diff(self.first) > 0
        ends[1:] = self.begin_ns[:-1]
        ends[self.first[:-1][filled]] = self.top_ns[filled]
        return ends


def make_key(kind: npt.ArrayLike, edge: npt.ArrayLike, detail: npt.ArrayLike) -> Keys:
    """Return class, edge and detail as one number."""
    kinds, edges = np.asarray(kind, dtype=np.int64), np.asarray(edge, dtype=np.int64)
    details = np.asarray(detail, dtype=np.int64) << (_CLASS_BITS + _EDGE_BITS)
    return details | (edges << _CLASS_BITS) | kinds


def split_key(key: Keys) -> tuple[IntArray, IntArray, IntArray]:
    """Return class, edge and detail."""
    edge = (key >> _CLASS_BITS) & ((1 << _EDGE_BITS) - 1)
    return class_of(key), edge, key >> (_CLASS_BITS + _EDGE_BITS)


def class_of(key: Keys) -> IntArray:
    """Return the class alone."""
    return key & CLASS_MASK


def stretches(edges: Edges, segments: Segments, api: Positions) -> Stretches:
    """Return the stretches of segments.

    Args:
        api: Shape (calls,), code of the function of each call.
    """
    sizes = segments.top - segments.bottom + 1
    first = 2 * np.concatenate(([0], np.cumsum(sizes)))
    segment = np.repeat(np.arange(sizes.size), sizes)
    node = segments.top[segment] - (np.arange(segment.size) - first[segment] // 2)
    begin, key, thread, inferred = _of_nodes(edges, node, api)
    crossed: IntArray = np.cumsum(inferred) - inferred
    above: Bools = crossed > crossed[first[segment] // 2]
    doubtful = np.stack((above, above | inferred), axis=1).reshape(-1)
    top_ns = natural_ends(edges, segments.top)
    begin = _never_forward(begin, np.repeat(segment, 2), top_ns)
    return Stretches(begin, key, thread, doubtful, first, top_ns)


def bottoms_ns(edges: Edges, segments: Segments) -> IntArray:
    """Return where segments end, without their stretches; shape (segments,)."""
    bottom_ns = np.minimum(natural_ends(edges, segments.top), _lags_from(edges, segments.bottom))
    for starts, low in ((edges.begins_ns, 0), (edges.host.calls.start_ns, len(edges.ops))):
        inside = np.flatnonzero((segments.top >= low) & (segments.top < low + starts.size))
        if inside.size:
            at = np.stack((segments.bottom[inside], segments.top[inside] + 1), axis=1) - low
            at = at.reshape(-1)[: -1 if at[-1, 1] == starts.size else None]
            least = np.minimum.reduceat(starts, at)[::2]
            bottom_ns[inside] = np.minimum(bottom_ns[inside], least)
    return bottom_ns


def _lags_from(edges: Edges, node: IntArray) -> IntArray:
    """Return when the way to each node began: at its predecessor's end, or in its call."""
    begin = natural_ends(edges, edges.before[node].astype(np.int64))
    inside = np.flatnonzero(np.isin(edges.edge[node], (classes.BY_CALL, classes.CALL_INFERRED)))
    begin[inside] = edges.ops.start_ns[node[inside]]
    return begin


def natural_ends(edges: Edges, node: IntArray) -> IntArray:
    """Return when nodes ended; -1 gives `OPEN_NS`."""
    n, m = len(edges.ops), edges.host.calls.row.size
    ends = np.full(node.shape, OPEN_NS)
    op = (node >= 0) & (node < n)
    ends[op] = edges.ops.end_ns[node[op]]
    call = (node >= n) & (node < n + m)
    ends[call] = edges.host.calls.end_ns[node[call] - n]
    wait = node >= n + m
    ends[wait] = edges.host.calls.end_ns[edges.waits.place[node[wait] - n - m]]
    return ends


def _of_nodes(
    edges: Edges, node: IntArray, api: Positions
) -> tuple[IntArray, Keys, npt.NDArray[np.int32], Bools]:
    """Return begins, keys and threads of two stretches a node, and whether its edge is inferred."""
    n, m = len(edges.ops), edges.host.calls.row.size
    begin = np.empty((node.size, 2), dtype=np.int64)
    key = np.zeros((node.size, 2), dtype=np.int64)
    thread = np.full((node.size, 2), -1, dtype=np.int32)
    edge = edges.edge[node].astype(np.int64)
    begin[:, 1] = _lags_from(edges, node)
    op = np.flatnonzero(node < n)
    at = node[op]
    begin[op, 0] = edges.begins_ns[at]
    _, device = distinct_codes(edges.ops.device_ids)
    device = device[edges.ops.stream[at]]
    key[op, 0], key[op, 1] = _op_keys(edges, at, edge[op], device)
    call = np.flatnonzero((node >= n) & (node < n + m))
    at = node[call] - n
    begin[call, 0] = edges.host.calls.start_ns[at]
    kind = np.array(classes.CLASS_OF_CAUSE)[edges.host.cause[at]]
    key[call, 0] = make_key(kind, edge[call], api[at])
    key[call, 1] = make_key(classes.HOST_NO_CUDA, edge[call], 0)
    thread[call] = edges.host.calls.thread[at][:, None]
    wait = np.flatnonzero(node >= n + m)
    at = node[wait] - n - m
    begin[wait] = edges.ops.end_ns[edges.waits.op[at]][:, None]
    key[wait] = make_key(classes.SYNC_LATENCY, edge[wait], api[edges.waits.place[at]])[:, None]
    return begin.reshape(-1), key.reshape(-1), thread.reshape(-1), edge > classes.LAST_CERTAIN


def _op_keys(edges: Edges, at: IntArray, edge: IntArray, device: IntArray) -> tuple[Keys, Keys]:
    """Return the keys of operations, and of the way from each back to its prerequisite."""
    devices_n = max(int(np.unique(edges.ops.device_ids).size), 1)
    kind = edges.ops.kind[at].astype(np.int64)
    detail = edges.ops.name[at] * devices_n + device
    detail = np.where(
        kind == classes.UNKNOWN, REASONS.index(classes.OPAQUE_GRAPH) * devices_n + device, detail
    )
    lag = np.where(
        np.isin(edge, (classes.BY_LAUNCH, classes.LAUNCH_INFERRED)),
        classes.LAUNCH_LATENCY,
        classes.DEVICE_LATENCY,
    )
    lost = (edge == classes.BY_NOTHING) | edges.unexplained[at]
    lag = np.where(lost, classes.UNKNOWN, lag)
    reason = np.where(
        edge == classes.BY_NOTHING,
        REASONS.index(classes.BEFORE_CAPTURE),
        REASONS.index(classes.NO_API),
    )
    lag_detail = np.where(lost, reason * devices_n + device, device)
    return make_key(kind, edge, detail), make_key(lag, edge, lag_detail)


def _never_forward(begin: IntArray, segment: IntArray, top_ns: IntArray) -> IntArray:
    """Return begins that are never later than those above them in their segment.

    Args:
        segment: Shape (stretches,), ascending from 0.
    """
    bounded = np.minimum(begin, top_ns[segment])
    forward = (bounded[1:] > bounded[:-1]) & (segment[1:] == segment[:-1])
    if not forward.any():
        return bounded
    # Each segment far below the one before it, so that one pass serves all of them.
    low_ns = int(bounded.min(where=bounded != OPEN_NS, initial=int(top_ns.max())))
    span_ns = int(top_ns.max()) - low_ns + 2
    raised = np.where(bounded == OPEN_NS, 0, bounded - low_ns + 1) - segment * span_ns
    np.minimum.accumulate(raised, out=raised)
    raised += segment * span_ns
    return np.where(raised == 0, OPEN_NS, raised + low_ns - 1)
