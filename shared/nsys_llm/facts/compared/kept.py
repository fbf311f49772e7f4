"""What runs are compared by: of one rank, or of all of a side. Integers and strings, which merge exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.facts.compared.step_walls import StepWalls
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import IDLE_CAUSES_N
from nsys_llm.trace.identity import RankKey


@dataclass(frozen=True)
class DeviceSums:
    """One device of one rank, or all devices of ranks together.

    Attributes:
        exposed_ns: The part of it in which nothing but copies runs beside it.
        idle_ns: Shape (causes,), idle time by cause (see `nsys_llm.taxonomy.idle_causes`), the
            profiler's share last; None where it is not known.
    """

    device_id: int
    window_ns: int
    communication_ns: int
    exposed_ns: int
    copy_ns: int
    busy_ns: int
    idle_ns: IntArray | None

    @classmethod
    def total(cls, devices: Sequence[DeviceSums]) -> DeviceSums:
        """Add devices up; device_id is -1."""
        known = [item.idle_ns for item in devices if item.idle_ns is not None]
        is_known = bool(known) and len(known) == len(devices)
        return cls(
            device_id=-1,
            window_ns=sum(item.window_ns for item in devices),
            communication_ns=sum(item.communication_ns for item in devices),
            exposed_ns=sum(item.exposed_ns for item in devices),
            copy_ns=sum(item.copy_ns for item in devices),
            busy_ns=sum(item.busy_ns for item in devices),
            idle_ns=np.sum(known, axis=0) if is_known else None,
        )

    @property
    def idle_total_ns(self) -> int | None:
        """Idle time without what the profiler took; None where it is not known."""
        return None if self.idle_ns is None else int(self.idle_ns[:IDLE_CAUSES_N].sum())


@dataclass(frozen=True)
class RankSums:
    """One rank.

    Attributes:
        moves: Copies and fills by packed code (see `nsys_llm.taxonomy.cuda_codes.MoveKind`): those
            that start in the window, ns in them inside of it, and bytes of the first as far as
            sizes are recorded.
        apis: CUDA API calls by function: how many, and ns, likewise.
        phases: Operations and GPU time by phase.
        walls: Where the time of its full steps went.
        nameless: The same of graph replays or periods of kernels, where steps are ranges.
        whole: The same of the windows as a whole, where there are steps.
        graph_nodes_n: Operations inside CUDA graphs that were traced one by one.
        whole_graphs_n: CUDA graphs that were traced as a whole: kernels that are not seen.
        unrecorded_n: Launches whose work is not in the report.
    """

    moves: ByKey
    apis: ByKey
    phases: ByKey
    devices: tuple[DeviceSums, ...]
    walls: StepWalls
    nameless: StepWalls | None
    whole: StepWalls | None
    graph_nodes_n: int
    whole_graphs_n: int
    unrecorded_n: int


@dataclass(frozen=True)
class ComparedFacts:
    """The ranks of one side.

    Attributes:
        kernels: By name and configuration (`operations.Key`): `total_ns`, time inside the
            window, and how often which duration.
        calls: How often a CUDA call that waits for nothing took how long.
        ranges: The same of an NVTX range without a CUDA call.
    """

    ranks: Mapping[RankKey, RankSums] = field(default_factory=dict)
    kernels: ByKey = field(default_factory=ByKey)
    calls: ByKey = field(default_factory=ByKey)
    ranges: ByKey = field(default_factory=ByKey)
