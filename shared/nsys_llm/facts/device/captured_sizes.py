"""For how many rows each CUDA graph was captured, by the steps that replay it. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.device.graph_replays import NONE, GraphReplays
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.intervals import IntArray

_NEVER: Final = int(np.iinfo(np.int64).max)


def replay_sizes(
    view: RankView, replays: GraphReplays, steps: Steps | None, batches: Batches | None
) -> tuple[IntArray, IntArray, CapturedSizes]:
    """Return the step that each replay is launched in, the tokens of its batch, and the sizes.

    Both are -1 for none, tokens also where no name tells.
    """
    step = tokens = np.full(len(replays), NONE, dtype=np.int64)
    if steps is not None and batches is not None:
        at_ns = view.trace.tables["api_calls"]["start_ns"][replays.call]
        step = innermost(at_ns, steps.start_ns, steps.end_ns)
        tokens = batches.tokens(step)
    is_derived = batches is not None and batches.tokens_derived
    given = view.options["capture_sizes"]
    return step, tokens, captured_sizes(replays, tokens, given, is_derived=is_derived)


@dataclass(frozen=True)
class CapturedSizes:
    """Of each graph; arrays of shape (graphs,).

    Attributes:
        graph: See `GraphReplays`, sorted.
        batch_max: Most tokens of a batch that it was replayed for; -1 where none is known.
        size: Rows that it was captured for; -1 where that is not known.
    """

    graph: IntArray
    batch_max: IntArray
    size: IntArray

    def of(self, graph: IntArray) -> IntArray:
        """Return the size of each of some graphs."""
        return self.size[np.searchsorted(self.graph, graph)] if self.graph.size else graph


def captured_sizes(
    replays: GraphReplays, batch: IntArray, sizes: Sequence[int] | None, *, is_derived: bool
) -> CapturedSizes:
    """Return for how many rows each graph was captured.

    Args:
        batch: Shape (replays,), tokens of the batch of each, -1 where not known.
        sizes: Those that the engine captured, as a person knows them: a graph has the least of
            them that holds all of its batches.
        is_derived: Whether tokens are taken to be as many as requests. Drafts that no name tells of
            have several rows a request: then each graph is twice as large as its batches, or more.
    """
    graph, code = np.unique(replays.graph, return_inverse=True)
    batch_min, batch_max = _extremes(np.where(batch < 0, _NEVER, batch), batch, code, graph.size)
    least, most = _extremes(replays.grid, replays.grid, code, graph.size)
    known = (least == most) & (most > 0) & (most >= batch_max)
    # An engine replays the least graph that holds a batch: of those of one size batches overlap.
    for size in np.unique(most[known]).tolist():
        some = np.flatnonzero(known & (most == size) & (batch_max >= 0))
        if some.size and batch_min[some].max() > batch_max[some].min():
            known &= most != size
    if is_derived and (2 * batch_max <= most)[known & (batch_max > 0)].all():
        known[:] = False
    size = np.where(known, most, NONE)
    if sizes:
        ordered = np.array(sorted(sizes), dtype=np.int64)
        place = np.searchsorted(ordered, batch_max)
        known = (place < ordered.size) & (batch_max > 0)
        size[known] = ordered[place[known]]
    return CapturedSizes(graph, batch_max, size)


def _extremes(
    low: IntArray, high: IntArray, code: IntArray, codes_n: int
) -> tuple[IntArray, IntArray]:
    least, most = np.full(codes_n, _NEVER), np.full(codes_n, NONE, dtype=np.int64)
    np.minimum.at(least, code, low)
    np.maximum.at(most, code, high)
    return least, most
