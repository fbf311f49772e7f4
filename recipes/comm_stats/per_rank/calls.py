"""The NCCL calls of one rank, and which of them launched each of its communication kernels.

A kernel belongs to the outermost NCCL range that was open on the launching thread when its launch
began. A call launches its own kernel. At the end of a group all calls of the thread since its
begin are launched: what one kernel carries adds up, and several kernels of one operation cannot be
told apart. Never is it another thread's call, or the nearest in time.
"""

from __future__ import annotations

import re
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
from nsys_llm.trace.ranges import DOMAIN_CREATED, PUSH_POP
from nsys_llm.trace.rank_trace import GRAPH_NODE_TABLES, RankTrace

from .payloads import (
    CONFLICT,
    IMPLAUSIBLE,
    NO_BLOB,
    NO_PAYLOAD,
    OK,
    Payload,
    Schemas,
    described,
)

#: Why nothing is known of a kernel, beside the reasons of calls.
NO_CALL: Final = "no_call"
GRAPH: Final = "graph"
SHARED: Final = "shared"

_DOMAIN: Final = "NCCL"
_NAME: Final = re.compile(r"p?nccl(\w+)")
_GROUP_START, _GROUP_END, _INIT = "GroupStart", "GroupEnd", "CommInitRank"
#: Operations of calls.
_OPERATIONS: Final[Mapping[str, str]] = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Bcast": "broadcast",
    "Reduce": "reduce",
    "Send": SEND_RECV,
    "Recv": SEND_RECV,
    "AlltoAll": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
}
#: Peers of messages, with what is sent to and received from each.
_Peers = tuple[tuple[int, int, int], ...]
#: They run in the kernels of sends and receives.
_AS_MESSAGES: Final = (SEND_RECV, "all_to_all", "gather", "scatter")
#: No GPU has as much memory; where the profile does not tell.
_MOST_BYTES: Final = 1 << 40


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


@dataclass(frozen=True, eq=False)
class _Call:
    """A call: one for all that say the same."""

    name: str
    payload: Payload

    @property
    def operation(self) -> str:
        return _OPERATIONS[self.name]


@dataclass(frozen=True)
class _Range:
    """An NCCL range that no other one is around: the calls whose kernels it launches."""

    start_ns: int
    end_ns: int
    calls: tuple[int, ...]


def map_calls(trace: RankTrace) -> RankCalls:
    """Return the calls of a rank, and what is known of its communication kernels."""
    kernels = trace.tables["kernels"]
    rows = _communication(trace, kernels)
    if not rows.size:
        return RankCalls()
    events = _events(trace)
    calls, threads, members = ([], {}, []) if events is None else _calls(trace, events)
    by_thread = {
        thread: (np.array([some.start_ns for some in ranges], dtype=np.int64), ranges)
        for thread, ranges in threads.items()
    }
    tid, at_ns, lost = _launches(trace, kernels, rows)
    every = _Kernels(calls)
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
    for call in calls:
        counts[call.payload.reason] = counts.get(call.payload.reason, 0) + 1
    return every.result(kernels, rows, counts, tuple(members))


def _communication(trace: RankTrace, kernels: Table) -> IntArray:
    used = np.unique(kernels["demangled_name_id"])
    names = [key for key in used.tolist() if is_communication(trace.strings.get(key, ""))]
    return np.flatnonzero(np.isin(kernels["demangled_name_id"], names))


def _events(trace: RankTrace) -> Table | None:
    payloads = trace.tables.get("payloads")
    return payloads if payloads is not None and len(payloads) else trace.tables.get("nvtx_events")


def _texts(trace: RankTrace, events: Table, name: str, key: str) -> npt.NDArray[Any]:
    """Return texts that stand in the rows, or in the strings."""
    texts = events[name].copy() if name in events else np.full(len(events), None, dtype=object)
    if key in events:
        there = np.flatnonzero(events[key] != NULL_INT)
        texts[there] = [trace.strings.get(item, "") for item in events[key][there].tolist()]
    texts[texts == None] = ""  # noqa: E711 - element by element
    return texts


def _calls(
    trace: RankTrace, events: Table
) -> tuple[list[_Call], dict[int, list[_Range]], list[tuple[int, int, int]]]:
    """Return the calls, the outermost ranges of each thread, and the communicators made."""
    texts = _texts(trace, events, "text", "text_id")
    created = events["event_type"] == DOMAIN_CREATED
    domains = set(events["domain_id"][created & (texts == _DOMAIN)].tolist())
    is_range = (events["event_type"] == PUSH_POP) & (events["end_ns"] != NULL_INT)
    if domains:
        is_range &= np.isin(events["domain_id"], list(domains))
    rows = np.flatnonzero(is_range)
    named = {text: match[1] for text in set(texts[rows]) if (match := _NAME.fullmatch(text))}
    rows = rows[[text in named for text in texts[rows].tolist()]] if rows.size else rows
    rows = rows[np.lexsort((-events["end_ns"][rows], events["start_ns"][rows]))]
    names = [named[text] for text in texts[rows].tolist()]
    payloads = _payloads(trace, events, rows)
    calls: list[_Call] = []
    distinct: dict[tuple[str, int], _Call] = {}
    number: dict[int, int] = {}
    members = []
    for at, (name, payload) in enumerate(zip(names, payloads, strict=True)):
        if name in _OPERATIONS:
            number[at] = len(calls)
            calls.append(distinct.setdefault((name, id(payload)), _Call(name, payload)))
        elif name.startswith(_INIT) and {"comm", "ranks_n", "rank"} <= payload.fields.keys():
            some = payload.fields
            members.append((_signed(some["comm"]), some["ranks_n"], some["rank"]))
    return calls, _outermost(events, rows, names, number), members


def _payloads(trace: RankTrace, events: Table, rows: IntArray) -> list[Payload]:
    """Return what the payloads of some ranges say; each distinct one is decoded once."""
    digits = events["payload"][rows].tolist() if "payload" in events else [""] * rows.size
    described_by = _texts(trace, events, "json", "json_text_id")[rows].tolist()
    schemas = Schemas(trace.tables.get("payload_entries"), trace.tables.get("payload_enums"))
    missing = Payload(NO_PAYLOAD if any(digits) or any(described_by) else NO_BLOB, {})
    most_bytes = _memory_bytes(trace)
    known: dict[tuple[str, str], Payload] = {}
    for key in zip(digits, described_by, strict=True):
        if key not in known:
            raw, text = key
            said = described(text) if text else None
            blob = schemas.decoded(raw) if raw else None
            known[key] = _plausible(_either(blob, said) or missing, most_bytes)
    return [known[key] for key in zip(digits, described_by, strict=True)]


def _either(blob: Payload | None, said: Payload | None) -> Payload | None:
    """Return what two sources say; where both tell a size, and not the same, neither."""
    if blob is None or said is None:
        return blob or said
    if blob.reason != OK:
        return said
    told = [some.fields.get("size_bytes") for some in (blob, said)]
    return Payload(CONFLICT, {}) if None not in told and told[0] != told[1] else blob


def _memory_bytes(trace: RankTrace) -> int:
    gpus = trace.tables.get("gpus")
    most = int(gpus["total_bytes"].max()) if gpus is not None and len(gpus) else 0
    return most if most > 0 else _MOST_BYTES


def _plausible(payload: Payload, most_bytes: int) -> Payload:
    if payload.reason != OK:
        return payload
    odd = any(not -(1 << 63) <= value < 1 << 64 for value in payload.fields.values())
    if odd or not 0 <= payload.fields.get("size_bytes", 0) <= most_bytes:
        return Payload(IMPLAUSIBLE, {})
    return payload


def _outermost(
    events: Table, rows: IntArray, names: Sequence[str], number: Mapping[int, int]
) -> dict[int, list[_Range]]:
    """Return the ranges that launch kernels, by thread, in order of time."""
    threads: dict[int, list[_Range]] = {}
    until: dict[int, int] = {}
    groups: dict[int, tuple[int, list[int]]] = {}
    columns = (events[name][rows].tolist() for name in ("start_ns", "end_ns", "global_tid"))
    for at, (start_ns, end_ns, thread) in enumerate(zip(*columns, strict=True)):
        if start_ns < until.get(thread, NULL_INT):
            continue
        until[thread] = end_ns
        name, (depth, inside) = names[at], groups.get(thread, (0, []))
        calls: tuple[int, ...] = ()
        if name == _GROUP_START:
            groups[thread] = depth + 1, inside
        elif name == _GROUP_END:
            groups[thread] = (depth - 1, inside) if depth > 1 else (0, [])
            calls = tuple(inside) if depth == 1 else ()
        elif at in number:
            inside.append(number[at])
            calls = (number[at],) if not depth else ()
        threads.setdefault(thread, []).append(_Range(start_ns, end_ns, calls))
    return threads


def _range_at(every: tuple[IntArray, list[_Range]] | None, at_ns: int) -> _Range | None:
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

    def __init__(self, calls: Sequence[_Call]) -> None:
        self._calls = calls
        self._codes: dict[str, dict[Any, int]] = {
            name: {} for name in ("reason", "comm", "reduction", "operation")
        }
        self._known: dict[Any, tuple[tuple[int, ...], _Peers]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._peers: list[_Peers] = []

    def _code(self, kind: str, value: Any) -> int:
        return -1 if value is None else self._codes[kind].setdefault(value, len(self._codes[kind]))

    def add(self, owner: _Range | None, operation: str, kernels_n: int, *, is_lost: bool) -> None:
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

    def _row(self, calls: Sequence[_Call], reason: str) -> tuple[int, ...]:
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
            self._code("comm", None if comm is None else _signed(comm)),
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


def _signed(value: int) -> int:
    """Return the number with a sign that has the same 64 bits."""
    low = value & ((1 << 64) - 1)
    return low - (1 << 64) if low >> 63 else low


def _reason(calls: Sequence[_Call], *, is_shared: bool) -> str:
    """Return why nothing is known of a kernel of some calls, or `OK`."""
    if not calls:
        return NO_CALL
    for call in calls:
        if call.payload.reason != OK:
            return call.payload.reason
    if any("size_bytes" not in call.payload.fields for call in calls):
        return NO_PAYLOAD
    return SHARED if is_shared else OK


def _sums(calls: Sequence[_Call]) -> tuple[int, int]:
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


def _peers(calls: Sequence[_Call], reason: str) -> _Peers:
    """Return for each peer of messages what is sent to it, and received from it."""
    both: dict[int, list[int]] = {}
    for call in calls if reason == OK else ():
        peer = call.payload.fields.get("peer")
        if peer is not None and call.name in ("Send", "Recv"):
            both.setdefault(peer, [0, 0])[call.name == "Recv"] += call.payload.fields["size_bytes"]
    return tuple((peer, sent, received) for peer, (sent, received) in sorted(both.items()))
