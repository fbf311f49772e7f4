"""What streams and calls waited for, by the rows that a capture has of waits and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.critical_path.path.ops import Bools, PathOps, last_before
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import Rows
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.attribution import join_launches
from nsys_llm.trace.rank_trace import RankTrace

#: What calls do, or wait for: codes as below.
Kinds = npt.NDArray[np.int8]
#: What a call waits for, by its name; sync types do not mean the same in all schema versions.
DEVICE_WAIT: Final = 0
STREAM_WAIT: Final = 1
EVENT_WAIT: Final = 2
#: A stream waits for an event; the call returns at once.
ORDER: Final = 3
#: It asks, and returns at once.
POLL: Final = 4
OTHER_CALL: Final = -1

_KINDS: Final = (
    ("StreamWaitEvent", ORDER),
    ("CtxWaitEvent", ORDER),
    ("StreamSynchronize", STREAM_WAIT),
    ("EventSynchronize", EVENT_WAIT),
    ("DeviceSynchronize", DEVICE_WAIT),
    ("ThreadSynchronize", DEVICE_WAIT),
    ("CtxSynchronize", DEVICE_WAIT),
    ("StreamQuery", POLL),
    ("EventQuery", POLL),
)
#: Calls that a row of a wait may belong to and that wait, or make a stream wait.
_WAITING: Final = (DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT, ORDER)


@dataclass(frozen=True)
class SyncRows(Rows):
    """Waits that the capture recorded, each with the call that made it; arrays of shape (rows,).

    Attributes:
        place: Place of the outermost call in `HostTimeline.calls`.
        kind: `DEVICE_WAIT`, `STREAM_WAIT`, `EVENT_WAIT` or `ORDER`.
        record: The record of the event in `EventRecords`, -1 where it is not known.
        is_joined: Whether that rests on an id that names the record, not on a reused one.
    """

    place: IntArray
    kind: Kinds
    device_id: IntArray
    stream_id: IntArray
    issue_ns: IntArray
    record: IntArray
    is_joined: Bools


@dataclass(frozen=True)
class EventRecords:
    """Events as a stream recorded them; arrays of shape (records,).

    Attributes:
        op: The last operation that its stream ran before; -1 for none.
        event_id: Reused by the driver.
        sync_id: Names this record; NULL_INT where the schema has no such id.
    """

    op: IntArray
    issue_ns: IntArray
    event_id: IntArray
    sync_id: IntArray


def call_kinds(trace: RankTrace, host: HostTimeline) -> Kinds:
    """Return what each call does by its name, shape (calls,): one of the codes above."""
    calls = trace.tables.get("api_calls")
    if calls is None or not host.calls.row.size:
        return np.empty(0, dtype=np.int8)
    used, code = distinct_codes(calls["name_id"])
    kinds = [_kind_of(trace.strings, key) for key in used.tolist()]
    return np.array(kinds, dtype=np.int8)[code[host.calls.row]]


def event_records(
    trace: RankTrace, ops: PathOps, host: HostTimeline, issue_ns: IntArray
) -> EventRecords:
    """Return the events that streams recorded, and what each waits for."""
    rows = trace.tables.get("cuda_events")
    place = _call_places(rows, trace, host)
    if rows is None or not place.size:
        none = np.empty(0, dtype=np.int64)
        return EventRecords(none, none, none, none)
    known = np.flatnonzero(place >= 0)
    rows, at_ns = rows.take(known), host.calls.start_ns[place[known]]
    stream = _streams(ops, _devices(trace, rows), rows["stream_id"])
    return EventRecords(
        last_before(ops, issue_ns, stream, at_ns), at_ns, rows["event_id"], rows["event_sync_id"]
    )


def sync_rows(
    trace: RankTrace, host: HostTimeline, kinds: Kinds, records: EventRecords
) -> SyncRows:
    """Return the waits whose call is recorded; `kinds` are from `call_kinds`."""
    rows = trace.tables.get("synchronizations")
    place = _call_places(rows, trace, host)
    if rows is None or not place.size:
        none = np.empty(0, dtype=np.int64)
        return SyncRows(none, none.astype(np.int8), none, none, none, none, none.astype(bool))
    known = np.flatnonzero(place >= 0)
    known = known[np.isin(kinds[place[known]], _WAITING)]
    rows, place = rows.take(known), place[known]
    at_ns = host.calls.start_ns[place]
    record, is_joined = _records_of(rows, at_ns, records)
    return SyncRows(
        place=host.calls.outer[place].astype(np.int64),
        kind=kinds[place],
        device_id=_devices(trace, rows),
        stream_id=rows["stream_id"],
        issue_ns=at_ns,
        record=record,
        is_joined=is_joined,
    )


def stream_codes(ops: PathOps, rows: SyncRows) -> IntArray:
    """Return the code of the stream that each row names, -1 where nothing ran on it."""
    return _streams(ops, rows.device_id, rows.stream_id)


def _kind_of(strings: Mapping[int, str], key: int) -> int:
    name = strip_api_version(strings.get(key, ""))
    return next((kind for text, kind in _KINDS if text in name), OTHER_CALL)


def _devices(trace: RankTrace, rows: Table) -> IntArray:
    """Return the device of each row, by its context where that ran kernels.

    Rows of waits name device 0 whatever their context, in real exports of schema 3.25.
    """
    kernels = trace.unfiltered["kernels"]
    if not len(kernels):
        return rows["device_id"]
    first, _ = distinct_rows([kernels["context_id"], kernels["device_id"]])
    contexts, devices = (kernels[name][first].tolist() for name in ("context_id", "device_id"))
    known = dict(zip(contexts, devices, strict=True))
    pairs = zip(rows["context_id"].tolist(), rows["device_id"].tolist(), strict=True)
    return np.array([known.get(context, device) for context, device in pairs], dtype=np.int64)


def _streams(ops: PathOps, device_id: IntArray, stream_id: IntArray) -> IntArray:
    """Return the code of the stream that each row names, -1 where nothing ran on it.

    The device counts only where streams of several devices have the same number.
    """
    keys = list(zip(ops.device_ids.tolist(), ops.stream_ids.tolist(), strict=True))
    codes = {key: code for code, key in enumerate(keys)}
    by_number: dict[int, int] = {}
    for code, (_, number) in enumerate(keys):
        by_number[number] = -1 if number in by_number else code
    pairs = zip(device_id.tolist(), stream_id.tolist(), strict=True)
    row_streams = [codes.get(pair, by_number.get(pair[1], -1)) for pair in pairs]
    return np.array(row_streams, dtype=np.int64)


def _call_places(rows: Table | None, trace: RankTrace, host: HostTimeline) -> IntArray:
    """Return the place of the call that each row belongs to, -1 where it is not recorded."""
    calls = trace.tables.get("api_calls")
    if rows is None or calls is None or not len(rows) or not host.calls.row.size:
        return np.empty(0, dtype=np.int64)
    row = join_launches(rows["correlation_id"], calls["correlation_id"], calls["start_ns"])
    return np.where(row >= 0, host.calls.place[np.maximum(row, 0)], -1)


def _records_of(rows: Table, at_ns: IntArray, records: EventRecords) -> tuple[IntArray, Bools]:
    """Return the record that each row waits for, -1 for none, and whether an id names it."""
    record = np.full(len(rows), -1, dtype=np.int64)
    joined = np.zeros(len(rows), dtype=bool)
    if not records.op.size:
        return record, joined
    wanted = rows["event_sync_id"]
    named = records.sync_id > 0
    order = np.argsort(np.where(named, records.sync_id, NULL_INT), kind="stable")
    at = np.searchsorted(records.sync_id[order], wanted, side="right") - 1
    same = (at >= 0) & (wanted > 0) & (records.sync_id[order[np.maximum(at, 0)]] == wanted)
    record[same] = order[at[same]]
    joined[same] = True
    for event in np.unique(rows["event_id"][~same]).tolist():
        event_rows = np.flatnonzero(records.event_id == event)
        event_rows = event_rows[np.argsort(records.issue_ns[event_rows], kind="stable")]
        waiting = np.flatnonzero(~same & (rows["event_id"] == event))
        n = np.searchsorted(records.issue_ns[event_rows], at_ns[waiting], side="left")
        if event_rows.size:
            record[waiting] = np.where(n > 0, event_rows[np.maximum(n - 1, 0)], -1)
    return record, joined
