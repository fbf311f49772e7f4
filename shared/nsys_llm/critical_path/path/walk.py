"""Follows predecessors from where walks begin, once over all that any of them visits.

The named exception to "no row loops": a walk is a chain. Nodes stand in the order of streams and
threads, so that most predecessors are the node before; those runs are one hop, and a loop of Python
takes as many as a path changes between streams, threads and calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import COMMUNICATION
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class Segments:
    """What walks visit, cut where any of them begins, joins another, or is in communication.

    Arrays of shape (segments,), in the order of `top`. A segment is a run of nodes, each the
    predecessor of the one above it.

    Attributes:
        top: Its first node on the way back, the largest.
        next: The segment that goes on below; -1 for none.
    """

    top: IntArray
    bottom: IntArray
    next: IntArray


def run_bottoms(edges: Edges) -> npt.NDArray[np.int32]:
    """Return for each node the last one that is reached from it by steps of one; shape (nodes,).

    A communication operation is a run of its own: there a path may go on in another rank.
    """
    before = edges.before
    nodes = np.arange(before.size, dtype=np.int32)
    alone = np.flatnonzero(edges.ops.kind == COMMUNICATION)
    breaks = before != nodes - 1
    breaks[:1] = True
    breaks[alone] = True
    breaks[np.minimum(alone + 1, max(before.size - 1, 0))] = True
    bottoms = np.where(breaks, nodes, 0)
    return np.maximum.accumulate(bottoms, out=bottoms)


def segments(edges: Edges, begins: Iterable[int]) -> Segments:
    """Return all that walks from some nodes visit."""
    bottoms = run_bottoms(edges)
    top = _tops(edges, bottoms, begins)
    bottom = bottoms[top].astype(np.int64)
    if top.size:
        # Another walk that joins the run further down begins a segment there.
        joined = np.concatenate(([-1], top[:-1]))
        bottom = np.where(joined >= bottom, joined + 1, bottom)
    below = np.where(bottom > bottoms[top], bottom - 1, edges.before[bottom])
    at = np.minimum(np.searchsorted(top, below), max(top.size - 1, 0))
    known = (below >= 0) & (top[at] == below) if top.size else below >= 0
    return Segments(top, bottom, np.where(known, at, -1))


def _tops(edges: Edges, bottoms: npt.NDArray[np.int32], begins: Iterable[int]) -> IntArray:
    """Return the nodes at which a walk enters a run, ascending."""
    bottom_of, before = bottoms.data, edges.before.data
    entered = bytearray(bottoms.size)
    for begin in begins:
        node = begin
        while node >= 0 and not entered[node]:
            entered[node] = 1
            node = before[bottom_of[node]]
    return np.flatnonzero(np.frombuffer(entered, dtype=np.uint8))
