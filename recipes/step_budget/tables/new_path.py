"""The path through a replayed run: what it is made of, and how much of it is certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys_llm.analyses.critical_path.path.classes import CLASS_NAMES
from nsys_llm.analyses.critical_path.replay.condensed import DOUBT
from nsys_llm.analyses.critical_path.replay.skeleton import NEVER
from nsys_llm.numeric.intervals import IntArray

from .replay import Replays


@dataclass(frozen=True)
class NewPath:
    """What the path of a replayed run is made of.

    Attributes:
        time_ns: Shape (classes,): each stretch between two nodes counts as what most of it is.
        certain_ns: Time to which nothing inferred led within its step.
    """

    time_ns: IntArray
    certain_ns: int


def new_path(replays: Replays, column: int, codes: Any, first: int, last: int) -> NewPath:
    """Walk back from the end of a step to the begin of another.

    Args:
        replays: The replays.
        column: Which of them.
        codes: Shape (edges,), see `nsys_llm.analyses.critical_path.replay.condensed`.
        first: The step whose begin ends the walk.
        last: The step with whose end it begins.
    """
    edge_of = _held_by(replays, column)
    times = replays.at_ns[:, column] + replays.graph.clock_ns
    at_ns, source = times.data, replays.graph.source.data
    steps = replays.edge_ns[: last + 2, column].tolist()
    time_ns, certain_ns, doubt, step = [0] * len(CLASS_NAMES), 0, False, last
    node, begin_ns = int(replays.last[last, column]), steps[first]
    while node >= 0 and at_ns[node] > begin_ns and edge_of[node] >= 0:
        while at_ns[node] <= steps[step]:
            step, doubt = step - 1, False
        edge = edge_of[node]
        below, code = source[edge], int(codes[edge])
        length_ns = max(at_ns[node] - max(at_ns[below], begin_ns), 0)
        doubt = doubt or code >= DOUBT
        time_ns[code % DOUBT] += length_ns
        certain_ns += 0 if doubt else length_ns
        node = below
    return NewPath(np.array(time_ns, dtype=np.int64), certain_ns)


def _held_by(replays: Replays, column: int) -> Any:
    """Return the edge that told the time of each node, -1 for none, shape (nodes,)."""
    graph, order = replays.graph, replays.graph.order
    reported = np.full(graph.base_ns.size, -1, dtype=np.int64)
    at_ns = replays.at_ns[:, column]
    edges, sizes = order.edges, np.diff(order.first)
    ways = at_ns[graph.source[edges]] + replays.ns[edges, column]
    # Where a late rank counts as the median one, its own way is longer than what counts.
    ways[ways > at_ns[graph.target[edges]]] = NEVER
    some = np.flatnonzero(sizes)
    if not some.size:
        return reported.data
    begins = order.first[some]
    longest = np.repeat(np.maximum.reduceat(ways, begins), sizes[some])
    equal = np.flatnonzero(ways == longest)
    reported[order.nodes[some]] = edges[equal[np.searchsorted(equal, begins)]]
    return reported.data
