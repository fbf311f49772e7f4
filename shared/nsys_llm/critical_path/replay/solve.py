"""Longest ways through a graph, for several weights of its edges at once.

The graph of a rank is a chain of tens of thousands of levels, each of a node or two: a second
exception to "no row loops", beside the walk. Levels of many ranks are wide, and go through numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.numeric.intervals import IntArray

#: Edges a level up to which a loop over edges is faster than numpy level by level.
_NARROW: Final = 8


@dataclass(frozen=True)
class Levels:
    """Nodes in an order in which every node stands after all that it waits for.

    Attributes:
        nodes: Nodes level by level.
        bounds: Shape (levels + 1,): level l lies at bounds[l] to bounds[l + 1].
        edges: Edges in the order of their targets in `nodes`.
        first: Shape (nodes + 1,): the edges to nodes[i] lie at first[i] to first[i + 1].
        is_whole: Whether all nodes are there; not where some wait for each other.
    """

    nodes: IntArray
    bounds: IntArray
    edges: IntArray
    first: IntArray
    is_whole: bool


def levels(nodes_n: int, source: IntArray, target: IntArray) -> Levels:
    """Sort nodes by how many edges lead to them in a row at most."""
    by_source = np.argsort(source, kind="stable")
    out = np.searchsorted(source[by_source], np.arange(nodes_n + 1)).data
    targets = target[by_source].data
    edges_n = np.bincount(target, minlength=nodes_n)
    ordered, left = np.flatnonzero(edges_n == 0).tolist(), edges_n.tolist()
    depth = [0] * nodes_n
    for node in ordered:  # which grows: in the order of depths
        for reached in targets[out[node] : out[node + 1]]:
            left[reached] -= 1
            if not left[reached]:
                depth[reached] = depth[node] + 1
                ordered.append(reached)
    nodes = np.sort(np.array(ordered, dtype=np.int64))
    depths = np.array(depth, dtype=np.int64)[nodes]
    nodes = nodes[np.argsort(depths, kind="stable")]
    position = np.full(nodes_n, nodes_n, dtype=np.int64)
    position[nodes] = np.arange(nodes.size)
    edges = np.argsort(position[target], kind="stable")
    first = np.searchsorted(position[target[edges]], np.arange(nodes.size + 1))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(depths))))
    return Levels(nodes, bounds, edges, first, nodes.size == nodes_n)


def longest(
    order: Levels, base_ns: IntArray, source: IntArray, ns: IntArray, clamps: Clamps | None = None
) -> IntArray:
    """Return the time of every node for each column of weights, shape (nodes, columns).

    Args:
        base_ns: Shape (nodes,), or (nodes, columns): the time of those that no edge leads to.
        ns: Shape (edges, columns), what each edge adds.
        clamps: What arrives no later than the median.
    """
    at_ns = np.empty((base_ns.shape[0], ns.shape[1]), dtype=np.int64)
    at_ns[:] = base_ns if base_ns.ndim == 2 else base_ns[:, None]
    if clamps is None and order.edges.size <= _NARROW * order.bounds.size:
        _one_by_one(order, at_ns, source, ns)
        return at_ns
    bounds, first = order.bounds.tolist(), order.first
    for low, high in pairwise(bounds[1:]):
        edges = order.edges[int(first[low]) : int(first[high])]
        arrived = at_ns[source[edges]] + ns[edges]
        if clamps is not None:
            clamps.apply(arrived, edges, first[low:high] - first[low])
        at_ns[order.nodes[low:high]] = np.maximum.reduceat(arrived, first[low:high] - first[low])
    return at_ns


def _one_by_one(order: Levels, at_ns: IntArray, source: IntArray, ns: IntArray) -> None:
    """Set the times of nodes, in place: a loop over pairs of edges to a node.

    The first pair gives a node a time; each further edge is paired with the node as it is.
    """
    edges, edges_n = order.edges, np.diff(order.first)
    node = np.repeat(order.nodes, edges_n)
    nth = np.arange(edges.size) - np.repeat(order.first[:-1], edges_n)
    last = np.flatnonzero((nth > 0) | (np.repeat(edges_n, edges_n) == 1))
    nth, right = nth[last], edges[last]
    other = edges[last - (nth == 1)]
    targets, rights = node[last].tolist(), source[right].tolist()
    lefts = np.where(nth > 1, node[last], source[other]).tolist()
    for column in range(ns.shape[1]):
        left_ns = np.where(nth > 1, 0, ns[other, column]).tolist()
        times = at_ns[:, column].tolist()
        for target, left, add_ns, right_node, more_ns in zip(
            targets, lefts, left_ns, rights, ns[right, column].tolist(), strict=True
        ):
            way_ns, other_ns = times[left] + add_ns, times[right_node] + more_ns
            times[target] = way_ns if way_ns > other_ns else other_ns
        at_ns[:, column] = times


@dataclass(frozen=True)
class Clamps:
    """Edges that come no later to a node than the median of the others that lead there.

    Attributes:
        column: For which columns of weights.
        edges: For each, shape (all edges,), which edges.
        jitter_ns: Likewise, how much later or earlier than that.
    """

    column: tuple[int, ...]
    edges: tuple[Bools, ...]
    jitter_ns: tuple[IntArray, ...]

    def apply(self, arrived: IntArray, edges: IntArray, first: IntArray) -> None:
        """Bring what arrives later to the median of the others, in place.

        Args:
            arrived: Shape (k, columns).
            first: Where the edges of each node begin in them.
        """
        for column, chosen, jitter_ns in zip(self.column, self.edges, self.jitter_ns, strict=True):
            if not chosen[edges].any():
                continue
            node = np.repeat(np.arange(first.size), np.diff(np.append(first, edges.size)))
            at_ns = arrived[:, column]
            most_ns = at_ns - beyond_others(at_ns, node, chosen[edges]) + jitter_ns[edges]
            arrived[:, column] = np.where(chosen[edges], np.minimum(at_ns, most_ns), at_ns)


def beyond_others(values: IntArray, group: IntArray, chosen: Bools) -> IntArray:
    """Return what each value has beyond the median of those of its group that are not chosen.

    Args:
        group: Shape (k,), the number of the group of each, from 0.

    Returns:
        Shape (k,); 0 in a group of which all are chosen.
    """
    rest = np.flatnonzero(~chosen)
    rest = rest[np.lexsort((values[rest], group[rest]))]
    edge = np.searchsorted(group[rest], [group, group + 1])
    known = edge[1] > edge[0]
    middle = [np.where(known, sum(edge) - 1 + more, 0) // 2 for more in (0, 1)]
    ordered = values[rest] if rest.size else np.zeros(1, dtype=np.int64)
    median = (ordered[middle[0]] + ordered[middle[1]]) // 2
    return np.asarray(np.where(known, values - median, 0))
