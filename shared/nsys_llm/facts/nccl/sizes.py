"""What each communication kernel of one rank carries, by the NCCL calls that launched it.

A kernel belongs to the outermost NCCL range that was open on the launching thread when its launch
began. What one kernel carries of a group adds up; several kernels of one operation cannot be told
apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.lanes import LaneRows
from nsys_llm.facts.nccl.calls import Call, read_calls
from nsys_llm.facts.nccl.payloads import NO_PAYLOAD, OK
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import SEND_RECV, is_communication, operation_of
from nsys_llm.trace.graph_nodes import NodeCaptures, is_graph_node
from nsys_llm.trace.rank_trace import GRAPH_NODE_TABLES, RankTrace

#: Why nothing is known of a kernel, beside the reasons of calls.
NO_CALL: Final = "no_call"
GRAPH: Final = "graph"
SHARED: Final = "shared"

#: They run in the kernels of sends and receives.
_AS_MESSAGES: Final = (SEND_RECV, "all_to_all", "gather", "scatter")


@dataclass(frozen=True)
class Carried:
    """What a kernel carries.

    Attributes:
        reason: `OK`, or why it is not known.
        size_bytes: Sum of the messages; NULL_INT where not known.
        larger_bytes: Of messages the larger of what is sent and what is received, likewise.
        comm: Id of the communicator, 64 bits with a sign; NULL_INT where not known.
        operation: Of the calls; None where not known.
        peers: Of messages, with what is sent to and received from each.
    """

    reason: str
    size_bytes: int = NULL_INT
    larger_bytes: int = NULL_INT
    comm: int = NULL_INT
    operation: str | None = None
    peers: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of(cls, calls: Sequence[Call], *, is_shared: bool) -> Carried:
        """Return what the kernel of some calls carries."""
        reason = next((some.payload.reason for some in calls if some.payload.reason != OK), OK)
        if not calls:
            reason = NO_CALL
        elif reason == OK and any("size_bytes" not in some.payload.fields for some in calls):
            reason = NO_PAYLOAD
        elif reason == OK and is_shared:
            reason = SHARED
        if reason != OK:
            return cls(reason)
        by_name: Counter[str] = Counter()
        peers: dict[int, list[int]] = {}
        for call in calls:
            size, peer = call.payload.fields["size_bytes"], call.payload.fields.get("peer")
            by_name[call.name] += size
            if peer is not None and call.name in ("Send", "Recv"):
                peers.setdefault(peer, [0, 0])[call.name == "Recv"] += size
        sent, received = by_name.pop("Send", 0), by_name.pop("Recv", 0)
        rest = sum(by_name.values())
        comms = {call.payload.fields.get("comm", NULL_INT) for call in calls}
        operations = {call.operation for call in calls}
        return cls(
            OK,
            sent + received + rest,
            max(sent, received) + rest,
            comms.pop() if len(comms) == 1 else NULL_INT,
            operations.pop() if len(operations) == 1 else None,
            tuple((peer, out, back) for peer, (out, back) in sorted(peers.items())),
        )


@dataclass(frozen=True)
class Sizes:
    """Communication kernels of one device, in order of their ends; arrays of shape (kernels,).

    Attributes:
        start_ns: The profile's clock.
        end_ns: Likewise.
        carried: Positions in `RankCalls.carried`.
        channels_n: Blocks of the grid.
    """

    device_id: int
    start_ns: IntArray
    end_ns: IntArray
    carried: IntArray
    channels_n: IntArray

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
        members: Of communicators that were made in the capture: id, ranks, rank in it.
        carried: What kernels carry, each once.
    """

    calls_n: Mapping[str, int] = field(default_factory=dict)
    members: tuple[tuple[int, int, int], ...] = ()
    carried: tuple[Carried, ...] = ()
    devices: tuple[Sizes, ...] = ()

    def named(self, lane: LaneRows) -> LaneRows:
        """Return communication with the ids of its communicators, if all of it has one."""
        if not (self.carried and lane.start_ns.size):
            return lane
        sizes = next(some for some in self.devices if some.device_id == lane.device_id)
        comms = np.array([some.comm for some in self.carried], dtype=np.int64)
        comm = comms[sizes.carried[sizes.places(lane.end_ns, lane.start_ns)]]
        if (comm == NULL_INT).any():
            return lane
        sizes_of = ((made, ranks_n) for made, ranks_n, _ in self.members)
        return replace(lane, comm=comm, sizes=tuple(sorted({*sizes_of})))


def map_sizes(trace: RankTrace) -> RankCalls:
    """Return the calls of a rank, and what its communication kernels carry."""
    kernels = trace.tables["kernels"]
    used = np.unique(kernels["demangled_name_id"]).tolist()
    names = {key: trace.strings.get(key, "") for key in used}
    wanted = [key for key, name in names.items() if is_communication(name)]
    rows = np.flatnonzero(np.isin(kernels["demangled_name_id"], wanted))
    if not rows.size:
        return RankCalls()
    known = read_calls(trace)
    tid, at_ns, lost = _launches(trace, kernels, rows)
    launches = list(zip(tid.tolist(), at_ns.tolist(), strict=True))
    owners = [known.at(thread, instant) for thread, instant in launches]
    operations = [operation_of(names[key]) for key in kernels["demangled_name_id"][rows].tolist()]
    # Replays of a graph have one launch together: that of the capture.
    together: dict[tuple[int, str], set[int]] = {}
    for owner, operation, (_, instant) in zip(owners, operations, launches, strict=True):
        together.setdefault((id(owner), operation), set()).add(instant)
    codes: dict[Carried, int] = {}
    by_key: dict[tuple[tuple[int, ...], str, bool, bool], int] = {}
    code = np.empty(rows.size, dtype=np.int64)
    for at, (owner, operation, is_lost) in enumerate(
        zip(owners, operations, lost.tolist(), strict=True)
    ):
        calls = () if owner is None else owner.calls
        is_shared = len(calls) > 1 and len(together[id(owner), operation]) > 1
        key = tuple(map(id, calls)), operation, is_shared, is_lost
        if key not in by_key:
            of_kernel = [call for call in calls if _runs(call, operation)]
            carried = Carried(GRAPH) if is_lost else Carried.of(of_kernel, is_shared=is_shared)
            by_key[key] = codes.setdefault(carried, len(codes))
        code[at] = by_key[key]
    counts = Counter(call.payload.reason for call in known.calls)
    devices = _by_device(kernels, rows, code)
    return RankCalls(dict(sorted(counts.items())), known.members, tuple(codes), devices)


def _runs(call: Call, operation: str) -> bool:
    """Return whether a kernel of an operation carries a call."""
    return call.operation == operation or (
        operation == SEND_RECV and call.operation in _AS_MESSAGES
    )


def _by_device(kernels: Table, rows: IntArray, code: IntArray) -> tuple[Sizes, ...]:
    device, start_ns, end_ns = (kernels[name][rows] for name in ("device_id", "start_ns", "end_ns"))
    grid = kernels["grid_x"][rows] if "grid_x" in kernels else np.full(rows.size, NULL_INT)
    order = np.lexsort((start_ns, end_ns))
    picked = {some: order[device[order] == some] for some in np.unique(device).tolist()}
    return tuple(
        Sizes(some, start_ns[here], end_ns[here], code[here], grid[here])
        for some, here in picked.items()
    )


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
