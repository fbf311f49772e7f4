"""Reduces one rank: its kernels, copies and fills, the host, and what was sampled beside them."""

from __future__ import annotations

import numpy as np

from nsys_llm.analyses.device.overlap import DeviceOverlap, map_overlap, map_spans
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.core.concurrently import concurrently
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import bounds, total_length_ns
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

from ..partials import DeviceTimes, HotspotsPartial, RankHotspots
from .details import map_details
from .host import map_host
from .kernels import KernelNames, communication_kernels, map_kernels, named_kernels
from .memops import MemopCounts, RankMemops, map_memops
from .overheads import map_overheads


def map_rank(view: RankView) -> HotspotsPartial:
    """Reduce one rank; base and mangled choose the names shown, see `map_details` for others."""
    trace, rank, options = view.trace, view.key, view.options
    kernels = trace.tables["kernels"]
    names = named_kernels(kernels, trace.strings, options)
    census, (overlap, memops, memop_counts), details, _ = concurrently(
        len(kernels),
        lambda: map_kernels(trace, names),
        lambda: _beside_kernels(trace, names, rank),
        lambda: map_details(
            trace, rank, options, (names.shown, names.name), (names.pairs, names.source)
        ),
        lambda: trace.gpu_busy,  # what follows asks for it from two threads
    )
    host, api_durations = map_host(view, names.name, census.of_device, census.devices)
    hotspots = RankHotspots(
        names=names.shown,
        kernels=census.kernels,
        stats=census.stats,
        sources=census.sources,
        devices=tuple(_device_time(trace, device) for device in overlap),
        overlap=overlap,
        memops=memops,
        details=details,
        host=host,
        overheads=map_overheads(trace),
    )
    all_names, _ = coded_names(
        distinct(trace.unfiltered["kernels"]["demangled_name_id"]), trace.strings
    )
    return HotspotsPartial(
        {rank: hotspots}, names.shown, census.by_name, all_names, memop_counts, api_durations
    )


def _beside_kernels(
    trace: RankTrace, names: KernelNames, rank: RankKey
) -> tuple[tuple[DeviceOverlap, ...], RankMemops, MemopCounts]:
    """Return what devices did at the same time, and copies and fills."""
    spans = map_spans(trace, communication_kernels(names))
    memops, memop_counts = map_memops(trace, spans, rank.global_pid)
    return map_overlap(spans), memops, memop_counts


def _device_time(trace: RankTrace, device: DeviceOverlap) -> DeviceTimes:
    ops = {name: trace.tables[name] for name in OP_TABLES if name in trace.tables}
    device_tables = {
        name: table.take(table["device_id"] == device.device_id) for name, table in ops.items()
    }
    kernels, windows = device_tables["kernels"], trace.windows_ns
    filled = [table for table in device_tables.values() if len(table)]
    if windows is not None:
        span = windows
    elif filled:
        first_ns = min(int(table["start_ns"].min()) for table in filled)
        last_ns = max(int(table["end_ns"].max()) for table in filled)
        span = np.array([[first_ns, last_ns]], dtype=np.int64)
    else:
        span = np.empty((0, 2), dtype=np.int64)
    start_ns, end_ns = bounds(span)
    return DeviceTimes(
        device_id=device.device_id,
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        window_ns=total_length_ns(span),
        launches_n=int(trace.starts_inside(kernels).sum()),
        kernel_total_ns=int(trace.clipped_ns(kernels).sum()),
        kernel_busy_ns=device.kernel_busy_ns,
        busy_ns=device.busy_ns,
    )
