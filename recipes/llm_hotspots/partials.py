"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nsys_llm.facts.device.overlap import DeviceOverlap
from nsys_llm.job.partial import Partial
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.kernel_launches import NcuLaunches

from .extras.rank import RankExtras
from .per_rank.apis import RankApis
from .per_rank.exposed import ExposedOperation
from .per_rank.fusions import FusionRow
from .per_rank.kernels import KernelRows, SourceRows
from .per_rank.launch_stages import LaunchStages
from .per_rank.launches import DeviceLaunches
from .per_rank.memops import RankMemops
from .per_rank.overheads import OverheadRow


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
    extras: RankExtras


#: Ranks in order, each with its part.
RankRows = Sequence[tuple[Rank, RankHotspots]]


@dataclass(frozen=True)
class HotspotsPartial(Partial[RankHotspots]):
    """Many ranks.

    Attributes:
        kernels: How often a launch of each shown name took how long.
        all_names: Demangled names of all kernels, also those that a filter leaves out: they tell
            the engine, whatever part of the run is looked at.
        api_durations: How often a call of each API function took how long.
    """

    kernels: ByKey = field(default_factory=ByKey)
    all_names: tuple[str, ...] = ()
    api_durations: ByKey = field(default_factory=ByKey)
