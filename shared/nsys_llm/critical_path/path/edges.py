"""What every operation and every call waited for, as arrays. The rule stands in `docs/step_budget`.

Nodes are operations, then calls, then waits: the return of a call that waited for an operation. The
edge of an operation leads from its start, that of a call from its start, that of a wait from its
return. Each node has one predecessor: of an operation the prerequisite that usually would have let
it start last, see `lags`; of several that do as well, the launch, then the stream, then events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path import classes
from nsys_llm.critical_path.path.host_waits import (
    HostWaits,
    handed_over,
    host_waits,
    staged_uploads,
)
from nsys_llm.critical_path.path.lags import NEVER, Codes, Lags, Latest, usual_lags
from nsys_llm.critical_path.path.ops import (
    Bools,
    PathOps,
    StreamOrder,
    first_after,
    legacy_streams,
    stream_order,
)
from nsys_llm.critical_path.path.sync_rows import (
    ORDER,
    EventRecords,
    Kinds,
    SyncRows,
    call_kinds,
    event_records,
    stream_codes,
    sync_rows,
)
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.rank_trace import RankTrace

#: What becomes of certain edges where something that is not recorded may have finished later.
_INFERRED_FORMS: Final = {
    classes.BY_LAUNCH: classes.LAUNCH_INFERRED,
    classes.BY_CALL: classes.CALL_INFERRED,
    classes.BY_STREAM: classes.STREAM_INFERRED,
}


@dataclass(frozen=True)
class Clues:
    """What edges are taken from; replays need all prerequisites, not only those that held.

    Attributes:
        issue_ns: Shape (operations,), see `PathOps.issue_ns`.
        null_stream: Shape (streams,), which are the legacy default stream.
        blocking: Shape (streams,), which wait for that, and it for them.
        kinds: Shape (calls,), see `call_kinds`.
        targets: The calls that wait, and what for, whether that ended in them or earlier.
        early: Operations that began before what stood before them on their stream had ended, as
            their kernels do again and again; see `Dependents`.
    """

    issue_ns: IntArray
    order: StreamOrder
    null_stream: Bools
    blocking: Bools
    kinds: Kinds
    rows: SyncRows
    records: EventRecords
    targets: HostWaits
    early: IntArray


@dataclass(frozen=True)
class Edges:
    """The predecessor of every node of one rank; arrays of shape (nodes,).

    Attributes:
        ops: The operations, the first nodes.
        host: The calls, the nodes after them.
        before: The predecessor; -1 for none.
        edge: How it is one, a code of `EDGE_NAMES`.
        unexplained: Shape (operations,): its launch is not recorded, and what ended before it ended
            too long before.
        has_wait_rows: Whether the capture recorded what streams waited for.
    """

    ops: PathOps
    host: HostTimeline
    waits: HostWaits
    before: npt.NDArray[np.int32]
    edge: Codes
    unexplained: Bools
    has_wait_rows: bool
    has_event_rows: bool

    @cached_property
    def begins_ns(self) -> IntArray:
        """When each operation began or, if later, what stood before it on its stream had ended.

        So time that both share is the earlier one's. Shape (operations,), never after its end.
        """
        starts, ends, edge = self.ops.start_ns, self.ops.end_ns, self.edge[: len(self.ops)]
        rows = np.flatnonzero((edge == classes.BY_STREAM) | (edge == classes.STREAM_INFERRED))
        ahead_ns = ends[self.before[rows]]
        shared = ahead_ns > starts[rows]
        if not shared.any():
            return starts
        begins, rows = starts.copy(), rows[shared]
        begins[rows] = np.minimum(ahead_ns[shared], ends[rows])
        return begins


def path_edges(
    trace: RankTrace, ops: PathOps, host: HostTimeline, pid: int | None, early: IntArray
) -> tuple[Edges, Clues]:
    """Return what every operation and call of a rank waited for, and from what that was taken.

    Args:
        pid: Its process id, for the kinds of its streams; None where it is not known.
    """
    issue_ns = ops.issue_ns(host)
    null_stream, blocking = legacy_streams(ops, trace.tables.get("cuda_streams"), pid)
    order = stream_order(ops, issue_ns, null_stream, blocking)
    records = event_records(trace, ops, host, issue_ns)
    kinds = call_kinds(trace, host)
    rows = sync_rows(trace, host, kinds, records)
    last_op = _last_ops(ops, host)
    staged = staged_uploads(trace, host)
    waits, targets = host_waits(ops, host, issue_ns, kinds, rows, records, last_op, staged)
    waits = HostWaits(waits.place, order.tails(waits.op), waits.is_certain)
    latest, lags = _recorded(ops, host, waits, order)
    waited, unclear = _events(ops, issue_ns, order, rows, records.op, latest, lags)
    has_waits, has_events = bool((rows.kind == ORDER).any()), bool(records.op.size)
    # Where the rows say that a start waited for no event, what ended before it made room for it.
    room = np.full(len(ops), has_events) | (has_waits & ~waited)
    _infer(ops, order, latest, lags, room)
    if not has_waits:
        unclear = _after_orders(ops, host, kinds, issue_ns)
    if order.group is not None:
        unclear |= order.group >= 0  # dependencies between nodes are not recorded
    _doubt(ops, latest, np.flatnonzero(unclear))
    unexplained = ops.place < 0
    lost = np.flatnonzero(unexplained)
    limit_ns = lags.limit_ns[lags.kind[lost]]
    unexplained[lost] = ops.start_ns[lost] - limit_ns > latest.at_ns[lost]
    edges = Edges(
        ops,
        host,
        waits,
        *_joined(ops, host, waits, latest, handed_over(ops, host, kinds, order)),
        unexplained,
        has_waits,
        has_events,
    )
    return edges, Clues(
        issue_ns, order, null_stream, blocking, kinds, rows, records, targets, early
    )


def _last_ops(ops: PathOps, host: HostTimeline) -> npt.NDArray[np.int32]:
    """Return what each call launched: of several, the operation that ended last; -1 for none."""
    last = np.full(host.calls.row.size, -1, dtype=np.int32)
    launched = np.flatnonzero(ops.place >= 0)
    if ops.stream_ids.size > 1 or ops.node.any():
        launched = launched[np.argsort(ops.end_ns[launched], kind="stable")]
    last[ops.place[launched]] = launched
    return last


def _returns(
    ops: PathOps, host: HostTimeline, waits: HostWaits, place: IntArray | Positions
) -> Positions:
    """Return the node of the return of each call: its wait, if it waited; -1 stays -1."""
    node = np.where(place >= 0, len(ops) + place.astype(np.int32, copy=False), -1)
    if waits.place.size:
        at = np.searchsorted(waits.place, place)
        at = np.minimum(at, waits.place.size - 1)
        waited = (place >= 0) & (waits.place[at] == place)
        node[waited] = len(ops) + host.calls.row.size + at[waited]
    return node


def _launches(ops: PathOps, host: HostTimeline, waits: HostWaits) -> Latest:
    n = len(ops)
    if not host.calls.row.size or not n:
        nothing = np.full(n, classes.BY_NOTHING, dtype=np.int8)
        return Latest(np.full(n, -1, dtype=np.int32), np.full(n, NEVER), nothing)
    at, known = np.maximum(ops.place, 0), ops.place >= 0
    done_ns, edge = host.calls.end_ns[at], np.full(n, classes.BY_LAUNCH, dtype=np.int8)
    node = _returns(ops, host, waits, ops.place)
    within = np.flatnonzero(known & (ops.start_ns < done_ns))
    done_ns[within], edge[within] = host.calls.start_ns[at[within]], classes.BY_CALL
    node[within] = n + ops.place[within]
    done_ns[~known], edge[~known] = NEVER, classes.BY_NOTHING
    return Latest(node, done_ns, edge)


def _recorded(
    ops: PathOps, host: HostTimeline, waits: HostWaits, order: StreamOrder
) -> tuple[Latest, Lags]:
    latest = _launches(ops, host, waits)
    if not len(ops):
        return latest, usual_lags(ops, latest, ops.start_ns, ops.start_ns)
    before_ns = np.where(order.before >= 0, ops.end_ns[np.maximum(order.before, 0)], NEVER)
    lags = usual_lags(ops, latest, ops.called_ns(host), before_ns)
    latest.offer(ops, lags, slice(None), order.before, before_ns, classes.BY_STREAM)
    return latest, lags


def _events(
    ops: PathOps,
    issue_ns: IntArray,
    order: StreamOrder,
    rows: SyncRows,
    recorded: IntArray,
    latest: Latest,
    lags: Lags,
) -> tuple[Bools, Bools]:
    """Offer what the rows of events say.

    Returns:
        Which operations come after a row of a wait, and those of them for which no id names what
        it waited for.
    """
    waited, unclear = np.zeros((2, len(ops)), dtype=bool)
    orders = rows.take(rows.kind == ORDER)
    if not orders.place.size:
        return waited, unclear
    after = first_after(ops, issue_ns, stream_codes(ops, orders), orders.issue_ns)
    orders, after = orders.take(after >= 0), after[after >= 0]
    waited[after] = True
    unclear[after[~orders.is_joined]] = True
    known = orders.record >= 0
    op = np.full(after.shape, -1, dtype=np.int64)
    op[known] = order.tails(recorded[orders.record[known]])
    end_ns = np.where(op >= 0, ops.end_ns[np.maximum(op, 0)], NEVER)
    # The latest of several last, since offers to one operation overwrite each other.
    by_end = np.argsort(end_ns, kind="stable")
    for joined, edge in ((True, classes.BY_EVENT), (False, classes.EVENT_INFERRED)):
        some = by_end[orders.is_joined[by_end] == joined]
        latest.offer(ops, lags, after[some], op[some], end_ns[some], edge)
    return waited, unclear


def _after_orders(ops: PathOps, host: HostTimeline, kinds: Kinds, issue_ns: IntArray) -> Bools:
    """Return before which operations some stream was made to wait, since the one before them.

    Without rows of waits it is not known which stream that was.
    """
    unclear = np.zeros(len(ops), dtype=bool)
    at_ns = np.sort(host.calls.start_ns[kinds == ORDER])
    if not at_ns.size or ops.stream_ids.size < 2:
        return unclear
    before = np.searchsorted(at_ns, issue_ns, side="left")
    unclear[1:] = before[1:] > before[:-1]
    first = ops.bounds[:-1][np.diff(ops.bounds) > 0]
    unclear[first] = before[first] > 0
    return unclear


def _infer(ops: PathOps, order: StreamOrder, latest: Latest, lags: Lags, room: Bools) -> None:
    """Offer what ended just before operations whose start nothing recorded explains."""
    if ops.stream_ids.size < 2:
        return
    unexplained_ns = latest.allows_ns(ops, lags, slice(None))
    np.subtract(ops.start_ns, unexplained_ns, out=unexplained_ns)
    rows = np.flatnonzero(unexplained_ns > lags.limit_ns[lags.kind])
    del unexplained_ns
    if not rows.size:
        return
    by_end = np.argsort(ops.end_ns, kind="stable")
    at = np.searchsorted(ops.end_ns[by_end], ops.start_ns[rows], side="right") - 1
    op = np.where(at >= 0, by_end[np.maximum(at, 0)], -1)
    end_ns = np.where(op >= 0, ops.end_ns[np.maximum(op, 0)], NEVER)
    near = (end_ns >= ops.start_ns[rows] - lags.limit_ns[lags.kind[rows]]) & (
        ops.stream[op] != ops.stream[rows]
    )
    near &= ops.start_ns[op] < ops.start_ns[rows]  # else two of no length would wait for each other
    same = np.zeros(rows.shape, dtype=bool)
    if order.group is not None:
        group = order.group[rows]
        same = (group >= 0) & (order.group[op] == group)
    for mask, edge in (
        (same, classes.GRAPH_INFERRED),
        (~same & room[rows], classes.BY_ROOM),
        (~same & ~room[rows], classes.EVENT_INFERRED),
    ):
        some = np.flatnonzero(near & mask)
        latest.offer(ops, lags, rows[some], op[some], end_ns[some], edge)


def _doubt(ops: PathOps, latest: Latest, rows: IntArray) -> None:
    """Take the edges of some operations as inferred, where another operation may have been later.

    Only what ended between the prerequisite and the start can have been; mostly nothing did.
    """
    if ops.stream_ids.size < 2 or not rows.size:
        return
    ended = np.sort(ops.end_ns, kind="stable")  # which is fast where streams are sorted
    start_ns, at_ns = ops.start_ns[rows], latest.at_ns[rows]
    some = np.searchsorted(ended, start_ns, "right") > np.searchsorted(ended, at_ns, "right")
    doubtful = np.zeros(len(ops), dtype=bool)
    doubtful[rows[some]] = True
    for certain, inferred in _INFERRED_FORMS.items():
        latest.edge[doubtful & (latest.edge == certain)] = inferred


def _joined(
    ops: PathOps,
    host: HostTimeline,
    waits: HostWaits,
    latest: Latest,
    handed: tuple[IntArray, IntArray],
) -> tuple[npt.NDArray[np.int32], Codes]:
    """Return predecessors and edges of all nodes; `handed` is from `handed_over`."""
    n, m = len(ops), host.calls.row.size
    before = np.empty(n + m + waits.place.size, dtype=np.int32)
    edge = np.empty(before.shape, dtype=np.int8)
    before[:n], edge[:n] = latest.node, latest.edge
    previous = np.arange(-1, m - 1, dtype=np.int32)
    previous[host.calls.bounds[:-1][np.diff(host.calls.bounds) > 0]] = -1
    before[n : n + m] = _returns(ops, host, waits, previous)
    edge[n : n + m] = np.where(previous >= 0, classes.BY_THREAD, classes.BY_NOTHING)
    place, call = handed
    before[n + place] = _returns(ops, host, waits, call)
    edge[n + place] = classes.HAND_OVER
    before[n + m :] = waits.op
    edge[n + m :] = np.where(waits.is_certain, classes.BY_WAIT, classes.WAIT_INFERRED)
    return before, edge
