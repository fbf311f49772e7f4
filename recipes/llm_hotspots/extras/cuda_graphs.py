"""CUDA graphs that are replayed, how much of each is padding, and what lies between replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.captured_sizes import CapturedSizes, replay_sizes
from nsys_llm.analyses.device.graph_replays import GraphReplays, graph_replays
from nsys_llm.analyses.nvtx.launch_ranges import innermost_events
from nsys_llm.analyses.nvtx.range_names import raw_texts
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.batches import step_batches
from nsys_llm.analyses.wall.layers import first_come_pieces
from nsys_llm.numeric.grouping import distinct_rows, exact_sums, is_constant, joined
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    starts_inside,
    total_length_ns,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Launched outside of all ranges, and by no call that is recorded: in place of a row of events.
_OF_NO_RANGE, _OF_NO_CALL = -1, -2
_WITHOUT: Final = {_OF_NO_RANGE: "(none)", _OF_NO_CALL: "(no call)"}


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


@dataclass(frozen=True)
class Seams:
    """The time between replays on one device of one rank.

    Attributes:
        seams_n: How often a replay ends before the next one begins.
        eager: Time in it and number of operations, by the range that launched them.
    """

    device_id: int
    seams_n: int
    time_ns: int
    eager: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class RankGraphs:
    """The replays and seams of one rank; None without a replay."""

    times: ReplayTimes | None = None
    seams: tuple[Seams, ...] = ()


def map_cuda_graphs(view: RankView) -> RankGraphs:
    """Reduce one rank: replays that the filters leave and that begin in the window."""
    trace = view.trace
    every = view.graph_replays if trace.complete else graph_replays(trace, trace.tables)
    if trace.windows_ns is not None:
        every = every.take(starts_inside(every.start_ns, trace.windows_ns))
    if not len(every):
        return RankGraphs()
    _, batch, sizes = replay_sizes(view, every, view.steps, step_batches(view, view.steps))
    calls, busy = trace.tables["api_calls"], trace.gpu_busy
    begin_ns, return_ns = calls["start_ns"][every.call], calls["end_ns"][every.call]
    place = np.searchsorted(busy[:, 0], every.start_ns, side="right") - 1
    begins = (busy[place, 0] == every.start_ns) & (place > 0)
    times = ReplayTimes(
        every,
        sizes,
        batch,
        return_ns - begin_ns,
        every.start_ns - begin_ns,
        np.where(begins, every.start_ns - busy[place - 1, 1], 0),
        # Its first nodes may run already.
        starts_inside(np.minimum(return_ns, every.start_ns - 1), busy),
    )
    return RankGraphs(times, _seams(trace, every))


def _seams(trace: RankTrace, every: GraphReplays) -> tuple[Seams, ...]:
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
    if not len(spans):
        return {}
    parts = [
        _eager_ops(trace.tables[name], device, spans) for name in OP_TABLES if name in trace.tables
    ]
    starts, ends, call = (joined(list(column)) for column in zip(*parts, strict=True))
    del parts  # as long as the profile
    place = _launch_ranges(trace, call)
    places_n = int(place.max(initial=-1)) + 1
    ops_n = np.bincount(place[starts_inside(starts, spans)], minlength=places_n)
    pieces, place = first_come_pieces(np.stack((starts, ends)), place)
    cut = _cut(pieces, spans)
    owner, begun, ended = clip_to_windows(pieces[cut, 0], pieces[cut, 1], spans)
    length_ns = pieces[:, 1] - pieces[:, 0]
    length_ns[cut] = 0
    time_ns = exact_sums(place, length_ns, places_n)
    time_ns += exact_sums(place[cut][owner], ended - begun, places_n)
    used = np.flatnonzero(time_ns + ops_n)
    names, code = _range_names(trace, used)
    times = exact_sums(code, time_ns[used], len(names)).tolist()
    counts = exact_sums(code, ops_n[used], len(names)).tolist()
    return dict(zip(names, zip(times, counts, strict=True), strict=True))


def _eager_ops(op: Table, device: int, spans: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return begin, end and call of the operations outside of graphs while spans follow another."""
    chosen = ~is_graph_node(op)
    chosen &= (op["start_ns"] < spans[-1, 1]) & (op["end_ns"] > spans[0, 0])
    if not is_constant(op["device_id"]) or op["device_id"][0] != device:
        chosen &= op["device_id"] == device
    return op["start_ns"][chosen], op["end_ns"][chosen], op["launch_row"][chosen]


def _cut(pieces: IntArray, spans: IntArray) -> npt.NDArray[np.bool_]:
    """Return which pieces do not lie in one span; both are sorted and disjoint, spans are few."""
    low = np.searchsorted(pieces[:, 0], spans[:, 0])
    high = np.searchsorted(pieces[:, 1], spans[:, 1], side="right")
    edges = np.zeros(len(pieces) + 1, dtype=np.int64)
    np.add.at(edges, low, 1)
    np.add.at(edges, np.maximum(low, high), -1)
    return np.cumsum(edges[:-1]) == 0


def _launch_ranges(trace: RankTrace, call: IntArray) -> IntArray:
    """Return the place of the innermost range in which each call was made: its event, or before."""
    calls, events = trace.tables["api_calls"], trace.tables.get("nvtx_events")
    row = np.full(call.shape, _OF_NO_RANGE, dtype=np.int64)
    if events is not None and len(events):
        thread = calls["global_tid"][call]
        row = innermost_events(events, calls["start_ns"][call], thread, trace.last_end_ns)
    row[call < 0] = _OF_NO_CALL
    row += len(_WITHOUT)
    return row


def _range_names(trace: RankTrace, place: IntArray) -> tuple[list[str], IntArray]:
    """Return names of the ranges at some places, ascending, running numbers as #; and which."""
    row = place - len(_WITHOUT)
    labels = [_WITHOUT[at] for at in row[row < 0].tolist()]
    code = np.arange(len(labels))
    events = trace.tables.get("nvtx_events")
    if events is not None and row.size > len(labels):
        texts, text = raw_texts(events, row[row >= 0], trace.strings)
        code = np.concatenate((code, len(labels) + text))
        labels += [range_key(item) for item in texts]
    names = sorted(set(labels))
    of_label = np.array([names.index(item) for item in labels], dtype=np.int64)
    return names, of_label[code]


def graph_rows(ranks: Sequence[tuple[Rank, ReplayTimes | None]]) -> list[dict[str, Any]]:
    """Return the rows of the table cuda_graphs, most time first."""
    rows = [
        _graph_row(rank, times, *graph)
        for rank, times in ranks
        if times is not None
        for graph in times.by_graph()
    ]
    rows.sort(key=lambda row: -row["span_ns"])  # stable
    return rows


def _graph_row(
    rank: Rank, times: ReplayTimes, device_id: int, graph: int, rows: IntArray
) -> dict[str, Any]:
    every, sizes = times.replays, times.sizes
    place = int(np.searchsorted(sizes.graph, graph))
    size, batch_max = int(sizes.size[place]), int(sizes.batch_max[place])
    batch, queued = times.batch[rows], times.queued[rows]
    starts, ends = every.start_ns[rows], every.end_ns[rows]
    span_ns, busy_ns = int((ends - starts).sum()), int(every.busy_ns[rows].sum())
    padding = np.maximum(size - batch[batch > 0], 0)
    return {
        **of_rank(rank),
        "device_id": device_id,
        "graph": str(graph),
        "nodes_n": int(every.nodes_n[rows].max()) or None,
        "replays_n": rows.size,
        "api_ns": _median(times.call_ns[rows]),
        "launch_to_first_ns": _median(times.first_ns[rows][~queued]),
        "queued_n": int(queued.sum()),
        "lag_ns": _median(times.lag_ns[rows][queued]),
        "span_ns": span_ns,
        "busy_ns": busy_ns,
        "gaps_ns": span_ns - busy_ns,
        "concurrent_ns": int(every.sum_ns[rows].sum()) - busy_ns,
        "min_ns": int((ends - starts).min()),
        "p50_ns": _median(ends - starts),
        "p99_ns": float(np.percentile(ends - starts, 99)),
        "max_ns": int((ends - starts).max()),
        "between_p50_ns": _median(np.maximum(starts[1:] - ends[:-1], 0)),
        "captured_size": size if size > 0 else None,
        "size_source": sizes.source[place],
        "batch_max": batch_max if batch_max >= 0 else None,
        "padding_rows": int(padding.sum()) if size > 0 and padding.size else None,
    }


def _median(values: IntArray) -> float | None:
    return float(np.median(values)) if values.size else None


def seam_rows(rows: Sequence[tuple[Rank, Seams]]) -> list[dict[str, Any]]:
    """Return the rows of the table seams: eager work by range, then what is left idle."""
    lines = []
    for rank, seams in rows:
        order = sorted(seams.eager.items(), key=lambda item: (-item[1][0], item[0]))
        parts = [("eager", name, time_ns, ops_n) for name, (time_ns, ops_n) in order]
        idle_ns = seams.time_ns - sum(part[2] for part in parts)
        lines += [
            {
                **of_rank(rank),
                "device_id": seams.device_id,
                "seams_n": seams.seams_n,
                "what": what,
                "range": name,
                "time_ns": time_ns,
                "ops_n": ops_n,
                "seams_pct": 100.0 * time_ns / seams.time_ns if seams.time_ns else None,
            }
            for what, name, time_ns, ops_n in [*parts, ("idle", None, idle_ns, 0)]
        ]
    return lines
