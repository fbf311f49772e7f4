"""All that operations and calls had to wait for, beside launches, threads and the stream before.

A path needs of every start the one prerequisite that held it back; a replay needs all of them,
since another one may hold it back once something is faster. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.critical_path.path.classes import HAND_OVER, LAST_CERTAIN
from nsys_llm.critical_path.path.edges import Clues, Edges
from nsys_llm.critical_path.path.host_waits import ended_by
from nsys_llm.critical_path.path.ops import Bools, PathOps, first_after, last_before
from nsys_llm.critical_path.path.sync_rows import DEVICE_WAIT, ORDER, stream_codes
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import BACK_PRESSURE


@dataclass(frozen=True)
class Links:
    """Prerequisites; arrays of shape (links,), each pair of source and target once.

    Attributes:
        source: What has to end: an operation; of hand-overs a call.
        target: What waits for it: the start of an operation, the return of a call, or the begin
            of one.
        is_certain: Whether the profile shows it.
    """

    source: IntArray
    target: IntArray
    is_certain: Bools

    @classmethod
    def of(cls, source: IntArray, target: IntArray, is_certain: Bools) -> Links:
        """Leave out what is there twice; of two the certain one stays."""
        order = np.lexsort((~is_certain, source, target))
        source, target = source[order], target[order]
        new = np.ones(source.size, dtype=bool)
        new[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
        return cls(source[new], target[new], is_certain[order][new])


def operation_links(edges: Edges, clues: Clues) -> Links:
    """Return what operations waited for on other streams: rows of events, graphs, inferences."""
    ops = edges.ops
    orders = clues.rows.take(clues.rows.kind == ORDER)
    after = first_after(ops, clues.issue_ns, stream_codes(ops, orders), orders.issue_ns)
    op = (
        np.where(orders.record >= 0, clues.records.op[np.maximum(orders.record, 0)], -1)
        if (clues.records.op.size)
        else np.full(after.shape, -1, dtype=np.int64)
    )
    known = (after >= 0) & (op >= 0)
    parts = [(op[known], after[known], orders.is_joined[known])]
    # What held a start back, as far as it is no launch and not the operation before.
    rows = np.arange(len(ops))
    before = edges.before[: len(ops)].astype(np.int64)
    held = np.flatnonzero((before >= 0) & (before < len(ops)) & (before != rows - 1))
    parts.append((before[held], held, edges.edge[held] <= LAST_CERTAIN))
    parts += [*_legacy(ops, clues), *_around_graphs(ops, clues.order.group)]
    source, target, certain = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _expanded(ops, clues.order.group, source, target, certain)


def _legacy(ops: PathOps, clues: Clues) -> list[tuple[IntArray, IntArray, Bools]]:
    """Return what the null stream and blocking streams of a device wait for in each other."""
    parts = []
    for device in np.unique(ops.device_ids[clues.null_stream]).tolist():
        on_device = ops.device_ids == device
        null = np.flatnonzero(on_device & clues.null_stream).tolist()
        others = np.flatnonzero(on_device & clues.blocking).tolist()
        for left in null:
            for right in others:
                parts += [_waits_of(ops, clues.issue_ns, left, right)]
                parts += [_waits_of(ops, clues.issue_ns, right, left)]
    return parts


def _waits_of(
    ops: PathOps, issue_ns: IntArray, stream: int, other: int
) -> tuple[IntArray, IntArray, Bools]:
    rows = np.arange(ops.bounds[stream], ops.bounds[stream + 1])
    return _first_after(ops, issue_ns, other, rows, issue_ns[rows])


def _first_after(
    ops: PathOps, issue_ns: IntArray, stream: int, rows: IntArray, at_ns: IntArray
) -> tuple[IntArray, IntArray, Bools]:
    """Return what a stream was given last before instants, with the first row of each."""
    last = last_before(ops, issue_ns, np.full(rows.shape, stream), at_ns)
    new = last >= 0
    new[1:] &= last[1:] != last[:-1]
    return last[new], rows[new], np.ones(int(new.sum()), dtype=bool)


def _around_graphs(ops: PathOps, group: Positions | None) -> list[tuple[IntArray, IntArray, Bools]]:
    """Return what graphs over several streams wait for: all that these ran before."""
    if group is None:
        return []
    rows = np.arange(len(ops))
    first_of_stream = np.zeros(len(ops), dtype=bool)
    first_of_stream[ops.bounds[:-1][np.diff(ops.bounds) > 0]] = True
    prior = np.where(first_of_stream, -1, rows - 1)
    inside = (prior >= 0) & (group[prior] == group)
    heads = np.flatnonzero((group >= 0) & ~inside)
    with_prior = heads[prior[heads] >= 0]
    left, right = _by_key(group[with_prior], group[heads])
    source, target = prior[with_prior[left]], heads[right]
    parts = [(source, target, np.ones(source.size, dtype=bool))]
    # What follows on a stream comes after all nodes: `_expanded` adds the other streams' last.
    follows = np.flatnonzero((prior >= 0) & ~inside & (group[np.maximum(prior, 0)] >= 0))
    parts.append((prior[follows], follows, np.ones(follows.size, dtype=bool)))
    return parts


def _expanded(
    ops: PathOps, group: Positions | None, source: IntArray, target: IntArray, certain: Bools
) -> Links:
    """Let what waits for a node of a graph over several streams wait for the last of each."""
    if group is not None:
        rows = np.flatnonzero((group[source] >= 0) & (group[source] != group[target]))
        source, target, certain = _with_lasts(ops, group, rows, (source, target, certain))
    natural = (source == target - 1) & (ops.stream[source] == ops.stream[target])
    return Links.of(source[~natural], target[~natural], certain[~natural])


def _with_lasts(
    ops: PathOps, group: Positions, rows: IntArray, links: tuple[IntArray, IntArray, Bools]
) -> tuple[IntArray, IntArray, Bools]:
    """Return links, and for some whose source is a node of a graph one from each stream's last."""
    source, target, certain = links
    last = np.ones(len(ops), dtype=bool)
    last[:-1] = (group[1:] != group[:-1]) | (ops.stream[1:] != ops.stream[:-1])
    lasts = np.flatnonzero(last & (group >= 0))
    left, right = _by_key(group[lasts], group[source[rows]])
    return (
        np.concatenate((source, lasts[left])),
        np.concatenate((target, target[rows[right]])),
        np.concatenate((certain, certain[rows[right]])),
    )


def _by_key(left: Positions, right: Positions) -> tuple[IntArray, IntArray]:
    """Return all pairs of places at which two arrays have the same value."""
    order = np.argsort(left, kind="stable")
    low = np.searchsorted(left[order], right, side="left")
    sizes = np.searchsorted(left[order], right, side="right") - low
    of_right = np.repeat(np.arange(right.size), sizes)
    nth = np.arange(of_right.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[low[of_right] + nth], of_right


def wait_links(edges: Edges, clues: Clues) -> Links:
    """Return what calls waited for, or would have if it had not ended earlier.

    Targets are calls. A device's wait has one link for each stream.
    """
    ops = edges.ops
    place = np.concatenate((edges.waits.place, clues.targets.place))
    op = np.concatenate((edges.waits.op, clues.targets.op))
    certain = np.concatenate((edges.waits.is_certain, clues.targets.is_certain))
    parts = [(op, place, certain), _pressed(edges)]
    if place.size:
        of_device = np.flatnonzero((clues.kinds[place] == DEVICE_WAIT) & certain)
        device = ops.device_ids[ops.stream[op[of_device]]]
        for stream in range(ops.stream_ids.size):
            rows = np.unique(place[of_device[device == ops.device_ids[stream]]])
            at_ns = edges.host.calls.start_ns[rows]
            parts.append(_first_after(ops, clues.issue_ns, stream, rows, at_ns))
    source, target, sure = (np.concatenate(column) for column in zip(*parts, strict=True))
    group = clues.order.group
    if group is not None and source.size:
        rows = np.flatnonzero(group[source] >= 0)
        source, target, sure = _with_lasts(ops, group, rows, (source, target, sure))
    return Links.of(source, target, sure)


def _pressed(edges: Edges) -> tuple[IntArray, IntArray, Bools]:
    """Return launches that waited for room in the queue, and what ended when they got it."""
    place, _, end_ns = _driver_spans(edges, BACK_PRESSURE)
    op = ended_by(edges.ops, end_ns)
    place, op = place[op >= 0], op[op >= 0]
    known = edges.ops.end_ns[op] > edges.host.calls.start_ns[place]
    known &= ~np.isin(place, edges.waits.place)
    return op[known], place[known], np.zeros(int(known.sum()), dtype=bool)


def driver_times(edges: Edges, *causes: int) -> IntArray:
    """Return for how long the driver worked in each call by its own record, shape (calls,), ns."""
    place, begin_ns, end_ns = _driver_spans(edges, *causes)
    times_ns = np.zeros(edges.host.calls.row.size, dtype=np.int64)
    np.add.at(times_ns, place, end_ns - begin_ns)
    return times_ns


def _driver_spans(edges: Edges, *causes: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return the calls in which the driver did something, and from when to when."""
    calls, parts = edges.host.calls, [np.empty((3, 0), dtype=np.int64)]
    for work in edges.host.driver:
        if work.cause in causes:
            low, high = int(calls.bounds[work.thread]), int(calls.bounds[work.thread + 1])
            at = np.searchsorted(calls.start_ns[low:high], work.spans[:, 0], side="right") - 1 + low
            call = calls.outer[np.maximum(at, low)]
            inside = calls.end_ns[call] >= work.spans[:, 1]
            parts.append(np.vstack((call, work.spans.T))[:, inside])
    place, begin_ns, end_ns = np.concatenate(parts, axis=1)
    return place, begin_ns, end_ns


def hand_overs(edges: Edges) -> Links:
    """Return the calls before which their thread waited for another, and that one's last call."""
    n, calls_n = len(edges.ops), edges.host.calls.row.size
    target = np.flatnonzero(edges.edge[n : n + calls_n] == HAND_OVER)
    node = edges.before[n + target].astype(np.int64) - n
    waited = node >= calls_n
    source = node.copy()
    source[waited] = edges.waits.place[node[waited] - calls_n]
    return Links(source, target, np.zeros(target.size, dtype=bool))
