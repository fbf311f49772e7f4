"""What is known of each communication kernel of one rank, by the NCCL calls that launched it.

A kernel belongs to the outermost NCCL range that was open on the launching thread when its launch
began. What one kernel carries of a group adds up; several kernels of one operation cannot be told
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import SEND_RECV, is_communication, operation_of
from nsys_llm.trace.graph_nodes import NodeCaptures, is_graph_node
from nsys_llm.trace.rank_trace import GRAPH_NODE_TABLES, RankTrace

from .calls import Call, CallRange, read_calls, signed
from .payloads import NO_PAYLOAD, OK

#: Why nothing is known of a kernel, beside the reasons of calls.
NO_CALL: Final = "no_call"
GRAPH: Final = "graph"
SHARED: Final = "shared"

#: Peers of messages, with what is sent to and received from each.
_Peers = tuple[tuple[int, int, int], ...]
#: They run in the kernels of sends and receives.
_AS_MESSAGES: Final = (SEND_RECV, "all_to_all", "gather", "scatter")


@dataclass(frozen=True)
class Sizes:
    """What is known of communication kernels of one device, in order of their ends.

    Attributes:
        end_ns: Shape (kernels,), the profile's clock.
        start_ns: Likewise.
        reason: Likewise, positions in `RankCalls.reasons`.
        size_bytes: Likewise, sum of the messages; NULL_INT where not known.
        larger_bytes: Likewise, of messages the larger of what is sent and what is received.
        calls_n: Likewise.
        comm: Likewise, positions in `RankCalls.comms`; -1 where not known.
        root: Likewise; NULL_INT without one.
        reduction: Likewise, positions in `RankCalls.reductions`; -1 for none.
        operation: Likewise, positions in `RankCalls.operations`, of the calls; -1 for none.
        peers: Likewise, peers of messages with what was sent to and received from each.
        channels_n: Likewise, blocks of the grid.
    """

    device_id: int
    start_ns: IntArray
    end_ns: IntArray
    reason: IntArray
    size_bytes: IntArray
    larger_bytes: IntArray
    calls_n: IntArray
    comm: IntArray
    root: IntArray
    reduction: IntArray
    operation: IntArray
    channels_n: IntArray
    peers: tuple[_Peers, ...]

    def places(self, end_ns: IntArray, start_ns: IntArray) -> IntArray:
        """Return the kernels that end at some instants, of several that which begins there too."""
        place = np.searchsorted(self.end_ns, end_ns)
        while True:
            ahead = np.minimum(place + 1, self.end_ns.size - 1)
            more = (ahead > place) & (self.end_ns[ahead] == end_ns)
            more &= self.start_ns[place] != start_ns
            if not more.any():
                return place
            place = np.where(more, ahead, place)


@dataclass(frozen=True)
class RankCalls:
    """The NCCL calls of one rank.

    Attributes:
        calls_n: Calls by reason.
        reasons: Of kernels and calls.
        comms: Ids of communicators: their 64 bits as a number with a sign.
        reductions: Names.
        operations: Of calls.
        members: Of communicators that were made in the capture: id, ranks, rank in it.
        devices: Kernels of each device.
    """

    calls_n: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    comms: tuple[int, ...] = ()
    reductions: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    members: tuple[tuple[int, int, int], ...] = ()
    devices: tuple[Sizes, ...] = ()


def map_sizes(trace: RankTrace) -> RankCalls:
    """Return the calls of a rank, and what is known of its communication kernels."""
    kernels = trace.tables["kernels"]
    rows = _communication(trace, kernels)
    if not rows.size:
        return RankCalls()
    known = read_calls(trace)
    by_thread = {
        thread: (np.array([some.start_ns for some in ranges], dtype=np.int64), ranges)
        for thread, ranges in known.ranges.items()
    }
    tid, at_ns, lost = _launches(trace, kernels, rows)
    every = _Kernels(known.calls)
    owners = [
        _range_at(by_thread.get(thread), instant)
        for thread, instant in zip(tid.tolist(), at_ns.tolist(), strict=True)
    ]
    operations = [
        operation_of(trace.strings.get(key, ""))
        for key in kernels["demangled_name_id"][rows].tolist()
    ]
    # Replays of a graph have one launch together: that of the capture.
    launches: dict[tuple[int, str], set[int]] = {}
    for owner, operation, instant in zip(owners, operations, at_ns.tolist(), strict=True):
        launches.setdefault((id(owner), operation), set()).add(instant)
    for owner, operation, is_lost in zip(owners, operations, lost.tolist(), strict=True):
        every.add(owner, operation, len(launches[id(owner), operation]), is_lost=is_lost)
    counts: dict[str, int] = {}
    for call in known.calls:
        counts[call.payload.reason] = counts.get(call.payload.reason, 0) + 1
    return every.result(kernels, rows, counts, known.members)


def _communication(trace: RankTrace, kernels: Table) -> IntArray:
    used = np.unique(kernels["demangled_name_id"])
    names = [key for key in used.tolist() if is_communication(trace.strings.get(key, ""))]
    return np.flatnonzero(np.isin(kernels["demangled_name_id"], names))


def _range_at(every: tuple[IntArray, list[CallRange]] | None, at_ns: int) -> CallRange | None:
    if every is None or at_ns == NULL_INT:
        return None
    place = int(np.searchsorted(every[0], at_ns, side="right")) - 1
    return every[1][place] if place >= 0 and at_ns < every[1][place].end_ns else None


def _launches(
    trace: RankTrace, kernels: Table, rows: IntArray
) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Return thread and begin of each launch; and which are of graphs whose capture is not there.

    A kernel of a graph was launched when its node was captured.
    """
    calls = trace.tables.get("api_calls")
    launch = kernels["launch_row"][rows]
    tid, at_ns = np.full((2, rows.size), NULL_INT)
    if calls is not None and len(calls):
        known = launch >= 0
        tid[known] = calls["global_tid"][launch[known]]
        at_ns[known] = calls["start_ns"][launch[known]]
    nodes = is_graph_node(kernels, rows)
    if nodes.any():
        captures = NodeCaptures.of([trace.tables.get(name) for name in GRAPH_NODE_TABLES])
        made_ns, by = captures.captured(kernels["graph_node_id"][rows[nodes]])
        at_ns[nodes], tid[nodes] = made_ns, by
    return tid, at_ns, nodes & (at_ns == NULL_INT)


class _Kernels:
    """Collects what is known of kernels, in their order in the table."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._codes: dict[str, dict[Any, int]] = {
            name: {} for name in ("reason", "comm", "reduction", "operation")
        }
        self._known: dict[Any, tuple[tuple[int, ...], _Peers]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._peers: list[_Peers] = []

    def _code(self, kind: str, value: Any) -> int:
        return -1 if value is None else self._codes[kind].setdefault(value, len(self._codes[kind]))

    def add(
        self, owner: CallRange | None, operation: str, kernels_n: int, *, is_lost: bool
    ) -> None:
        """Add a kernel.

        Args:
            owner: The range that it was launched in; None for none.
            operation: Of the kernel.
            kernels_n: Kernels of that operation that were launched in that range.
            is_lost: Whether it is of a graph whose capture is not recorded.
        """
        calls = [] if owner is None else [self._calls[at] for at in owner.calls]
        is_shared = kernels_n > 1 and len(calls) > 1
        key = tuple(map(id, calls)), operation, is_shared, is_lost
        if key not in self._known:
            of_kernel = [
                call
                for call in calls
                if call.operation == operation
                or (operation == SEND_RECV and call.operation in _AS_MESSAGES)
            ]
            reason = GRAPH if is_lost else _reason(of_kernel, is_shared=is_shared)
            self._known[key] = self._row(of_kernel, reason), _peers(of_kernel, reason)
        row, peers = self._known[key]
        self._rows.append(row)
        self._peers.append(peers)

    def _row(self, calls: Sequence[Call], reason: str) -> tuple[int, ...]:
        known = calls if reason == OK else []
        comms = {call.payload.fields.get("comm") for call in known}
        comm = comms.pop() if len(comms) == 1 else None
        roots = {call.payload.fields.get("root", NULL_INT) for call in known}
        reductions = {call.payload.reduction for call in known}
        operations = {call.operation for call in known}
        return (
            self._code("reason", reason),
            *_sums(known),
            len(calls),
            self._code("comm", None if comm is None else signed(comm)),
            roots.pop() if len(roots) == 1 else NULL_INT,
            self._code("reduction", reductions.pop() if len(reductions) == 1 else None),
            self._code("operation", operations.pop() if len(operations) == 1 else None),
        )

    def result(
        self,
        kernels: Table,
        rows: IntArray,
        counts: Mapping[str, int],
        members: tuple[tuple[int, int, int], ...],
    ) -> RankCalls:
        """Return all of it, by device, in order of the kernels' ends."""
        values = np.array(self._rows, dtype=np.int64).reshape(-1, 8)
        devices = []
        for device in np.unique(kernels["device_id"][rows]).tolist():
            here = np.flatnonzero(kernels["device_id"][rows] == device)
            here = here[
                np.lexsort((kernels["start_ns"][rows[here]], kernels["end_ns"][rows[here]]))
            ]
            reason, size, larger, calls_n, comm, root, reduction, operation = values[here].T
            peers = tuple(self._peers[at] for at in here.tolist())
            grid = kernels["grid_x"][rows[here]] if "grid_x" in kernels else 0 * size + NULL_INT
            devices.append(
                Sizes(
                    device,
                    kernels["start_ns"][rows[here]],
                    kernels["end_ns"][rows[here]],
                    reason,
                    size,
                    larger,
                    calls_n,
                    comm,
                    root,
                    reduction,
                    operation,
                    grid,
                    peers,
                )
            )
        codes = {name: tuple(some) for name, some in self._codes.items()}
        return RankCalls(
            dict(sorted(counts.items())),
            codes["reason"],
            codes["comm"],
            codes["reduction"],
            codes["operation"],
            members,
            tuple(devices),
        )


def _reason(calls: Sequence[Call], *, is_shared: bool) -> str:
    """Return why nothing is known of a kernel of some calls, or `OK`."""
    if not calls:
        return NO_CALL
    for call in calls:
        if call.payload.reason != OK:
            return call.payload.reason
    if any("size_bytes" not in call.payload.fields for call in calls):
        return NO_PAYLOAD
    return SHARED if is_shared else OK


def _sums(calls: Sequence[Call]) -> tuple[int, int]:
    """Return the bytes of all calls, and the larger of what is sent and what is received."""
    if not calls:
        return NULL_INT, NULL_INT
    sent, received, others = (
        sum(call.payload.fields["size_bytes"] for call in calls if chosen(call.name))
        for chosen in (
            lambda name: name == "Send",
            lambda name: name == "Recv",
            lambda name: name not in ("Send", "Recv"),
        )
    )
    return sent + received + others, max(sent, received) + others


def _peers(calls: Sequence[Call], reason: str) -> _Peers:
    """Return for each peer of messages what is sent to it, and received from it."""
    both: dict[int, list[int]] = {}
    for call in calls if reason == OK else ():
        peer = call.payload.fields.get("peer")
        if peer is not None and call.name in ("Send", "Recv"):
            both.setdefault(peer, [0, 0])[call.name == "Recv"] += call.payload.fields["size_bytes"]
    return tuple((peer, sent, received) for peer, (sent, received) in sorted(both.items()))
