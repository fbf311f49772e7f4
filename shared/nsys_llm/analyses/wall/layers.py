"""Which class each nanosecond of a device belongs to: the layers of the wall split. Pure numpy.

The classes take time in the order of `WALL_CLASSES`: what computes, then communication beside which
nothing computes, then copies and fills beside neither, then the profiler's own work while the
device runs nothing. What no layer has is idle. Of kernels that compute at the same time, the one
that began first has the time.

All operations of a device count, before any filter: what else the GPU did then, it did.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.profiler_time import profiler_spans
from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import is_constant, joined
from nsys_llm.numeric.intervals import IntArray, subtract_intervals, union_intervals
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class WallLayers:
    """The layers of one device; all spans sorted and disjoint, of different layers too.

    Attributes:
        device_id: CUDA device id.
        names: Full names of kernels; the label of a whole graph is `len(names)`.
        compute: Shape (n, 2), each piece of one kernel or whole graph.
        label: Shape (n,), whose piece it is.
        communicating: Shape (m, 2), when communication kernels ran, whatever else did.
        communication: The part of that beside which nothing computes.
        copies: Likewise.
        profiler: Likewise.
    """

    device_id: int
    names: tuple[str, ...]
    compute: IntArray
    label: IntArray
    communicating: IntArray
    communication: IntArray
    copies: IntArray
    profiler: IntArray


def wall_layers(trace: RankTrace) -> tuple[tuple[str, ...], Iterator[WallLayers]]:
    """Return the full names of a rank's kernels, and the layers of each of its devices in turn."""
    kernels = trace.unfiltered["kernels"]
    texts, code = coded_names(kernels["demangled_name_id"], trace.strings)
    # Results of many ranks that travel together hold each name once.
    names = tuple(map(sys.intern, texts))
    communicates = np.array([is_communication(name) for name in names], dtype=bool)
    profiler = profiler_spans(trace)
    layers = (
        _device_layers(trace, device, names, code, communicates, profiler)
        for device in trace.device_ids
    )
    return names, layers


def first_come_pieces(
    start_ns: IntArray, end_ns: IntArray, label: IntArray
) -> tuple[IntArray, IntArray]:
    """Give each nanosecond of a union to the interval that began first.

    Args:
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.
        label: Shape (n,). Of equal starts the earlier end comes first, then the lower label, so
            that the order of rows decides nothing.

    Returns:
        Sorted disjoint pieces, shape (k, 2), that make up the union, and their labels, shape (k,).
    """
    order = start_order(start_ns, lambda some: (end_ns[some], label[some]))
    if order is not None:
        start_ns, end_ns, label = start_ns[order], end_ns[order], label[order]
    reach = np.maximum.accumulate(end_ns)
    begin_ns = start_ns
    if (start_ns[1:] < reach[:-1]).any():
        begin_ns = start_ns.copy()
        np.maximum(start_ns[1:], reach[:-1], out=begin_ns[1:])
    real = end_ns > begin_ns
    if not real.all():
        begin_ns, end_ns, label = begin_ns[real], end_ns[real], label[real]
    # Starts lie together, and so do ends.
    return np.stack((begin_ns, end_ns)).T, label


def _device_layers(
    trace: RankTrace,
    device: int,
    names: tuple[str, ...],
    code: IntArray,
    communicates: npt.NDArray[np.bool_],
    profiler: IntArray,
) -> WallLayers:
    kernels = _Spans.of(trace, "kernels", device, code)
    told = communicates[kernels.label] if communicates.any() else None
    graphs = _Spans.of(trace, "graph_traces", device, len(names))
    copies = [_Spans.of(trace, name, device, 0) for name in ("memcpys", "memsets")]
    computing = kernels if told is None else kernels.take(~told)
    parts = [computing, graphs] if graphs.label.size else [computing]
    compute, label = first_come_pieces(
        *(
            joined([getattr(part, name) for part in parts])
            for name in ("start_ns", "end_ns", "label")
        )
    )
    talking = kernels.take(np.flatnonzero(told)) if told is not None else kernels.take(slice(0))
    communicating = union_intervals(talking.start_ns, talking.end_ns)
    moved = (joined([getattr(part, name) for part in copies]) for name in ("start_ns", "end_ns"))
    layers: list[IntArray] = []
    for spans in (communicating, union_intervals(*moved), profiler):
        for above in (compute, *layers):
            spans = subtract_intervals(spans, above) if len(spans) and len(above) else spans
        layers.append(spans)
    return WallLayers(device, names, compute, label, communicating, *layers)


@dataclass(frozen=True)
class _Spans:
    """Operations of one table on one device; all of shape (n,)."""

    start_ns: IntArray
    end_ns: IntArray
    label: IntArray

    @classmethod
    def of(cls, trace: RankTrace, table: str, device: int, label: IntArray | int) -> _Spans:
        """Return those of a table; one that the recipe does not read has none."""
        if table not in trace.unfiltered:
            return cls(*np.empty((3, 0), dtype=np.int64))
        op = trace.unfiltered[table]
        ids = op["device_id"]
        every = cls(op["start_ns"], op["end_ns"], np.broadcast_to(label, ids.shape))
        if is_constant(ids) and ids[0] == device:
            return every
        return every.take(ids == device)

    def take(self, rows: npt.NDArray[np.bool_] | IntArray | slice) -> _Spans:
        """Return some of them."""
        return _Spans(self.start_ns[rows], self.end_ns[rows], self.label[rows])
