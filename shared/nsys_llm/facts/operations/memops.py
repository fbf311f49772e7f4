"""Copies and fills of one rank: what they move, how long they take, what runs beside them.

Sums of time are clipped to the windows; counts, bytes and percentiles take whole operations that
start in them. Exposed is the time in which no kernel runs on the device, nor a CUDA graph that was
traced as a whole, whose content nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.gpus import gpu_links, gpu_value
from nsys_llm.facts.device.overlap import Spans, longest_ns
from nsys_llm.facts.wall.layers import load_spans
from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import distinct_codes, summed
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import DEVICE_TO_HOST, HOST_TO_DEVICE, LARGE_BYTES
from nsys_llm.trace.device_ops import LARGEST_SIZE_BYTES, memop_table
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class MemopRows:
    """Copies and fills by device and kind, in that order; all arrays of shape (rows,).

    Attributes:
        kind: Packed code, see `nsys_llm.taxonomy.cuda_codes.MoveKind`.
        total_ns: Time inside the windows.
        union_ns: Time inside the windows in which at least one of them runs.
        exposed_ns: That part of `union_ns` in which no kernel and no whole graph runs.
        exposed_start_ns: Begin of the longest exposed stretch; NULL_INT where there is none.
        times: Of whole operations that start in the windows, ns.
        sizes: Of the same, bytes; operations whose size the export lacks are left out.
        fastest_bytes: Bytes of the fastest of those of `LARGE_BYTES` or more; 0: there is none.
    """

    device_id: IntArray
    kind: IntArray
    total_ns: IntArray
    union_ns: IntArray
    exposed_ns: IntArray
    exposed_start_ns: IntArray
    exposed_end_ns: IntArray
    times: Spread
    sizes: Spread
    fastest_bytes: IntArray
    fastest_ns: IntArray


@dataclass(frozen=True)
class ExposedCopies:
    """Time of one device in which copies or fills run, no kernel and no whole graph, and no load.

    Attributes:
        exposed_htod_ns: Inside the windows, copies from the host run and none to it.
        exposed_dtoh_ns: The other way round.
        exposed_both_ways_ns: Both run.
    """

    exposed_htod_ns: int
    exposed_dtoh_ns: int
    exposed_both_ways_ns: int


@dataclass(frozen=True)
class RankMemops:
    """Copies and fills of one rank.

    Attributes:
        peaks: Device id -> peak memory bandwidth, bytes per second; None: not known.
        exposed: Device id -> time of copies beside which nothing else runs.
    """

    rows: MemopRows
    peaks: Mapping[int, int | None]
    exposed: Mapping[int, ExposedCopies]


def map_memops(trace: RankTrace, spans: Mapping[int, Spans], global_pid: int) -> RankMemops:
    """Reduce the copies and fills of one rank."""
    moves = memop_table(trace)
    inside = trace.starts_inside(moves)
    known = inside & (moves["size_bytes"] >= 0) & (moves["size_bytes"] < LARGEST_SIZE_BYTES)
    whole_ns = moves["end_ns"] - moves["start_ns"]
    devices, device = distinct_codes(moves["device_id"])
    kinds, kind = distinct_codes(moves["kind"])
    used, group = distinct_codes(device * len(kinds) + kind)
    times = ValueCounts.from_values(group[inside], whole_ns[inside])
    sizes = ValueCounts.from_values(group[known], moves["size_bytes"][known])
    spans_by_group = [_spans_of(trace, moves.take(group == index)) for index in range(used.size)]
    device_id = devices[used // max(len(kinds), 1)]
    covers = (spans[value] for value in device_id.tolist())
    exposed = [
        _exposed(group_spans, cover)
        for group_spans, cover in zip(spans_by_group, covers, strict=True)
    ]
    longest = [longest_ns(item) or (NULL_INT, NULL_INT) for item in exposed]
    fastest = _fastest(group[known], moves["size_bytes"][known], whole_ns[known], used.size)
    rows = MemopRows(
        device_id=device_id,
        kind=kinds[used % max(len(kinds), 1)],
        total_ns=summed(group, trace.clipped_ns(moves), used.size),
        union_ns=_lengths(spans_by_group),
        exposed_ns=_lengths(exposed),
        exposed_start_ns=np.array([start for start, _ in longest], dtype=np.int64),
        exposed_end_ns=np.array([end for _, end in longest], dtype=np.int64),
        times=times.spread(used.size),
        sizes=sizes.spread(used.size),
        fastest_bytes=fastest[:, 0],
        fastest_ns=fastest[:, 1],
    )
    links = gpu_links(trace.tables, global_pid, trace.device_ids)
    peaks = {
        device: gpu_value(trace.tables, links.get(device), "bandwidth_bytes_s")
        for device in trace.device_ids
    }
    exposed_of = {device: _of_device(trace, device, some) for device, some in spans.items()}
    return RankMemops(rows, peaks, exposed_of)


def _spans_of(trace: RankTrace, moves: Table) -> IntArray:
    start_ns, end_ns = moves["start_ns"], moves["end_ns"]
    if trace.windows_ns is not None:
        _, start_ns, end_ns = clip_to_windows(start_ns, end_ns, trace.windows_ns)
    return union_intervals(start_ns, end_ns)


def _exposed(exposed: IntArray, spans: Spans) -> IntArray:
    for cover in (spans.compute, spans.communication, spans.graphs):
        exposed = subtract_intervals(exposed, cover)
    return exposed


def _fastest(group: IntArray, size_bytes: IntArray, whole_ns: IntArray, groups_n: int) -> IntArray:
    """Return bytes and ns of the fastest large operation of each group, shape (groups, 2).

    Of equals it is the largest; a group without a large one has zeros.
    """
    rows = np.flatnonzero((size_bytes >= LARGE_BYTES) & (whole_ns > 0))
    rate = size_bytes[rows] / whole_ns[rows]
    rows = rows[np.lexsort((size_bytes[rows], rate, group[rows]))]
    last = np.append(np.diff(group[rows]) != 0, True)[: rows.size]
    fastest = np.zeros((groups_n, 2), dtype=np.int64)
    fastest[group[rows][last]] = np.column_stack((size_bytes[rows], whole_ns[rows]))[last]
    return fastest


def _lengths(parts: Sequence[npt.NDArray[np.int64]]) -> IntArray:
    return np.array([total_length_ns(part) for part in parts], dtype=np.int64)


def _of_device(trace: RankTrace, device: int, spans: Spans) -> ExposedCopies:
    exposed = spans.copies
    for other in (spans.compute, spans.communication, spans.graphs, load_spans(trace, device)):
        exposed = subtract_intervals(exposed, other)
    copies = trace.tables["memcpys"]
    here, kind = copies["device_id"] == device, copies["copy_kind"]
    ways = [
        intersect_intervals(_spans_of(trace, copies.take(here & (kind == way))), exposed)
        for way in (HOST_TO_DEVICE, DEVICE_TO_HOST)
    ]
    both_ns = total_length_ns(intersect_intervals(*ways))
    return ExposedCopies(
        exposed_htod_ns=total_length_ns(ways[0]) - both_ns,
        exposed_dtoh_ns=total_length_ns(ways[1]) - both_ns,
        exposed_both_ways_ns=both_ns,
    )
