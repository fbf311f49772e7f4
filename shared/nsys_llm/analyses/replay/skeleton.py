"""The nodes and edges that are left of a rank where everything that has one prerequisite is joined.

Between two nodes of a thread all calls follow from the first one's time; between two nodes of a
stream all operations follow from the first one's end and from launches, which follow from nodes of
threads. So an edge is the longest way between two nodes, for whatever weights: exact, not a bound.
Nodes of threads are where a thread begins, was handed over to, and where a waiting call returned;
nodes of streams are starts of operations that wait for other streams, that something waits for,
that end a step, or that communicate. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.path.ops import Bools
from nsys_llm.analyses.replay.weights import RankGraph
from nsys_llm.numeric.intervals import IntArray

#: No time at all: of nodes that only edges give a time.
NEVER: Final = -(1 << 60)

#: Kinds of edges, in the order in which they stand.
STREAM, LAUNCH, LINK, WAKE, OWN, RESUMED, HAND, LENGTH, TAIL, AFTER, BEGIN = range(11)


@dataclass(frozen=True)
class Marks:
    """What a replay is asked about; the profile's clock.

    Attributes:
        members: Shape (members,), communication operations that other ranks may be part of.
        tails: Shape (ends, 2): an operation, and which end it is part of; an end is the latest one.
        ends_n: How many ends there are.
        begin_ns: Shape (devices,), when the first step of each begins.
        begin_ops: Shape (k, 2): the place of a device, and an operation that it begins after.
        begin_is_start: Whether that is with its start, not after its end.
        begin_call: The last call that began before the first step on its thread; -1 for none.
        call_ns: When the first step begins on the host.
    """

    members: IntArray
    tails: IntArray
    ends_n: int
    begin_ns: IntArray
    begin_ops: IntArray
    begin_is_start: bool
    begin_call: int
    call_ns: int


@dataclass(frozen=True)
class Skeleton:
    """Nodes and edges of one rank; weights come from `nsys_llm.analyses.replay.condensed`.

    Attributes:
        nodes_n: Threads' nodes, then streams', then the ends of members, ends, and begins.
        base_ns: Shape (nodes,), the time of those that nothing precedes, `NEVER` of the others.
        source: Shape (edges,), a node.
        target: Shape (edges,), a node.
        kind: Shape (edges,), one of the codes above.
        item: Shape (edges,), of what the edge is: an operation, a link, a call, ...
        at_call: Shape (thread nodes,), the call of each.
        is_return: Shape (thread nodes,), whether it is the call's return, else its begin.
        of_begin: Shape (calls,), the node that the begin of each call follows from.
        of_return: Likewise, its return.
        inner: Shape (stream nodes,), operations, ascending.
        group_first: Shape (launch edges,), the first of the operations that an edge stands for.
        group_end: Shape (launch edges,), one beyond the last one.
        groups: Shape (groups,), where in the operations groups begin, ascending; those of launch
            edges are among them.
        group_of: Shape (launch edges,), position in `groups`.
        member_start: Shape (members,), node.
        member_end: Shape (members,), node.
        ends_from: The node of the first end.
        begins_from: The node of the first begin.
    """

    nodes_n: int
    base_ns: IntArray
    source: IntArray
    target: IntArray
    kind: IntArray
    item: IntArray
    at_call: IntArray
    is_return: Bools
    of_begin: IntArray
    of_return: IntArray
    inner: IntArray
    groups: IntArray
    group_of: IntArray
    group_target: IntArray
    member_start: IntArray
    member_end: IntArray
    ends_from: int
    begins_from: int


def skeleton(graph: RankGraph, marks: Marks) -> Skeleton:
    """Return the nodes and edges of a rank."""
    ops, calls = graph.edges.ops, graph.edges.host.calls
    at_call, is_return, of_begin, of_return = _thread_nodes(graph)
    inner = _inner(graph, marks)
    threads_n, inner_n = at_call.size, inner.size
    member_of = np.full(len(ops), -1, dtype=np.int64)
    member_of[marks.members] = np.arange(marks.members.size)
    node_of = np.full(len(ops), -1, dtype=np.int64)
    node_of[inner] = threads_n + np.arange(inner_n)
    members_from = threads_n + inner_n
    ends_from = members_from + marks.members.size
    begins_from = ends_from + marks.ends_n
    nodes_n = begins_from + marks.begin_ns.size
    # Where an operation's end is read: its own node, or that of a member's end.
    end_of = np.where(member_of >= 0, members_from + member_of, node_of)
    groups, group_of, launch_source, launch_target = _groups(graph, inner, of_begin, of_return)
    parts = [
        _stream_edges(graph, inner, end_of, node_of),
        (LAUNCH, launch_source, threads_n + launch_target, np.arange(group_of.size)),
        (
            LINK,
            end_of[graph.links.source],
            node_of[graph.links.target],
            np.arange(graph.links.source.size),
        ),
    ]
    returns = np.full(calls.row.size, -1, dtype=np.int64)
    returns[at_call[is_return]] = np.flatnonzero(is_return)
    begins = np.full(calls.row.size, -1, dtype=np.int64)
    begins[at_call[~is_return]] = np.flatnonzero(~is_return)
    of_waiting = returns[graph.waiting]
    waits, hands = graph.waits, graph.hands
    previous = hands.target[hands.target > calls.bounds[calls.thread[hands.target]]]
    parts += [
        (WAKE, end_of[waits.source], of_waiting[waits.target], np.arange(waits.source.size)),
        (OWN, of_begin[graph.waiting], of_waiting, np.arange(graph.waiting.size)),
        (RESUMED, of_return[previous - 1], begins[previous], previous),
        (HAND, of_return[hands.source], begins[hands.target], np.arange(hands.source.size)),
        (LENGTH, node_of[marks.members], end_of[marks.members], marks.members),
        (TAIL, end_of[marks.tails[:, 0]], ends_from + marks.tails[:, 1], marks.tails[:, 0]),
        (
            AFTER,
            node_of[marks.begin_ops[:, 1]] if marks.begin_is_start else end_of[marks.begin_ops[:, 1]],
            begins_from + marks.begin_ops[:, 0],
            marks.begin_ops[:, 1],
        ),
        _begin_edges(graph, marks, begins_from, of_begin, of_return),
    ]
    kind = np.repeat([part[0] for part in parts], [part[1].size for part in parts])
    source, target, item = (
        np.concatenate([np.asarray(part[place], dtype=np.int64) for part in parts])
        for place in (1, 2, 3)
    )
    base_ns = np.full(nodes_n, NEVER)
    base_ns[:threads_n] = np.where(is_return, NEVER, calls.start_ns[at_call])
    base_ns[threads_n:members_from] = ops.start_ns[inner]
    base_ns[begins_from:] = marks.begin_ns
    base_ns[target] = NEVER
    return Skeleton(
        nodes_n=nodes_n,
        base_ns=base_ns,
        source=source,
        target=target,
        kind=kind.astype(np.int64),
        item=item,
        at_call=at_call,
        is_return=is_return,
        of_begin=of_begin,
        of_return=of_return,
        inner=inner,
        groups=groups,
        group_of=group_of,
        group_target=launch_target,
        member_start=node_of[marks.members],
        member_end=end_of[marks.members],
        ends_from=ends_from,
        begins_from=begins_from,
    )


def _thread_nodes(graph: RankGraph) -> tuple[IntArray, Bools, IntArray, IntArray]:
    """Return nodes of threads, and from which the begin and the return of each call follow."""
    calls = graph.edges.host.calls
    begins, returns = np.zeros((2, calls.row.size), dtype=bool)
    begins[calls.bounds[:-1][np.diff(calls.bounds) > 0]] = True
    begins[graph.hands.target] = True
    returns[graph.waiting] = True
    both = np.column_stack((begins, returns)).reshape(-1)
    node = np.cumsum(both) - 1
    at = np.flatnonzero(both)
    return at // 2, at % 2 == 1, node[::2], node[1::2]


def _inner(graph: RankGraph, marks: Marks) -> IntArray:
    """Return the operations whose starts are nodes."""
    ops = graph.edges.ops
    chosen = np.zeros(len(ops), dtype=bool)
    chosen[graph.links.source] = True
    chosen[graph.links.target] = True
    chosen[graph.waits.source] = True
    chosen[marks.members] = True
    chosen[marks.tails[:, 0]] = True
    chosen[marks.begin_ops[:, 1]] = True
    chosen |= ~graph.follows & (ops.place < 0)
    return np.flatnonzero(chosen)


def _stream_edges(
    graph: RankGraph, inner: IntArray, end_of: IntArray, node_of: IntArray
) -> tuple[int, IntArray, IntArray, IntArray]:
    """Return edges between nodes of one stream; items are positions of the lower ones."""
    stream = graph.edges.ops.stream[inner]
    at = np.flatnonzero(stream[1:] == stream[:-1]) + 1
    return STREAM, end_of[inner[at - 1]], node_of[inner[at]], at


def _groups(
    graph: RankGraph, inner: IntArray, of_begin: IntArray, of_return: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return runs of operations of which one start is told by launches that follow from one node.

    Returns:
        Where runs begin; the runs that are edges; for each its thread's node, and the position of
        its stream's node in `inner`.
    """
    ops = graph.edges.ops
    n = len(ops)
    if not n or not inner.size:
        none = np.empty(0, dtype=np.int64)
        return none, none, none, none
    rows = np.arange(n)
    at = np.searchsorted(inner, rows)
    upper = np.minimum(at, inner.size - 1)
    lost = (at == inner.size) | (ops.stream[inner[upper]] != ops.stream)
    place = np.maximum(ops.place, 0)
    source = np.full(n, -1, dtype=np.int64)
    if of_begin.size:
        source = np.where(graph.in_call, of_begin[place], of_return[place])
        source = np.where((ops.place < 0) | lost, -1, source)
    new = np.ones(n, dtype=bool)
    new[1:] = (source[1:] != source[:-1]) | (upper[1:] != upper[:-1]) | (lost[1:] != lost[:-1])
    groups = np.flatnonzero(new)
    edges = np.flatnonzero(source[groups] >= 0)
    return groups, edges, source[groups[edges]], upper[groups[edges]]


def _begin_edges(
    graph: RankGraph, marks: Marks, begins_from: int, of_begin: IntArray, of_return: IntArray
) -> tuple[int, IntArray, IntArray, IntArray]:
    """Return from which call the begin of the first step follows; items are calls."""
    devices = np.arange(marks.begin_ns.size if marks.begin_call >= 0 else 0)
    call = np.full(devices.size, marks.begin_call)
    after = call.size and marks.call_ns >= int(graph.edges.host.calls.end_ns[marks.begin_call])
    source = (of_return if after else of_begin)[call] if call.size else call
    return BEGIN, source, begins_from + devices, call
