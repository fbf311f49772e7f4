"""One rank: its kernels, copies and fills, the host, and what was sampled beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.device.gpus import DeviceMetrics, map_gpu_metrics
from nsys_llm.facts.device.overlap import DeviceOverlap, map_overlap, map_spans
from nsys_llm.facts.operations.apis import RankApis, map_apis
from nsys_llm.facts.operations.callstacks import CallStack, map_callstacks
from nsys_llm.facts.operations.cuda_graphs import ReplayTimes, map_cuda_graphs
from nsys_llm.facts.operations.exposed import ExposedOperation, map_exposed
from nsys_llm.facts.operations.fusions import FusionRow, map_fusions
from nsys_llm.facts.operations.kernels import (
    KernelNames,
    KernelRows,
    SourceRows,
    communication_kernels,
    map_kernels,
    named_kernels,
)
from nsys_llm.facts.operations.launches import (
    DeviceLaunches,
    LaunchStages,
    launched_devices,
    map_launches,
    map_stages,
)
from nsys_llm.facts.operations.memops import RankMemops, map_memops
from nsys_llm.facts.operations.memory import MemorySeries, map_memory
from nsys_llm.facts.operations.overheads import OverheadRow, map_overheads
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.intervals import bounds, total_length_ns
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.kernel_launches import NcuLaunches
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class DeviceTimes:
    """One device of one rank. See the table `devices` of the manifest."""

    device_id: int
    window_start_ns: int | None
    window_end_ns: int | None
    window_ns: int
    launches_n: int
    kernel_total_ns: int
    kernel_busy_ns: int
    busy_ns: int


@dataclass(frozen=True)
class RankOperations:
    """One rank.

    Attributes:
        names: Shown kernel names, sorted.
        typical: A launch of each row of `kernels`.
        stats: By name over the rank's devices; the same object as `kernels` for one device.
        overlap: What runs together on each device, sorted by its id.
        exposed: Communication beside which nothing computes, by device and operation.
        launches: Of each device, sorted by its id.
    """

    names: tuple[str, ...]
    kernels: KernelRows
    typical: NcuLaunches
    stats: KernelRows
    sources: SourceRows
    devices: tuple[DeviceTimes, ...]
    overlap: tuple[DeviceOverlap, ...]
    exposed: tuple[ExposedOperation, ...]
    memops: RankMemops
    apis: RankApis
    launches: tuple[DeviceLaunches, ...]
    stages: LaunchStages
    overheads: tuple[OverheadRow, ...]
    fusions: tuple[FusionRow, ...]
    callstacks: tuple[CallStack, ...]
    memory: tuple[MemorySeries, ...]
    metrics: tuple[DeviceMetrics, ...]
    cuda_graphs: ReplayTimes | None


#: Ranks in order, each with its part.
RankRows = Sequence[tuple[Rank, RankOperations]]


@dataclass(frozen=True)
class OperationFacts:
    """Many ranks.

    Attributes:
        kernels: How often a launch of each shown name took how long.
        api_durations: How often a call of each API function took how long.
    """

    ranks: Mapping[RankKey, RankOperations] = field(default_factory=dict)
    kernels: ByKey = field(default_factory=ByKey)
    api_durations: ByKey = field(default_factory=ByKey)


def of(view: RankView) -> OperationFacts:
    """Reduce one rank; the options base and mangled choose the names shown."""
    trace, options, global_pid = view.trace, view.options, view.key.global_pid
    kernels = trace.tables["kernels"]
    names, early = named_kernels(kernels, trace.strings, options), view.dependents
    census, (overlap, memops), _ = concurrently(
        len(kernels),
        lambda: map_kernels(trace, names, early),
        lambda: _beside_kernels(trace, names, view.key),
        lambda: trace.gpu_busy,  # what follows asks for it from two threads
    )
    calls = trace.host_calls("api_calls", {"device_id": launched_devices(trace)})
    (apis, api_durations), stages, launches, (graphs, callstacks, memory, metrics) = concurrently(
        len(calls),
        lambda: map_apis(trace, calls),
        lambda: map_stages(trace, names.name),
        lambda: map_launches(trace, calls, census.of_device, census.devices, early),
        lambda: (
            map_cuda_graphs(view),
            map_callstacks(trace, options),
            map_memory(trace, global_pid, options),
            map_gpu_metrics(trace, global_pid, len(names.shown), names.name),
        ),
    )
    rank_operations = RankOperations(
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
        callstacks=callstacks,
        memory=memory,
        metrics=metrics,
        cuda_graphs=graphs,
    )
    return OperationFacts(
        {view.key: rank_operations},
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
