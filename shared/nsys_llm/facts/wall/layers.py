"""Which class each nanosecond of a device belongs to: the layers of the wall split. Pure numpy.

The classes take time in the order of `WALL_CLASSES`: what computes, then communication beside which
nothing computes, then copies and fills beside neither, then the profiler's own work while the
device runs nothing, then when work may have run that left no row. What no layer has is idle. Of
kernels that compute at the same time, the one that began first has the time.

All operations of a device count, before any filter: what else the GPU did then, it did.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import is_constant, joined
from nsys_llm.numeric.intervals import (
    IntArray,
    intersect_intervals,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication, is_fused
from nsys_llm.taxonomy.cuda_codes import DEVICE_TO_HOST, HOST_TO_DEVICE
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Kernels begin where this share of their time is reached: libraries start one or two before.
_TRIFLE: Final = 0.01
#: From the first to the last copy a load is at least this share of the time before the kernels;
#: ours.
_LEAST_PART: Final = 0.5
#: And so many times the bytes of all later copies from or to the host: weights do not come back.
_LEAST_TIMES: Final = 10
_COLUMNS: Final = ("source_device_id", "target_device_id")


def load_spans(trace: RankTrace, device_id: int) -> IntArray:
    """Return when a GPU's load was copied: shape (n, 2), sorted and disjoint; nothing without one.

    Before any filter. It has none if it ran no kernel.
    """
    nothing = np.empty((0, 2), dtype=np.int64)
    tables = {name: trace.unfiltered[name] for name in OP_TABLES if name in trace.unfiltered}
    copies = tables.get("memcpys")
    if copies is None or not len(copies):
        return nothing
    kind, here = copies["copy_kind"], copies["device_id"] == device_id
    from_host = here & (kind == HOST_TO_DEVICE)
    first_ns = _kernels_begin(tables, device_id) if from_host.any() else None
    if first_ns is None:
        return nothing
    host = from_host | here & (kind == DEVICE_TO_HOST)
    early = copies["start_ns"] < first_ns
    rows = np.flatnonzero(from_host & early)
    later_bytes = int(copies["size_bytes"][host & ~early].sum())
    if int(copies["size_bytes"][rows].sum()) < max(_LEAST_TIMES * later_bytes, 1):
        return nothing
    spans = union_intervals(copies["start_ns"][rows], np.minimum(copies["end_ns"][rows], first_ns))
    starts = (_of_device(op, device_id, "start_ns") for op in tables.values())
    before_ns = first_ns - min(int(some.min()) for some in starts if some.size)
    if not len(spans):  # copies of no length
        return nothing
    # Many small copies have gaps, in which the host reads what they bring.
    return spans if int(spans[-1, 1] - spans[0, 0]) >= _LEAST_PART * before_ns else nothing


def _kernels_begin(tables: Mapping[str, Table], device_id: int) -> int | None:
    """Return when a GPU's kernels begin, a trifle before left out; None where it ran none."""
    ran = [op for name in ("kernels", "graph_traces") if (op := tables.get(name)) is not None]
    start_ns, end_ns = (
        joined([_of_device(op, device_id, name) for op in ran]) for name in ("start_ns", "end_ns")
    )
    if not start_ns.size:
        return None
    time_ns, order = end_ns - start_ns, start_order(start_ns, lambda rows: (end_ns[rows],))
    if order is not None:
        start_ns, time_ns = start_ns[order], time_ns[order]
    reached_ns = np.cumsum(time_ns)
    return int(start_ns[np.searchsorted(reached_ns, _TRIFLE * reached_ns[-1])])


def _of_device(op: Table, device_id: int, name: str) -> IntArray:
    here = op["device_id"] == device_id
    return op[name] if here.all() else op[name][here]


@dataclass(frozen=True)
class WallLayers:
    """The layers of one device; all spans sorted and disjoint, of different layers too.

    Attributes:
        names: Full names of kernels; the label of a whole graph is `len(names)`.
        compute: Shape (n, 2), each piece of one kernel that computes, whether or not it also
            communicates, or of a whole graph.
        label: Shape (n,), whose piece it is.
        communicating: Shape (m, 2), when communication kernels ran, whatever else did.
        communication: The part of that beside which nothing computes.
        talk: Shape (k, 2), the same as `communicating` in pieces, each of the kernel that began
            first.
        talk_label: Shape (k,), twice the code of its name, or of `len(names)` for copies between
            GPUs of the rank; one more where its stream mostly computes.
        load: The part of `copies` that brought a model, see `load_spans`.
        host: By class when the device ran nothing and it was the profiler's time, or nobody knows
            of it, or nothing was to do; of the classes that `wall_layers` was told.
    """

    device_id: int
    names: tuple[str, ...]
    compute: IntArray
    label: IntArray
    communicating: IntArray
    communication: IntArray
    talk: IntArray
    talk_label: IntArray
    copies: IntArray
    load: IntArray
    host: Mapping[str, IntArray]

    @cached_property
    def only_compute(self) -> IntArray:
        """The pieces of what does not communicate as well."""
        fused = np.array([*map(is_fused, self.names), False])
        return self.compute[~fused[self.label]] if fused.any() else self.compute


def wall_layers(
    trace: RankTrace, host: Mapping[str, IntArray]
) -> tuple[tuple[str, ...], tuple[WallLayers, ...]]:
    """Return the full names of a rank's kernels, and the layers of each of its devices.

    Args:
        host: By class when its GPUs are told to have done nothing that counts, those that come
            first ahead of the others: shape (n, 2) each, sorted and disjoint.
    """
    kernels = trace.unfiltered["kernels"]
    texts, code = coded_names(kernels["demangled_name_id"], trace.strings)
    # Results of many ranks that travel together hold each name once.
    names = tuple(map(sys.intern, texts))
    communicates = np.array([is_communication(name) for name in names], dtype=bool)
    layers = tuple(
        _device_layers(trace, device, names, code, communicates, host)
        for device in trace.device_ids
    )
    return names, layers


def _first_come_pieces(times_ns: IntArray, label: IntArray) -> tuple[IntArray, IntArray]:
    """Give each nanosecond of a union to the interval that began first.

    Args:
        times_ns: Shape (2, n), starts and ends, in any order; may be changed.
        label: Shape (n,). Of equal starts the earlier end comes first, then the lower label, so
            that the order of rows decides nothing.

    Returns:
        Sorted disjoint pieces, shape (k, 2), that make up the union, and their labels, shape (k,).
    """
    order = start_order(times_ns[0], lambda some: (times_ns[1, some], label[some]))
    if order is not None:
        times_ns, label = times_ns[:, order], label[order]
    reach = np.maximum.accumulate(times_ns[1])
    if (times_ns[0, 1:] < reach[:-1]).any():
        np.maximum(times_ns[0, 1:], reach[:-1], out=times_ns[0, 1:])
    real = times_ns[1] > times_ns[0]
    if not real.all():
        times_ns, label = times_ns[:, real], label[real]
    return times_ns.T, label


def _device_layers(
    trace: RankTrace,
    device: int,
    names: tuple[str, ...],
    code: IntArray,
    communicates: npt.NDArray[np.bool_],
    host: Mapping[str, IntArray],
) -> WallLayers:
    reported = communicates[code] if communicates.any() else np.broadcast_to(np.False_, code.shape)
    graphs = np.broadcast_to(len(names), len(trace.unfiltered.get("graph_traces", ())))
    times_ns, label = _joined(
        [
            _Operations.of(trace, "kernels", device, code, ~reported),
            _Operations.of(trace, "graph_traces", device, graphs),
        ]
    )
    compute, label = _first_come_pieces(times_ns, label)
    of_kernels = _Operations.of(trace, "kernels", device, code, reported)
    between = copies_between(trace)
    peers = np.broadcast_to(2 * len(names), between.shape)
    of_peers = _Operations.of(trace, "memcpys", device, peers, between)
    times_ns, talk_label = _joined([of_kernels, of_peers])
    talk_label[: len(of_kernels)] *= 2
    talk_label[: len(of_kernels)] += _beside_compute(trace, device, reported)
    communicating = union_intervals(*times_ns)
    talk, talk_label = _first_come_pieces(times_ns, talk_label)
    copies = [
        _Operations.of(trace, "memcpys", device, None, ~between),
        _Operations.of(trace, "memsets", device),
    ]
    moving, _ = _joined(copies)
    layers: list[IntArray] = []
    for spans in (communicating, union_intervals(*moving), *host.values()):
        for above in (compute, *layers):
            spans = subtract_intervals(spans, above) if len(spans) and len(above) else spans
        layers.append(spans)
    communication, copying, *rest = layers
    return WallLayers(
        device_id=device,
        names=names,
        compute=compute,
        label=label,
        communicating=communicating,
        communication=communication,
        talk=talk,
        talk_label=talk_label,
        copies=copying,
        load=intersect_intervals(load_spans(trace, device), copying),
        host=dict(zip(host, rest, strict=True)),
    )


def _beside_compute(
    trace: RankTrace, device: int, reported: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return of each communication kernel of a device whether its stream is one that computes.

    It has more of the other kernels than of these, or most of all others of the device.
    """
    kernels = trace.unfiltered["kernels"]
    on_device = kernels["device_id"] == device
    here = reported & on_device
    if "stream_id" not in kernels or not here.any():
        return np.zeros(np.count_nonzero(here), dtype=bool)
    stream = kernels["stream_id"]
    used, of_stream, talks_n = np.unique(stream[here], return_inverse=True, return_counts=True)
    every_n = [np.count_nonzero((stream == some) & on_device) for some in used]
    others_n, all_n = np.array(every_n) - talks_n, np.count_nonzero(on_device & ~reported)
    return ((others_n > talks_n) | (2 * others_n > all_n))[of_stream]


@dataclass(frozen=True)
class _Operations:
    """Operations of one table on one device; `rows` tells which of all are, None for all."""

    start_ns: IntArray
    end_ns: IntArray
    label: IntArray
    rows: npt.NDArray[np.bool_] | None

    @classmethod
    def of(
        cls,
        trace: RankTrace,
        table: str,
        device: int,
        label: IntArray | None = None,
        chosen: npt.NDArray[np.bool_] | None = None,
    ) -> _Operations:
        """Return the chosen ones of a table; one that the recipe does not read has none."""
        if table not in trace.unfiltered:
            nothing = np.empty(0, dtype=np.int64)
            return cls(nothing, nothing, nothing, None)
        op = trace.unfiltered[table]
        ids = op["device_id"]
        rows = None if is_constant(ids) and ids[0] == device else ids == device
        if chosen is not None and not chosen.all():
            rows = chosen if rows is None else rows & chosen
        if label is None:
            label = np.broadcast_to(0, ids.shape)
        return cls(op["start_ns"], op["end_ns"], label, rows)

    def __len__(self) -> int:
        return self.start_ns.size if self.rows is None else int(np.count_nonzero(self.rows))


def _joined(parts: Sequence[_Operations]) -> tuple[IntArray, IntArray]:
    """Return starts and ends, shape (2, n), and labels: copied once, which is what takes long."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    times_ns = np.empty((2, ends[-1]), dtype=np.int64)
    label = np.empty(ends[-1], dtype=np.int64)
    for part, low, high in zip(parts, [0, *ends], ends, strict=False):
        for column, target in (
            (part.start_ns, times_ns[0]),
            (part.end_ns, times_ns[1]),
            (part.label, label),
        ):
            if part.rows is None:
                target[low:high] = column
            else:
                np.compress(part.rows, column, out=target[low:high])
    return times_ns, label


def copies_between(trace: RankTrace) -> npt.NDArray[np.bool_]:
    """Return of each copy, before any filter, whether it is between GPUs that both run kernels.

    Such copies are communication of one job. Of a GPU of another process, or where the profile does
    not name both, nobody knows whether it takes part.
    """
    copies = trace.unfiltered.get("memcpys")
    unnamed = copies is None or any(name not in copies for name in _COLUMNS)
    if copies is None or unnamed or len(trace.device_ids) < 2:
        return np.zeros(0 if copies is None else len(copies), dtype=bool)
    source, target = (copies[name] for name in _COLUMNS)
    device = trace.unfiltered["kernels"]["device_id"]
    used = [some for some in trace.device_ids if (device == some).any()]
    between: npt.NDArray[np.bool_] = (
        (source != target) & np.isin(source, used) & np.isin(target, used)
    )
    return between
