"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsys_llm.analyses.device.overlap import DeviceOverlap
from nsys_llm.numeric.distributions import HistogramByName, Moments, OrderStatistics, ValueCounts
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import RankKey

from .per_rank.details import RankDetails
from .per_rank.host import RankHost
from .per_rank.memops import MemopCounts, RankMemops
from .per_rank.overheads import OverheadRow


@dataclass(frozen=True)
class KernelRows:
    """Kernels by device and shown name, in that order; all arrays of shape (rows,).

    Attributes:
        device_id: CUDA device id.
        name: Code into `RankHotspots.names`.
        total_ns: Time inside the window.
        exclusive_ns: Share of the union of kernels on the device.
        moments: Of whole launches that start in the window.
        order: Around the percentiles of those.
    """

    device_id: IntArray
    name: IntArray
    total_ns: IntArray
    exclusive_ns: IntArray
    moments: Moments
    order: OrderStatistics


@dataclass(frozen=True)
class SourceRows:
    """Kernels by shown and demangled name; categories follow the latter.

    Attributes:
        name: Shown names.
        full_name: Demangled names; the pairs are distinct and sorted.
        launches_n: Shape (rows,), launches that start in the window.
        total_ns: Likewise, time inside the window.
        exclusive_ns: Likewise, share of the union of kernels.
    """

    name: tuple[str, ...]
    full_name: tuple[str, ...]
    launches_n: IntArray
    total_ns: IntArray
    exclusive_ns: IntArray


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
class RankHotspots:
    """One rank.

    Attributes:
        names: Shown kernel names, sorted.
        kernels: By device and name.
        stats: By name over the rank's devices; the same object as `kernels` for one device.
        sources: By shown and demangled name.
        devices: Sorted by id.
        overlap: What runs together on each device, sorted by its id.
        memops: Copies and fills.
        details: Over time, launch by launch, and as measured.
        host: What the host did: launches, API calls, waits.
        overheads: What the profiler and the driver took.
    """

    names: tuple[str, ...]
    kernels: KernelRows
    stats: KernelRows
    sources: SourceRows
    devices: tuple[DeviceTimes, ...]
    overlap: tuple[DeviceOverlap, ...]
    memops: RankMemops
    host: RankHost
    overheads: tuple[OverheadRow, ...]
    details: RankDetails = field(default_factory=RankDetails)


@dataclass(frozen=True)
class HotspotsPartial:
    """Many ranks.

    Attributes:
        ranks: Each rank by itself.
        names: Shown kernel names over all ranks, sorted.
        durations: How often a launch of each name (code into `names`) took how long.
        all_names: Demangled names of all kernels, also those that a filter leaves out: they tell
            the engine, whatever part of the run is looked at.
        memops: Copies and fills of all ranks by kind.
        api_durations: How often a call of each API function took how long.
    """

    ranks: Mapping[RankKey, RankHotspots] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    durations: ValueCounts = field(default_factory=ValueCounts.empty)
    all_names: tuple[str, ...] = ()
    memops: MemopCounts = field(default_factory=MemopCounts)
    api_durations: HistogramByName = field(default_factory=HistogramByName)


def merged(parts: Sequence[HotspotsPartial]) -> HotspotsPartial:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    kernels = HistogramByName.merge([HistogramByName(part.names, part.durations) for part in parts])
    ranks = {key: rank for part in parts for key, rank in part.ranks.items()}
    all_names = tuple(sorted({name for part in parts for name in part.all_names}))
    return HotspotsPartial(
        ranks,
        kernels.names,
        kernels.counts,
        all_names,
        MemopCounts.merge([part.memops for part in parts]),
        HistogramByName.merge([part.api_durations for part in parts]),
    )
