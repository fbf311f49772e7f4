"""The operations of one rank, stream by stream, and what had to end on their streams before each.

A graph launch is as one operation of each stream that its nodes run on: the first node on each
comes after all that these streams ran before, and what follows on any of them after all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.critical_path.path.classes import COMMUNICATION, COMPUTE, COPY, UNKNOWN
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.numeric.gaps import Positions, start_order
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, joined, order_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.device_ops import OpNames
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import RankTrace

_CLASS_OF_TABLE: Final = {
    "kernels": COMPUTE,
    "memcpys": COPY,
    "memsets": COPY,
    "graph_traces": UNKNOWN,
}
#: How TARGET_INFO_CUDA_STREAM marks a stream that waits for the null stream, and that one.
_BLOCKING, _NULL_STREAM = 1, 3

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PathOps:
    """Operations before any filter, by stream and, within one, by start; shape (operations,).

    Attributes:
        start_ns: The profile's clock.
        place: Place of the outermost call that launched it in `HostTimeline.calls`; -1 for none.
        kind: What time in it is charged to, a code of `CLASS_NAMES`.
        kept: Whether the filters leave it.
        row: Place of each, table by table as in `OP_TABLES`; None where that is the order.
        bounds: Shape (streams + 1,): operations of stream s lie at bounds[s] to bounds[s + 1].
        device_ids: Shape (streams,), CUDA device id of each stream.
        stream_ids: Shape (streams,).
    """

    start_ns: IntArray
    end_ns: IntArray
    place: Positions
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    node: Bools
    kept: Bools
    row: Positions | None
    stream: npt.NDArray[np.int32]
    bounds: IntArray
    device_ids: IntArray
    stream_ids: IntArray

    @classmethod
    def of(cls, trace: RankTrace, names: OpNames, host: HostTimeline) -> PathOps:
        """Line up the operations of a rank, of all of its devices."""
        tables = {name: op for name, op in trace.unfiltered.items() if len(op)}

        def column(name: str) -> IntArray:
            return joined([_column(op, name) for op in tables.values()])

        start, end, row = column("start_ns"), column("end_ns"), column("launch_row")
        stream_id, device_id = column("stream_id"), column("device_id")
        first, stream = distinct_rows([stream_id, device_id])
        stream_ids, device_ids = stream_id[first], device_id[first]
        del stream_id, device_id  # as long as the trace
        place = _places(row, host)
        order = _order(start, end, place, stream, host)
        kind = joined([_kinds(name, op, trace) for name, op in tables.items()]).astype(np.int8)
        node = joined([is_graph_node(op) for op in tables.values()]).astype(bool)
        code = joined([names.codes[name] for name in tables]).astype(np.int32)
        kept = np.ones(start.shape, dtype=bool)
        if not trace.complete:
            kept = joined([trace.kept[name] for name in tables]).astype(bool)
        rows: IntArray | slice = slice(None) if order is None else order
        stream = stream[rows]
        return cls(
            start_ns=start[rows],
            end_ns=end[rows],
            place=place[rows],
            kind=kind[rows],
            name=code[rows],
            node=node[rows],
            kept=kept[rows],
            row=None if order is None else order.astype(np.int32),
            stream=stream.astype(np.int32),
            bounds=np.searchsorted(stream, np.arange(first.size + 1)),
            device_ids=device_ids,
            stream_ids=stream_ids,
        )

    def __len__(self) -> int:
        return self.start_ns.size

    def of_rows(self, rows: IntArray) -> IntArray:
        """Return where some operations stand that are given by their places as `row` has them."""
        if self.row is None:
            return rows
        chosen = np.zeros(len(self), dtype=bool)
        chosen[rows] = True
        return np.flatnonzero(chosen[self.row])

    def called_ns(self, host: HostTimeline) -> IntArray:
        """Return when the call that launched each began; where it is not recorded, its start."""
        if not host.calls.row.size:
            return self.start_ns
        called = host.calls.start_ns[np.maximum(self.place, 0)]
        unknown = np.flatnonzero(self.place < 0)
        called[unknown] = self.start_ns[unknown]
        return called

    def issue_ns(self, host: HostTimeline) -> IntArray:
        """Return when each was launched, never before the one before it on its stream."""
        if not host.calls.row.size:
            return self.start_ns
        issued = self.called_ns(host)
        for low, high in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            np.maximum.accumulate(issued[low:high], out=issued[low:high])
        return issued


def legacy_streams(ops: PathOps, streams: Table | None, pid: int | None) -> tuple[Bools, Bools]:
    """Return which streams are the null stream of their device, and which wait for it."""
    none = np.zeros(ops.stream_ids.size, dtype=bool)
    if streams is None or not len(streams) or pid is None:
        return none, none
    process_streams = streams.take(streams["pid"] == pid)
    flags: Mapping[int, int] = dict(
        zip(process_streams["stream_id"].tolist(), process_streams["flag"].tolist(), strict=True)
    )
    flag = np.array(
        [flags.get(stream_id, 0) for stream_id in ops.stream_ids.tolist()], dtype=np.int64
    )
    return flag == _NULL_STREAM, flag == _BLOCKING


def last_before(ops: PathOps, issue_ns: IntArray, stream: IntArray, at_ns: IntArray) -> IntArray:
    """Return the last operation that a stream was given before an instant, -1 for none.

    Args:
        stream: Shape (k,), codes of streams; -1 for one without operations.
    """
    last = np.full(at_ns.shape, -1, dtype=np.int64)
    for code in np.unique(stream[stream >= 0]).tolist():
        rows = np.flatnonzero(stream == code)
        low, high = int(ops.bounds[code]), int(ops.bounds[code + 1])
        n = np.searchsorted(issue_ns[low:high], at_ns[rows], side="left")
        last[rows] = np.where(n > 0, low + n - 1, -1)
    return last


def first_after(ops: PathOps, issue_ns: IntArray, stream: IntArray, at_ns: IntArray) -> IntArray:
    """Return the first operation that a stream was given from an instant on, -1 for none."""
    before = last_before(ops, issue_ns, stream, at_ns)
    first = np.full(at_ns.shape, -1, dtype=np.int64)
    rows = np.flatnonzero(stream >= 0)
    low, high = ops.bounds[stream[rows]], ops.bounds[stream[rows] + 1]
    after = np.maximum(before[rows] + 1, low)
    first[rows] = np.where(after < high, after, -1)
    return first


def _column(op: Table, name: str) -> IntArray:
    if name not in op:
        return np.full(len(op), NULL_INT, dtype=np.int64)
    values = op[name]
    if name == "stream_id":
        # Not recorded of whole graphs in some exports: a stream of its own.
        return np.where(values < 0, -1, values)
    return values


def _kinds(name: str, op: Table, trace: RankTrace) -> npt.NDArray[np.int8]:
    if name != "kernels":
        return np.full(len(op), _CLASS_OF_TABLE[name], dtype=np.int8)
    used, code = distinct_codes(op["demangled_name_id"])
    sends = [is_communication(trace.strings.get(key, "")) for key in used.tolist()]
    kinds = np.where(np.array(sends, dtype=bool), COMMUNICATION, COMPUTE)
    return kinds.astype(np.int8)[code]


def _places(row: IntArray, host: HostTimeline) -> Positions:
    """Return the outermost call that launched each operation, -1 where there is none."""
    if not host.calls.row.size or not row.size:
        return np.full(row.shape, -1, dtype=np.int32)
    place = np.where(row >= 0, host.calls.place[np.maximum(row, 0)], -1)
    return np.where(place >= 0, host.calls.outer[np.maximum(place, 0)], -1).astype(np.int32)


def _order(
    start: IntArray, end: IntArray, place: Positions, stream: IntArray, host: HostTimeline
) -> IntArray | None:
    """Return the order by stream and start; None if that is how they are."""

    def ties(some: IntArray) -> list[Any]:
        at = place[some]
        called = np.where(at >= 0, host.calls.start_ns[np.maximum(at, 0)], start[some])
        return [called, end[some]]

    if not host.calls.row.size:
        order = start_order(start, lambda some: (end[some],))
    else:
        order = start_order(start, ties)
    if not stream.size or not stream.any():
        return order
    by_stream = order_by_code(stream if order is None else stream[order])
    return by_stream if order is None else order[by_stream]


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
    """Return what each operation had to wait for by the order of streams."""
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
