"""CUDA graphs that are replayed, and how much of each is padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.captured_sizes import CapturedSizes, replay_sizes
from nsys_llm.facts.device.graph_replays import GraphReplays, graph_replays
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.grouping import distinct_rows
from nsys_llm.numeric.intervals import IntArray, starts_inside


@dataclass(frozen=True)
class ReplayTimes:
    """The replays of one rank; arrays of shape (replays,).

    Attributes:
        batch: Tokens of the batch of each, NONE where not known.
        first_ns: From the begin of that to the first node.
        lag_ns: From the end of what ran before on any device.
        queued: Whether the device was busy when the call returned.
    """

    replays: GraphReplays
    sizes: CapturedSizes
    batch: IntArray
    call_ns: IntArray
    first_ns: IntArray
    lag_ns: IntArray
    queued: npt.NDArray[np.bool_]

    def by_graph(self) -> Iterator[tuple[int, int, IntArray]]:
        """Yield each device and graph, and its replays in order of time."""
        every = self.replays
        order = np.lexsort((every.end_ns, every.start_ns, every.graph, every.device_id))
        first, _ = distinct_rows([every.device_id[order], every.graph[order]])
        for rows in np.split(order, np.sort(first)[1:]):
            yield int(every.device_id[rows[0]]), int(every.graph[rows[0]]), rows


def map_cuda_graphs(view: RankView) -> ReplayTimes | None:
    """Reduce one rank: replays that the filters leave and that begin in the window."""
    trace = view.trace
    every = view.graph_replays if trace.complete else graph_replays(trace, trace.tables)
    if trace.windows_ns is not None:
        every = every.take(starts_inside(every.start_ns, trace.windows_ns))
    if not len(every):
        return None
    _, batch, sizes = replay_sizes(view, every, view.steps, view.batches)
    calls, busy = trace.tables["api_calls"], trace.gpu_busy
    begin_ns, return_ns = calls["start_ns"][every.call], calls["end_ns"][every.call]
    place = np.searchsorted(busy[:, 0], every.start_ns, side="right") - 1
    begins = (busy[place, 0] == every.start_ns) & (place > 0)
    return ReplayTimes(
        every,
        sizes,
        batch,
        return_ns - begin_ns,
        every.start_ns - begin_ns,
        np.where(begins, every.start_ns - busy[place - 1, 1], 0),
        # Its first nodes may run already.
        starts_inside(np.minimum(return_ns, every.start_ns - 1), busy),
    )
