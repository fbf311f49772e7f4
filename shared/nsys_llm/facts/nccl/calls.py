"""The NCCL calls of one rank: what each says, and which range launches their kernels.

At the end of a group all calls of the thread since its begin are launched. Never is it another
thread's call, or the nearest in time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nccl.payloads import IMPLAUSIBLE, NO_BLOB, NO_PAYLOAD, OK, Payload, Schemas
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.trace.ranges import DOMAIN_CREATED, PUSH_POP, event_texts
from nsys_llm.trace.rank_trace import RankTrace

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
#: No GPU has as much memory; where the profile does not tell.
_MOST_BYTES: Final = 1 << 40


@dataclass(frozen=True, eq=False)
class Call:
    """A call: one for all that say the same. Its operation is called as that of kernels."""

    name: str
    operation: str
    payload: Payload


@dataclass(frozen=True)
class CallRange:
    """An NCCL range that no other one is around: the calls whose kernels it launches."""

    start_ns: int
    end_ns: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class NcclCalls:
    """The calls of one rank.

    Attributes:
        calls: In order of their starts.
        ranges: The ranges that launch kernels, by thread, in order of time.
        members: Of communicators that were made: id, ranks, rank in it.
    """

    calls: Sequence[Call] = ()
    ranges: Mapping[int, list[CallRange]] = field(default_factory=dict)
    members: tuple[tuple[int, int, int], ...] = ()

    def at(self, thread: int, instant_ns: int) -> CallRange | None:
        """Return the range that is open on a thread at some time."""
        ranges = self.ranges.get(thread, [])
        place = bisect_right(ranges, instant_ns, key=attrgetter("start_ns")) - 1
        return ranges[place] if place >= 0 and instant_ns < ranges[place].end_ns else None


def read_calls(trace: RankTrace) -> NcclCalls:
    """Return the calls of a rank."""
    payloads = trace.tables.get("payloads")
    has_payloads = payloads is not None and len(payloads)
    events = payloads if has_payloads else trace.tables.get("nvtx_events")
    return NcclCalls() if events is None or not len(events) else _calls(trace, events)


def _calls(trace: RankTrace, events: Table) -> NcclCalls:
    texts = event_texts(events, trace.strings)
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
    distinct: dict[tuple[str, int], Call] = {}
    calls: dict[int, Call] = {}
    members = []
    for at, (name, payload) in enumerate(zip(names, payloads, strict=True)):
        if name in _OPERATIONS:
            key = name, id(payload)
            calls[at] = distinct.setdefault(key, Call(name, _OPERATIONS[name], payload))
        elif name.startswith(_INIT) and {"comm", "ranks_n", "rank"} <= payload.fields.keys():
            some = payload.fields
            members.append((some["comm"], some["ranks_n"], some["rank"]))
    ranges = _outermost(events, rows, names, calls)
    return NcclCalls(tuple(calls.values()), ranges, tuple(members))


def _payloads(trace: RankTrace, events: Table, rows: IntArray) -> list[Payload]:
    """Return what the payloads of some ranges say; each distinct one is decoded once."""
    digits = events["payload"][rows].tolist() if "payload" in events else [""] * rows.size
    schemas = Schemas(trace.tables.get("payload_entries"))
    most_bytes = _memory_bytes(trace)
    known = {raw: _plausible(schemas.decoded(raw), most_bytes) for raw in set(digits) if raw}
    known[""] = Payload(NO_PAYLOAD if known else NO_BLOB, {})
    return [known[raw] for raw in digits]


def _memory_bytes(trace: RankTrace) -> int:
    gpus = trace.tables.get("gpus")
    most = int(gpus["total_bytes"].max()) if gpus is not None and len(gpus) else 0
    return most if most > 0 else _MOST_BYTES


def _plausible(payload: Payload, most_bytes: int) -> Payload:
    if payload.reason != OK:
        return payload
    fields = dict(payload.fields)
    if "comm" in fields:  # as 64 bits with a sign
        low = fields["comm"] & ((1 << 64) - 1)
        fields["comm"] = low - (1 << 64) if low >> 63 else low
    odd = any(not -(1 << 63) <= value < 1 << 63 for value in fields.values())
    if odd or not 0 <= fields.get("size_bytes", 0) <= most_bytes:
        return Payload(IMPLAUSIBLE, {})
    return Payload(OK, fields)


def _outermost(
    events: Table, rows: IntArray, names: Sequence[str], calls: Mapping[int, Call]
) -> dict[int, list[CallRange]]:
    """Return the ranges that launch kernels, by thread, in order of time."""
    threads: dict[int, list[CallRange]] = {}
    until: dict[int, int] = {}
    groups: dict[int, tuple[int, list[Call]]] = {}
    columns = (events[name][rows].tolist() for name in ("start_ns", "end_ns", "global_tid"))
    for at, (start_ns, end_ns, thread) in enumerate(zip(*columns, strict=True)):
        if start_ns < until.get(thread, NULL_INT):
            continue
        until[thread] = end_ns
        name, (depth, inside) = names[at], groups.get(thread, (0, []))
        launched: tuple[Call, ...] = ()
        if name == _GROUP_START:
            groups[thread] = depth + 1, inside
        elif name == _GROUP_END:
            groups[thread] = (depth - 1, inside) if depth > 1 else (0, [])
            launched = tuple(inside) if depth == 1 else ()
        elif at in calls and depth:
            inside.append(calls[at])
        elif at in calls:
            launched = (calls[at],)
        threads.setdefault(thread, []).append(CallRange(start_ns, end_ns, launched))
    return threads
