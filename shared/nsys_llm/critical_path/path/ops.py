"""The operations of one rank, stream by stream, as the edges between them need them."""

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
