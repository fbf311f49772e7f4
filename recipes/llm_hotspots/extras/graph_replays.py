"""Replays of CUDA graphs that were traced whole: how long each takes, and what is between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.report.columns import Columns, record_columns
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class GraphTimings:
    """One graph on one device of one rank. See the table `graph_replays` of the manifest.

    Attributes:
        duration_ns: Of each replay that starts in the window, ascending.
        between_ns: Ascending, from each replay's end to the next one's start; 0 where they overlap.
    """

    device_id: int
    graph_id: int | None
    duration_ns: tuple[int, ...]
    between_ns: tuple[int, ...]


def map_graph_replays(trace: RankTrace) -> tuple[GraphTimings, ...]:
    """Return the replays of each graph of a rank, by device and graph."""
    rows = trace.tables.get("graph_traces")
    if rows is None or not len(rows):
        return ()
    rows = rows.take(trace.starts_inside(rows))
    devices, graphs = rows["device_id"], rows["graph_id"]
    replays = []
    for device, graph in sorted(set(zip(devices.tolist(), graphs.tolist(), strict=True))):
        some = rows.take((devices == device) & (graphs == graph))
        some = some.take(np.lexsort((some["end_ns"], some["start_ns"])))
        duration_ns = np.sort(some["end_ns"] - some["start_ns"])
        between_ns = np.sort(np.maximum(some["start_ns"][1:] - some["end_ns"][:-1], 0))
        graph_id = None if graph == NULL_INT else graph
        times = tuple(duration_ns.tolist()), tuple(between_ns.tolist())
        replays.append(GraphTimings(device, graph_id, *times))
    return tuple(replays)


def replay_columns(rows: Sequence[tuple[Rank, GraphTimings]]) -> Columns:
    """Return the columns of the table graph_replays."""
    durations = [graph.duration_ns for _, graph in rows]
    between = [graph.between_ns for _, graph in rows]
    return {
        **record_columns(rows, "device_id", "graph_id"),
        "replays_n": [len(times) for times in durations],
        "total_ns": [sum(times) for times in durations],
        "p50_ns": [float(np.median(times)) for times in durations],
        "min_ns": [times[0] for times in durations],
        "max_ns": [times[-1] for times in durations],
        "between_p50_ns": [float(np.median(times)) if times else None for times in between],
        "between_max_ns": [times[-1] if times else None for times in between],
    }
