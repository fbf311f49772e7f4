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

from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.replay.weights import RankGraph
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.intervals import IntArray

#: No time at all: of nodes that only edges give a time.
NEVER: Final = -(1 << 60)

#: Kinds of edges, in the order in which they stand.
STREAM, LAUNCH, LINK, WAKE, OWN, RESUMED, HAND, LENGTH, TAIL, AFTER, BEGIN = range(11)


#: A kind, and of each of its edges source, target and item.
_Part = tuple[int, IntArray | Positions, IntArray | Positions, IntArray]


@dataclass(frozen=True)
class Marks:
    """What a replay is asked about; the profile's clock.

    Attributes:
        members: Shape (members,), communication operations that other ranks may be part of.
        tails: Shape (ends, 2): an operation, and which end it is part of; an end is the latest one.
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
class Nodes:
    """Nodes of one rank: threads', then starts of operations, then ends of members, ends, begins.

    Of which node is what, -1 stands for none.

    Attributes:
        at_call: Shape (thread nodes,), the call of each.
        is_return: Shape (thread nodes,), whether it is the call's return, else its begin.
        of_begin: Shape (calls,), the node of its thread from which the begin of each follows.
        of_return: Likewise, its return.
        begins: Shape (calls,), the node of the begin of each call.
        returns: Likewise, of its return.
        inner: Shape (stream nodes,), operations, ascending.
        starts: Shape (operations,), the node of the start of each operation.
        ends: Likewise, from which its end follows: its start's, or that of a member's end.
    """

    at_call: IntArray
    is_return: Bools
    of_begin: Positions
    of_return: Positions
    begins: IntArray
    returns: IntArray
    inner: IntArray
    starts: IntArray
    ends: IntArray
    ends_from: int
    begins_from: int
    n: int


@dataclass(frozen=True)
class Skeleton(Nodes):
    """Nodes and edges of one rank; their weights come from a `Condenser`.

    Attributes:
        base_ns: Shape (nodes,), the time of those that nothing precedes, `NEVER` of the others.
        source: Shape (edges,), a node.
        target: Shape (edges,), a node.
        kind: Shape (edges,), one of the codes above.
        item: Shape (edges,), of what the edge is: an operation, a link, a call, ...
        groups: Shape (groups,), where in the operations groups begin, ascending; those of launch
            edges are among them.
        group_of: Shape (launch edges,), position in `groups`.
        group_target: Shape (launch edges,), position in `inner`.
        member_start: Shape (members,), node.
        member_end: Shape (members,), node.
    """

    base_ns: IntArray
    source: IntArray
    target: IntArray
    kind: IntArray
    item: IntArray
    groups: IntArray
    group_of: IntArray
    group_target: IntArray
    member_start: IntArray
    member_end: IntArray


def _nodes(graph: RankGraph, marks: Marks) -> Nodes:
    ops, calls_n = graph.edges.ops, graph.edges.host.calls.row.size
    at_call, is_return, of_begin, of_return = _thread_nodes(graph)
    inner = _inner(graph, marks)
    begins, returns = np.full((2, calls_n), -1, dtype=np.int64)
    returns[at_call[is_return]] = np.flatnonzero(is_return)
    begins[at_call[~is_return]] = np.flatnonzero(~is_return)
    starts = np.full(len(ops), -1, dtype=np.int64)
    starts[inner] = at_call.size + np.arange(inner.size)
    members_from = at_call.size + inner.size
    ends = starts.copy()
    ends[marks.members] = members_from + np.arange(marks.members.size)
    ends_from = members_from + marks.members.size
    begins_from = ends_from + marks.ends_n
    return Nodes(
        at_call,
        is_return,
        of_begin,
        of_return,
        begins,
        returns,
        inner,
        starts,
        ends,
        ends_from,
        begins_from,
        begins_from + marks.begin_ns.size,
    )


def skeleton(graph: RankGraph, marks: Marks) -> Skeleton:
    """Return the nodes and edges of a rank."""
    ops, calls, nodes = graph.edges.ops, graph.edges.host.calls, _nodes(graph, marks)
    groups, group_of, thread_node, group_target = _groups(graph, nodes)
    threads_n = nodes.at_call.size
    launches = LAUNCH, thread_node, threads_n + group_target, np.arange(group_of.size)
    parts = [launches, *_device_edges(graph, marks, nodes), *_host_edges(graph, marks, nodes)]
    parts = sorted(parts, key=lambda part: part[0])
    kind = np.repeat([part[0] for part in parts], [part[1].size for part in parts])
    source, target, item = (
        np.concatenate([np.asarray(part[place], dtype=np.int64) for part in parts])
        for place in (1, 2, 3)
    )
    base_ns = np.full(nodes.n, NEVER)
    base_ns[:threads_n] = np.where(nodes.is_return, NEVER, calls.start_ns[nodes.at_call])
    base_ns[threads_n : threads_n + nodes.inner.size] = ops.start_ns[nodes.inner]
    base_ns[nodes.begins_from :] = marks.begin_ns
    base_ns[target] = NEVER
    return Skeleton(
        **vars(nodes),
        base_ns=base_ns,
        source=source,
        target=target,
        kind=kind.astype(np.int64),
        item=item,
        groups=groups,
        group_of=group_of,
        group_target=group_target,
        member_start=nodes.starts[marks.members],
        member_end=nodes.ends[marks.members],
    )


def _device_edges(graph: RankGraph, marks: Marks, nodes: Nodes) -> list[_Part]:
    links, waits, (tails, ends) = graph.links, graph.waits, marks.tails.T
    device, begin_op = marks.begin_ops.T
    before = (nodes.starts if marks.begin_is_start else nodes.ends)[begin_op]
    stream = graph.edges.ops.stream[nodes.inner]
    at = np.flatnonzero(stream[1:] == stream[:-1]) + 1
    lower, upper = nodes.ends[nodes.inner[at - 1]], nodes.starts[nodes.inner[at]]
    lengths = nodes.starts[marks.members], nodes.ends[marks.members]
    woken = nodes.returns[graph.waiting[waits.target]]
    link_target = nodes.starts[links.target]
    return [
        (STREAM, lower, upper, at),
        (LINK, nodes.ends[links.source], link_target, np.arange(links.source.size)),
        (WAKE, nodes.ends[waits.source], woken, np.arange(waits.source.size)),
        (LENGTH, *lengths, marks.members),
        (TAIL, nodes.ends[tails], nodes.ends_from + ends, tails),
        (AFTER, before, nodes.begins_from + device, begin_op),
    ]


def _host_edges(graph: RankGraph, marks: Marks, nodes: Nodes) -> list[_Part]:
    calls, hands, waiting = graph.edges.host.calls, graph.hands, graph.waiting
    # Where a thread was handed over to, it had to return from its own call before, too.
    resumed = hands.target[hands.target > calls.bounds[calls.thread[hands.target]]]
    devices = np.arange(marks.begin_ns.size if marks.begin_call >= 0 else 0)
    call = np.full(devices.size, marks.begin_call)
    after = bool(devices.size) and marks.call_ns >= int(calls.end_ns[marks.begin_call])
    before = (nodes.of_return if after else nodes.of_begin)[call] if devices.size else call
    handed = nodes.of_return[hands.source], nodes.begins[hands.target]
    return [
        (OWN, nodes.of_begin[waiting], nodes.returns[waiting], np.arange(waiting.size)),
        (RESUMED, nodes.of_return[resumed - 1], nodes.begins[resumed], resumed),
        (HAND, *handed, np.arange(hands.source.size)),
        (BEGIN, before, nodes.begins_from + devices, call),
    ]


def _thread_nodes(graph: RankGraph) -> tuple[IntArray, Bools, Positions, Positions]:
    """Return nodes of threads, and from which the begin and the return of each call follow."""
    calls = graph.edges.host.calls
    begins, returns = np.zeros((2, calls.row.size), dtype=bool)
    begins[calls.bounds[:-1][np.diff(calls.bounds) > 0]] = True
    begins[graph.hands.target] = True
    returns[graph.waiting] = True
    both = np.column_stack((begins, returns)).reshape(-1)
    node = np.cumsum(both, dtype=np.int32)
    node -= 1
    at = np.flatnonzero(both)
    return at // 2, at % 2 == 1, node[::2], node[1::2]


def _inner(graph: RankGraph, marks: Marks) -> IntArray:
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


def _groups(graph: RankGraph, nodes: Nodes) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return runs of operations of which one start is told by launches that follow from one node.

    Returns:
        Where runs begin; the runs that are edges; for each its thread's node, and the position of
        its stream's node in `inner`.
    """
    ops, inner = graph.edges.ops, nodes.inner
    n = len(ops)
    if not n or not inner.size:
        none = np.empty(0, dtype=np.int64)
        return none, none, none, none
    sizes = np.diff(np.concatenate(([-1], inner, [n - 1])))
    at = np.repeat(np.arange(inner.size + 1, dtype=np.int32), sizes)
    upper = np.minimum(at, inner.size - 1)
    lost = (at == inner.size) | (ops.stream[inner[upper]] != ops.stream)
    place = np.maximum(ops.place, 0)
    source = np.full(n, -1, dtype=np.int32)
    if nodes.of_begin.size:
        source = np.where(graph.in_call, nodes.of_begin[place], nodes.of_return[place])
        source = np.where((ops.place < 0) | lost, -1, source)
    new = np.ones(n, dtype=bool)
    new[1:] = (source[1:] != source[:-1]) | (upper[1:] != upper[:-1]) | (lost[1:] != lost[:-1])
    groups = np.flatnonzero(new)
    edges = np.flatnonzero(source[groups] >= 0)
    thread_node, target = source[groups[edges]], upper[groups[edges]]
    return groups, edges, thread_node.astype(np.int64), target.astype(np.int64)
