"""Kernels, copies, calls and launches of one rank, or of many. Integers and strings, which merge exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsys_llm.facts.device.overlap import DeviceOverlap
from nsys_llm.facts.operations.apis import RankApis
from nsys_llm.facts.operations.exposed import ExposedOperation
from nsys_llm.facts.operations.extras import RankExtras
from nsys_llm.facts.operations.fusions import FusionRow
from nsys_llm.facts.operations.kernels import KernelRows, SourceRows
from nsys_llm.facts.operations.launch_stages import LaunchStages
from nsys_llm.facts.operations.launches import DeviceLaunches
from nsys_llm.facts.operations.memops import RankMemops
from nsys_llm.facts.operations.overheads import OverheadRow
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.kernel_launches import NcuLaunches


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
    extras: RankExtras


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
