"""What calls waited for: operations that ended in them, or another thread that handed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import CLASS_NAMES, CLASS_OF_CAUSE
from nsys_llm.critical_path.path.lags import NEVER
from nsys_llm.critical_path.path.ops import Bools, PathOps, StreamOrder, last_before
from nsys_llm.critical_path.path.sync_rows import (
    DEVICE_WAIT,
    EVENT_WAIT,
    POLL,
    STREAM_WAIT,
    EventRecords,
    Kinds,
    SyncRows,
    stream_codes,
)
from nsys_llm.facts.device.host_timeline import HostTimeline, ThreadCalls
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct, distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.cuda_codes import HOST_TO_DEVICE
from nsys_llm.trace.rank_trace import RankTrace

_HOST_SYNC: Final = CLASS_NAMES.index("host_sync")
_SYNC_MEMOP: Final = CLASS_NAMES.index("sync_memop")
#: How far time stamps of host and GPU may be apart on a machine; as `STEADY_CLOCK_NS` of matching.
#: On two H100s copies end 4.3 to 6.7 us after the return of the call that waited for them.
CLOCK_NS: Final = 20_000


@dataclass(frozen=True)
class HostWaits:
    """Calls that returned because an operation had ended in them; arrays of shape (waits,).

    Attributes:
        place: The call, ascending.
        is_certain: Whether the capture says so.
    """

    place: IntArray
    op: IntArray
    is_certain: Bools


def staged_uploads(trace: RankTrace, host: HostTimeline) -> Bools:
    """Return which calls with Async in their name copy from pageable memory to a device.

    They return when the bytes are staged, and do not wait for the copy, even where that ends first.
    """
    staged = np.zeros(host.calls.row.size, dtype=bool)
    copies, calls = trace.unfiltered.get("memcpys"), trace.tables.get("api_calls")
    if copies is None or calls is None or not len(copies) or not staged.size:
        return staged
    up = (copies["copy_kind"] == HOST_TO_DEVICE) & (copies["launch_row"] >= 0)
    row = copies["launch_row"][up]
    used, code = distinct_codes(calls["name_id"][row])
    names = [trace.strings.get(key, "") for key in used.tolist()]
    by_name = np.array([classify_api(name) == "memcpy" for name in names], dtype=bool)
    place = host.calls.place[row[by_name[code]]]
    staged[host.calls.outer[place[place >= 0]]] = True
    return staged


def host_waits(
    ops: PathOps,
    host: HostTimeline,
    issue_ns: IntArray,
    kinds: Kinds,
    rows: SyncRows,
    records: EventRecords,
    last_op: npt.NDArray[np.int32],
    staged: Bools,
) -> tuple[HostWaits, HostWaits]:
    """Return the calls of which it is known what they waited for, and that it ended in them.

    And all that would have waited for something certain, whether it ended in them or earlier.

    Args:
        kinds: Shape (calls,), see `call_kinds`.
        last_op: Shape (calls,), the operation that each call launched; -1 for none.
        staged: Shape (calls,), see `staged_uploads`.
    """
    classes = np.array(CLASS_OF_CAUSE)[host.cause]
    waiting = (classes == _HOST_SYNC) | ((classes == _SYNC_MEMOP) & ~staged)
    waiting &= host.calls.end_ns > host.calls.start_ns
    place = np.flatnonzero(waiting)
    if not place.size or not len(ops):
        none = np.empty(0, dtype=np.int64)
        nothing = HostWaits(none, none, none.astype(bool))
        return nothing, nothing
    op = np.where(classes[place] == _SYNC_MEMOP, last_op[place], -1)
    certain = op >= 0
    kind = np.where(classes[place] == _HOST_SYNC, kinds[place], -1)
    row = np.full(host.calls.row.size, -1, dtype=np.int64)
    row[rows.place[::-1]] = np.arange(rows.place.size)[::-1]
    named, is_named = _named(ops, host, issue_ns, rows, records, place, kind, row[place])
    op, certain = np.where(is_named, named, op), certain | is_named
    open_ = np.flatnonzero((kind >= 0) & ~certain)
    sure = certain & (op >= 0)
    targets = HostWaits(place[sure], op[sure], certain[sure])
    op[open_] = _inferred(ops, host, last_op, place[open_])
    # A call does not return before what a row says that it waited for: where that seems to end
    # later, by no more than clocks of host and GPU disagree, it ended with the call.
    end_ns, limit_ns = ops.end_ns[np.maximum(op, 0)], host.calls.end_ns[place]
    limit_ns = np.where(is_named, limit_ns + CLOCK_NS + host.clock_error_ns, limit_ns)
    inside = (op >= 0) & (end_ns > host.calls.start_ns[place]) & (end_ns <= limit_ns)
    return HostWaits(place[inside], op[inside], certain[inside]), targets


def _named(
    ops: PathOps,
    host: HostTimeline,
    issue_ns: IntArray,
    rows: SyncRows,
    records: EventRecords,
    place: IntArray,
    kind: Kinds,
    row: IntArray,
) -> tuple[IntArray, Bools]:
    """Return what waits were for where the capture says it, -1 for nothing; and where it does."""
    op = np.full(place.shape, -1, dtype=np.int64)
    known = np.zeros(place.shape, dtype=bool)
    at_ns, some = host.calls.start_ns[place], np.maximum(row, 0)
    devices = distinct(ops.device_ids)
    for device in devices.tolist():
        of_device = row >= 0
        if rows.device_id.size:
            of_device &= rows.device_id[some] == device
        selected = np.flatnonzero((kind == DEVICE_WAIT) & (of_device | (devices.size == 1)))
        op[selected] = _last_ended(ops, issue_ns, ops.device_ids == device, at_ns[selected])
        known[selected] = True
    if rows.place.size:
        selected = np.flatnonzero((kind == STREAM_WAIT) & (row >= 0))
        stream = stream_codes(ops, rows.take(row[selected]))
        op[selected] = last_before(ops, issue_ns, stream, at_ns[selected])
        known[selected] = True
        joined = rows.is_joined[some] & (rows.record[some] >= 0)
        selected = np.flatnonzero((kind == EVENT_WAIT) & (row >= 0) & joined)
        op[selected] = records.op[rows.record[row[selected]]]
        known[selected] = True
    return op, known


def _last_ended(ops: PathOps, issue_ns: IntArray, streams: Bools, at_ns: IntArray) -> IntArray:
    """Return of some streams what ended last of all that was launched before an instant."""
    best = np.full(at_ns.shape, -1, dtype=np.int64)
    best_ns = np.full(at_ns.shape, np.iinfo(np.int64).min)
    for code in np.flatnonzero(streams).tolist():
        last = last_before(ops, issue_ns, np.full(at_ns.shape, code), at_ns)
        end_ns = ops.end_ns[np.maximum(last, 0)]
        later = (last >= 0) & (end_ns > best_ns)
        best, best_ns = np.where(later, last, best), np.where(later, end_ns, best_ns)
    return best


def _inferred(
    ops: PathOps, host: HostTimeline, last_op: npt.NDArray[np.int32], place: IntArray
) -> IntArray:
    """Return what calls waited for that no row names: see the contract of the walk."""
    launched = np.where(last_op >= 0, np.arange(last_op.size), -1)
    launched = np.maximum.accumulate(launched)
    before = launched[np.maximum(place - 1, 0)]
    begin = host.calls.bounds[host.calls.thread[place]]
    before = np.where((place > begin) & (before >= begin), before, -1)
    op = np.where(before >= 0, last_op[np.maximum(before, 0)], -1)
    start, end = host.calls.start_ns[place], host.calls.end_ns[place]
    ended_ns = ops.end_ns[np.maximum(op, 0)]
    inside = (op >= 0) & (ended_ns > start) & (ended_ns <= end)
    rest = np.flatnonzero(~inside)
    op[rest] = ended_by(ops, end[rest])
    return op


def ended_by(ops: PathOps, at_ns: IntArray) -> IntArray:
    """Return the operation of a process that ended last up to an instant, -1 for none."""
    if not at_ns.size or not len(ops):
        return np.full(at_ns.shape, -1, dtype=np.int64)
    order = np.argsort(ops.end_ns, kind="stable")
    at = np.searchsorted(ops.end_ns[order], at_ns, side="right") - 1
    return np.where(at >= 0, order[np.maximum(at, 0)], -1)


def handed_over(
    ops: PathOps, host: HostTimeline, kinds: Kinds, order: StreamOrder
) -> tuple[IntArray, IntArray]:
    """Return the calls before which their thread waited for another, and that one's last call.

    Where a thread was in no call, and the operation of its next launch follows on its stream one
    that another thread launched in that time, it waited for that thread.
    """
    calls = host.calls
    if len(calls.threads) < 2:
        none = np.empty(0, dtype=np.int64)
        return none, none
    launches, other = _crossings(ops, calls, order)
    # Each stands for the calls of its thread since the launch before.
    chosen = np.flatnonzero(other >= 0)
    begins = calls.bounds[calls.thread[launches[chosen]]]
    since = np.maximum(np.where(chosen > 0, launches[chosen - 1] + 1, 0), begins)
    sizes = launches[chosen] - since + 1
    owner = np.repeat(np.arange(chosen.size), sizes)
    place = np.arange(owner.size) - (np.cumsum(sizes) - sizes - since)[owner]
    at = other[chosen[owner]]
    free_ns = np.where(place > begins[owner], calls.end_ns[place - 1], NEVER)
    handed = (calls.start_ns[place] > free_ns) & (calls.start_ns[at] >= free_ns)
    handed &= calls.start_ns[at] < calls.start_ns[place]
    return _last_calls(host, kinds != POLL, place[handed], calls.thread[at[handed]])


def _crossings(ops: PathOps, calls: ThreadCalls, order: StreamOrder) -> tuple[IntArray, Positions]:
    """Return the calls that launch, and the call of another thread that launched what came before.

    That is before the first operation of the first stream; -1 for none.
    """
    first = np.full(calls.row.size, -1, dtype=np.int32)
    launched = np.flatnonzero(ops.place >= 0)[::-1]
    first[ops.place[launched]] = launched
    del launched
    launches = np.flatnonzero(first >= 0)
    prior = order.before[first[launches]]
    other = np.where(prior >= 0, ops.place[np.maximum(prior, 0)], -1)
    same = calls.thread[np.maximum(other, 0)] == calls.thread[launches]
    return launches, np.where(same, -1, other)


def _last_calls(
    host: HostTimeline, counted: Bools, place: IntArray, thread: Positions
) -> tuple[IntArray, IntArray]:
    """Return the calls that have one, and the last call of a thread that returned before each.

    Args:
        counted: Shape (calls,), which may be that last one.
    """
    calls = host.calls
    latest = np.maximum.accumulate(np.where(counted, np.arange(counted.size), -1))
    last = np.full(place.shape, -1, dtype=np.int64)
    codes, code_of = distinct_codes(thread.astype(np.int64))
    for code, rows in zip(codes.tolist(), split_by_code(code_of, codes.size), strict=True):
        low, high = int(calls.bounds[code]), int(calls.bounds[code + 1])
        n = np.searchsorted(calls.end_ns[low:high], calls.start_ns[place[rows]], side="right")
        last_call = latest[np.maximum(low + n - 1, 0)]
        last[rows] = np.where((n > 0) & (last_call >= low), last_call, -1)
    known = last >= 0
    return place[known], last[known]
