"""Replays of CUDA graphs that were traced whole: how long each takes, and what is between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class GraphReplays:
    """One graph on one device of one rank.

    Attributes:
        device_id: CUDA device id.
        graph_id: As Nsight Systems counts; None where the export does not say.
        duration_ns: Of each replay that starts in the window, ascending.
        between_ns: Ascending, from each replay's end to the next one's start; 0 where they overlap.
    """

    device_id: int
    graph_id: int | None
    duration_ns: tuple[int, ...]
    between_ns: tuple[int, ...]


def map_graph_replays(trace: RankTrace) -> tuple[GraphReplays, ...]:
    """Return the replays of each graph of a rank, by device and graph."""
    rows = trace.tables.get("graph_traces")
    if rows is None or not len(rows):
        return ()
    rows = rows.take(trace.starts_inside(rows))
    devices, graphs = rows["device_id"], rows["graph_id"]
    pairs = sorted(set(zip(devices.tolist(), graphs.tolist(), strict=True)))
    starts, ends = rows["start_ns"], rows["end_ns"]
    replays = []
    for device, graph in pairs:
        selected = (devices == device) & (graphs == graph)
        order = np.lexsort((ends[selected], starts[selected]))
        begin_ns, end_ns = starts[selected][order], ends[selected][order]
        between_ns = np.maximum(begin_ns[1:] - end_ns[:-1], 0)
        graph_id = None if graph == NULL_INT else graph
        replays.append(
            GraphReplays(device, graph_id, _sorted(end_ns - begin_ns), _sorted(between_ns))
        )
    return tuple(replays)


def _sorted(values: IntArray) -> tuple[int, ...]:
    return tuple(np.sort(values).tolist())


def replay_columns(parts: Sequence[tuple[Rank, tuple[GraphReplays, ...]]]) -> Columns:
    """Return the columns of the table graph_replays."""
    rows = [(rank, graph) for rank, graphs in parts for graph in graphs]
    return {
        "rank": [rank.number for rank, _ in rows],
        "file": [rank.file for rank, _ in rows],
        "device_id": [graph.device_id for _, graph in rows],
        "graph_id": [graph.graph_id for _, graph in rows],
        "replays_n": [len(graph.duration_ns) for _, graph in rows],
        "total_ns": [sum(graph.duration_ns) for _, graph in rows],
        "p50_ns": [float(np.median(graph.duration_ns)) for _, graph in rows],
        "min_ns": [graph.duration_ns[0] for _, graph in rows],
        "max_ns": [graph.duration_ns[-1] for _, graph in rows],
        "between_p50_ns": [
            float(np.median(graph.between_ns)) if graph.between_ns else None for _, graph in rows
        ],
        "between_max_ns": [graph.between_ns[-1] if graph.between_ns else None for _, graph in rows],
    }
