"""CUDA graphs that are replayed, how much of each is padding, and what lies between replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.graph_replays import (
    NONE,
    NOT_KNOWN,
    SIZE_SOURCES,
    GraphReplays,
    captured_sizes,
    graph_replays,
    replay_batches,
)
from nsys_llm.analyses.nvtx.launch_ranges import event_text, innermost_events
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.wall.layers import first_come_pieces
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    starts_inside,
    total_length_ns,
    union_intervals,
)
from nsys_llm.report.columns import Columns, rank_columns, record_columns
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Launched outside of all ranges, and by no call that is recorded.
_NO_RANGE, _NO_CALL = "(none)", "(no call)"
_MEDIANS: Final = ("api_ns", "launch_to_first_ns", "lag_ns")


@dataclass(frozen=True)
class CudaGraph:
    """One graph on one device of one rank. See the table `cuda_graphs` of the manifest.

    Attributes:
        api_ns: Of each call that launched it, as of the next two; ascending.
        launch_to_first_ns: From the begin of the call to the first node, where the device was free.
        lag_ns: From the end of what ran before to the first node, where it was not.
        spans_ns: From the first node to the end of the last.
    """

    device_id: int
    graph: str
    nodes_n: int
    replays_n: int
    queued_n: int
    api_ns: tuple[int, ...]
    launch_to_first_ns: tuple[int, ...]
    lag_ns: tuple[int, ...]
    spans_ns: tuple[int, ...]
    busy_ns: int
    nodes_ns: int
    whole: bool
    size: int
    source: int
    batch_max: int
    padding_rows: int


@dataclass(frozen=True)
class Seams:
    """The time between replays on one device of one rank.

    Attributes:
        seams_n: How often a replay ends before the next one begins.
        time_ns: Together.
        eager: Time in it and number of operations, by the range that launched them.
    """

    device_id: int
    seams_n: int
    time_ns: int
    eager: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class RankGraphs:
    """The graphs and seams of one rank."""

    graphs: tuple[CudaGraph, ...] = ()
    seams: tuple[Seams, ...] = ()


def map_cuda_graphs(view: RankView) -> RankGraphs:
    """Reduce one rank: replays that the filters leave and that begin in the window."""
    trace = view.trace
    every = view.graph_replays if trace.complete else graph_replays(trace, trace.tables)
    if not len(every):
        return RankGraphs()
    batch = replay_batches(every, trace, view.steps)
    sizes = captured_sizes(every, batch, view.options["capture_sizes"])
    kept = np.ones(len(every), dtype=bool)
    if trace.windows_ns is not None:
        kept = starts_inside(every.start_ns, trace.windows_ns)
    api_ns, first_ns, lag_ns, queued = _launches(every, trace)
    graphs = []
    pairs = np.column_stack((every.device_id, every.graph))
    for pair in np.unique(pairs[kept], axis=0):
        rows = np.flatnonzero(kept & (pairs == pair).all(axis=1))
        place = int(np.searchsorted(sizes.graph, pair[1]))
        size, known = int(sizes.size[place]), rows[batch[rows] > 0]
        graphs.append(
            CudaGraph(
                device_id=int(pair[0]),
                graph=str(int(pair[1])),
                nodes_n=int(every.nodes_n[rows].max()),
                replays_n=rows.size,
                queued_n=int(queued[rows].sum()),
                api_ns=_ordered(api_ns[rows]),
                launch_to_first_ns=_ordered(first_ns[rows[~queued[rows]]]),
                lag_ns=_ordered(lag_ns[rows[queued[rows]]]),
                spans_ns=_ordered((every.end_ns - every.start_ns)[rows]),
                busy_ns=int(every.busy_ns[rows].sum()),
                nodes_ns=int(every.sum_ns[rows].sum()),
                whole=bool((every.nodes_n[rows] == 0).all()),
                size=size,
                source=int(sizes.source[place]),
                batch_max=int(sizes.batch_max[place]),
                padding_rows=int(np.maximum(size - batch[known], 0).sum())
                if size > 0 and known.size
                else NONE,
            )
        )
    return RankGraphs(tuple(graphs), _seams(view, every.take(kept)))


def _ordered(values: IntArray) -> tuple[int, ...]:
    return tuple(np.sort(values).tolist())


def _launches(
    every: GraphReplays, trace: RankTrace
) -> tuple[IntArray, IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Return of each replay: its call, from its begin to the first node, the lag, whether queued.

    The lag is from the end of what ran before on any device. Queued: the device was busy when the
    call returned.
    """
    calls, busy = trace.tables["api_calls"], trace.gpu_busy
    begin_ns, return_ns = calls["start_ns"][every.call], calls["end_ns"][every.call]
    place = np.searchsorted(busy[:, 0], every.start_ns, side="right") - 1
    begins = (busy[place, 0] == every.start_ns) & (place > 0)
    lag_ns = np.where(begins, every.start_ns - busy[place - 1, 1], 0)
    # Its first nodes may run already.
    queued = starts_inside(np.minimum(return_ns, every.start_ns - 1), busy)
    return return_ns - begin_ns, every.start_ns - begin_ns, lag_ns, queued


def _seams(view: RankView, every: GraphReplays) -> tuple[Seams, ...]:
    trace = view.trace
    parts = []
    for device in np.unique(every.device_id).tolist():
        rows = np.flatnonzero(every.device_id == device)
        replays = union_intervals(every.start_ns[rows], every.end_ns[rows])
        spans = np.column_stack((replays[:-1, 1], replays[1:, 0]))
        parts.append(
            Seams(device, len(spans), total_length_ns(spans), _eager(trace, device, spans))
        )
    return tuple(parts)


def _eager(trace: RankTrace, device: int, spans: IntArray) -> dict[str, tuple[int, int]]:
    """Return what ran in some spans, by the range that launched it: time and operations."""
    starts, ends, calls = [], [], []
    for name in (name for name in OP_TABLES if name in trace.tables and len(spans)):
        op = trace.tables[name]
        begun, ended = op["start_ns"], op["end_ns"]
        place = np.searchsorted(spans[:, 1], begun, side="right")
        inside = ended > spans[np.minimum(place, len(spans) - 1), 0]
        rows = np.flatnonzero(
            (place < len(spans)) & inside & (op["device_id"] == device) & ~is_graph_node(op)
        )
        starts.append(begun[rows])
        ends.append(ended[rows])
        calls.append(op["launch_row"][rows].astype(np.int64))
    if not any(part.size for part in starts):
        return {}
    names, code = _ranges(trace, joined(calls))
    pieces, label = first_come_pieces(np.stack((joined(starts), joined(ends))), code)
    owner, begun, ended = clip_to_windows(pieces[:, 0], pieces[:, 1], spans)
    time_ns, ops_n = np.zeros(len(names), dtype=np.int64), np.bincount(code, minlength=len(names))
    np.add.at(time_ns, label[owner], ended - begun)
    pairs = zip(time_ns.tolist(), ops_n.tolist(), strict=True)
    return dict(zip(names, pairs, strict=True))


def _ranges(trace: RankTrace, call: IntArray) -> tuple[list[str], IntArray]:
    """Return names of ranges, running numbers as #, and in which one each call was made."""
    calls, events = trace.tables["api_calls"], trace.tables.get("nvtx_events")
    row = np.full(call.shape, -1, dtype=np.int64)
    known = np.flatnonzero(call >= 0)
    if events is not None and len(events):
        at_ns, thread = calls["start_ns"][call[known]], calls["global_tid"][call[known]]
        row[known] = innermost_events(events, at_ns, thread, trace.last_end_ns)
    row[call < 0] = -2
    used, code = np.unique(row, return_inverse=True)
    special = {-1: _NO_RANGE, -2: _NO_CALL}
    texts = [
        special[at]
        if at < 0 or events is None
        else range_key(event_text(events, at, trace.strings))
        for at in used.tolist()
    ]
    names = sorted(set(texts))
    place = {name: index for index, name in enumerate(names)}
    return names, np.array([place[text] for text in texts], dtype=np.int64)[code]


def graph_columns(rows: Sequence[tuple[Rank, CudaGraph]]) -> Columns:
    """Return the columns of the table cuda_graphs, most time first."""
    rows = sorted(rows, key=lambda row: -sum(row[1].spans_ns))  # stable
    graphs = [graph for _, graph in rows]
    spans = [graph.spans_ns for graph in graphs]
    return {
        **record_columns(rows, "device_id", "graph", "replays_n", "queued_n", "busy_ns"),
        "nodes_n": [None if graph.whole else graph.nodes_n for graph in graphs],
        **{name: [_median(getattr(graph, name)) for graph in graphs] for name in _MEDIANS},
        "span_ns": [sum(times) for times in spans],
        "gaps_ns": [sum(times) - graph.busy_ns for times, graph in zip(spans, graphs, strict=True)],
        "concurrent_ns": [graph.nodes_ns - graph.busy_ns for graph in graphs],
        "p50_ns": [float(np.percentile(times, 50)) for times in spans],
        "p99_ns": [float(np.percentile(times, 99)) for times in spans],
        "captured_size": [_known(graph.size) for graph in graphs],
        "size_source": [
            None if graph.source == NOT_KNOWN else SIZE_SOURCES[graph.source] for graph in graphs
        ],
        "batch_max": [_known(graph.batch_max) for graph in graphs],
        "padding_rows": [
            None if graph.padding_rows == NONE else graph.padding_rows for graph in graphs
        ],
    }


def _median(values: Sequence[int]) -> float | None:
    return float(np.median(values)) if values else None


def _known(value: int) -> int | None:
    return value if value > 0 else None


def seam_columns(rows: Sequence[tuple[Rank, Seams]]) -> Columns:
    """Return the columns of the table seams: eager work by range, then what is left idle."""
    lines: list[tuple[Rank, dict[str, Any]]] = []
    for rank, seams in rows:
        of_seams = {"device_id": seams.device_id, "seams_n": seams.seams_n}
        order = sorted(seams.eager.items(), key=lambda item: (-item[1][0], item[0]))
        parts = [("eager", name, time_ns, ops_n) for name, (time_ns, ops_n) in order]
        idle_ns = seams.time_ns - sum(part[2] for part in parts)
        for what, name, time_ns, ops_n in [*parts, ("idle", None, idle_ns, 0)]:
            share = 100.0 * time_ns / seams.time_ns if seams.time_ns else None
            line = {"what": what, "range": name, "time_ns": time_ns, "ops_n": ops_n}
            lines.append((rank, of_seams | line | {"seams_pct": share}))
    names = ("device_id", "seams_n", "what", "range", "time_ns", "ops_n", "seams_pct")
    return {
        **rank_columns([(rank, 1) for rank, _ in lines]),
        **{name: [line[name] for _, line in lines] for name in names},
    }
