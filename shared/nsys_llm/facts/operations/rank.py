"""Reduces one rank: its kernels, copies and fills, the host, and what was sampled beside them."""

from __future__ import annotations

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.device.overlap import DeviceOverlap, map_overlap, map_spans
from nsys_llm.facts.operations.apis import map_apis
from nsys_llm.facts.operations.exposed import map_exposed
from nsys_llm.facts.operations.extras import map_extras
from nsys_llm.facts.operations.fusions import map_fusions
from nsys_llm.facts.operations.kept import DeviceTimes, OperationFacts, RankOperations
from nsys_llm.facts.operations.kernels import (
    KernelNames,
    communication_kernels,
    map_kernels,
    named_kernels,
)
from nsys_llm.facts.operations.launch_stages import map_stages
from nsys_llm.facts.operations.launches import launched_devices, map_launches
from nsys_llm.facts.operations.memops import RankMemops, map_memops
from nsys_llm.facts.operations.overheads import map_overheads
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.intervals import bounds, total_length_ns
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace


def of(view: RankView) -> OperationFacts:
    """Reduce one rank; base and mangled choose the names shown, other options see `map_extras`."""
    trace = view.trace
    kernels = trace.tables["kernels"]
    names, early = named_kernels(kernels, trace.strings, view.options), view.dependents
    census, (overlap, memops), _ = concurrently(
        len(kernels),
        lambda: map_kernels(trace, names, early),
        lambda: _beside_kernels(trace, names, view.key),
        lambda: trace.gpu_busy,  # what follows asks for it from two threads
    )
    calls, broken = trace.host_calls("api_calls", {"device_id": launched_devices(trace)})
    (apis, api_durations), stages, launches, extras = concurrently(
        len(calls),
        lambda: map_apis(trace, calls, broken),
        lambda: map_stages(trace, names.name),
        lambda: map_launches(trace, calls, census.of_device, census.devices, early),
        lambda: map_extras(view, names),
    )
    hotspots = RankOperations(
        names=names.shown,
        kernels=census.kernels,
        typical=census.typical,
        stats=census.stats,
        sources=census.sources,
        devices=tuple(_device_time(trace, device) for device in overlap),
        overlap=overlap,
        exposed=map_exposed(view),
        memops=memops,
        apis=apis,
        launches=launches,
        stages=stages,
        overheads=map_overheads(trace),
        fusions=map_fusions(view, names),
        extras=extras,
    )
    return OperationFacts(
        {view.key: hotspots},
        ByKey(names.shown, counts=census.by_name),
        api_durations,
    )


def _beside_kernels(
    trace: RankTrace, names: KernelNames, rank: RankKey
) -> tuple[tuple[DeviceOverlap, ...], RankMemops]:
    spans = map_spans(trace, communication_kernels(names))
    return map_overlap(spans), map_memops(trace, spans, rank.global_pid)


def _device_time(trace: RankTrace, device: DeviceOverlap) -> DeviceTimes:
    kernels = trace.device_ops(device.device_id)["kernels"]
    windows = trace.device_windows(device.device_id)
    start_ns, end_ns = bounds(windows)
    return DeviceTimes(
        device_id=device.device_id,
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        window_ns=total_length_ns(windows),
        launches_n=int(trace.starts_inside(kernels).sum()),
        kernel_total_ns=int(trace.clipped_ns(kernels).sum()),
        kernel_busy_ns=device.kernel_busy_ns,
        busy_ns=device.busy_ns,
    )
