"""Longest ways through a graph, for several weights of its edges at once. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nsys_llm.analyses.path.ops import Bools
from nsys_llm.numeric.intervals import IntArray


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
    """Sort nodes by how many edges lead to them in a row at most.

    Args:
        nodes_n: How many nodes there are.
        source: Shape (edges,).
        target: Shape (edges,).
    """
    left = np.bincount(target, minlength=nodes_n)
    by_source = np.argsort(source, kind="stable")
    out = np.searchsorted(source[by_source], np.arange(nodes_n + 1))
    targets = target[by_source]
    ready, parts, sizes = np.flatnonzero(left == 0), [], [0]
    while ready.size:
        parts.append(ready)
        sizes.append(sizes[-1] + ready.size)
        reached = targets[_ranges(out[ready], out[ready + 1])]
        if ready.size == 1 and reached.size == 1:  # a chain, the common case of one rank
            left[reached] -= 1
        else:
            np.subtract.at(left, reached, 1)
        ready = reached[left[reached] == 0]
        if ready.size > 1:
            ready = np.unique(ready)
    nodes = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    position = np.full(nodes_n, nodes_n, dtype=np.int64)
    position[nodes] = np.arange(nodes.size)
    edges = np.argsort(position[target], kind="stable")
    first = np.searchsorted(position[target[edges]], np.arange(nodes.size + 1))
    return Levels(nodes, np.array(sizes), edges, first, nodes.size == nodes_n)


def _ranges(low: IntArray, high: IntArray) -> IntArray:
    """Return all integers of some ranges, one range after the other."""
    if low.size == 1:
        return np.arange(int(low[0]), int(high[0]))
    sizes = high - low
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1])) - np.repeat(ends - sizes - low, sizes)


def longest(
    order: Levels, base_ns: IntArray, source: IntArray, ns: IntArray, clamps: Clamps | None = None
) -> IntArray:
    """Return the time of every node for each column of weights, shape (nodes, columns).

    Args:
        order: Of the nodes.
        base_ns: Shape (nodes,), or (nodes, columns): the time of those that no edge leads to.
        source: Shape (edges,).
        ns: Shape (edges, columns), what each edge adds.
        clamps: What arrives no later than the median.
    """
    at_ns = np.empty((base_ns.shape[0], ns.shape[1]), dtype=np.int64)
    at_ns[:] = base_ns if base_ns.ndim == 2 else base_ns[:, None]
    bounds, first = order.bounds.tolist(), order.first
    for low, high in pairwise(bounds[1:]):
        edges = order.edges[int(first[low]) : int(first[high])]
        arrived = at_ns[source[edges]] + ns[edges]
        if clamps is not None:
            clamps.apply(arrived, edges, first[low:high] - first[low])
        at_ns[order.nodes[low:high]] = np.maximum.reduceat(arrived, first[low:high] - first[low])
    return at_ns


@dataclass(frozen=True)
class Clamps:
    """Edges that add nothing beyond the median of all that lead to the same node.

    Attributes:
        column: For which columns of weights.
        edges: For each, shape (all edges,), which edges.
    """

    column: tuple[int, ...]
    edges: tuple[Bools, ...]

    def apply(self, arrived: IntArray, edges: IntArray, first: IntArray) -> None:
        """Bring what arrives later to the median, in place; of two the earlier.

        Args:
            arrived: Shape (k, columns).
            edges: Shape (k,), the edges.
            first: Where the edges of each node begin in them.
        """
        for column, chosen in zip(self.column, self.edges, strict=True):
            late = np.flatnonzero(chosen[edges])
            if not late.size:
                continue
            sizes = np.diff(np.append(first, edges.size))
            node = np.repeat(np.arange(first.size), sizes)
            ordered = np.lexsort((arrived[:, column], node))
            median = arrived[ordered[first + (sizes - 1) // 2], column]
            arrived[late, column] = np.minimum(arrived[late, column], median[node[late]])
