"""What one rank, or many on several sides, are reduced to: integers and strings only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nsys_llm.facts.held import HeldDevices
from nsys_llm.facts.lanes import LaneRows
from nsys_llm.job.collectives.matched import MatchedCollectives, match_collectives
from nsys_llm.job.communication_split import communication_details
from nsys_llm.job.partial import Partial
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.wall import idle_details
from nsys_llm.taxonomy.idle_causes import IDLE_CAUSES_N
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.wall import WallDetails, Walls, joined_details

from .per_rank.step_walls import StepWalls


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
        lanes: Its communication kernels, see `nsys_llm.facts.lanes`.
        held: When its devices were idle because of the profiler.
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
    lanes: tuple[LaneRows, ...]
    held: HeldDevices
    graph_nodes_n: int
    whole_graphs_n: int
    unrecorded_n: int


@dataclass(frozen=True)
class SidePart:
    """The ranks of one side.

    Attributes:
        kernels: By name and configuration (`per_rank.operations.Key`): `total_ns`, time inside the
            window, and how often which duration.
        calls: How often a CUDA call that waits for nothing took how long.
        ranges: The same of an NVTX range without a CUDA call.
        matched: The collectives of its ranks, once all are merged; None before.
    """

    ranks: Mapping[RankKey, RankSums] = field(default_factory=dict)
    kernels: ByKey = field(default_factory=ByKey)
    calls: ByKey = field(default_factory=ByKey)
    ranges: ByKey = field(default_factory=ByKey)
    matched: MatchedCollectives | None = None

    def match(self, ranks: Sequence[Rank], options: Mapping[str, Any]) -> MatchedCollectives:
        """Return the collectives of its ranks, of those or of all; they are matched once."""
        if self.matched is not None:
            return self.matched
        lanes = {key: sums.lanes for key, sums in self.ranks.items() if sums.lanes}
        selected = [rank for rank in ranks if rank.key in self.ranks]
        return match_collectives(lanes, selected, options)


@dataclass(frozen=True)
class DiffPartial(Partial[None]):
    """All sides; see `nsys_llm.trace.rank_sets`."""

    sides: Mapping[str, SidePart] = field(default_factory=dict)

    def prepared(self, ranks: Sequence[Rank], options: Mapping[str, Any]) -> DiffPartial:
        """Match the collectives of each side, for the wall split and all tables."""
        sides = {
            side: replace(part, matched=part.match(ranks, options))
            for side, part in self.sides.items()
        }
        return replace(self, sides=sides)

    def wall_details(self, walls: Walls, _options: Mapping[str, Any]) -> WallDetails:
        """Return what is known of the classes of each device of each side."""
        parts = self.sides.values()
        idle = {
            (key, device.device_id): idle_details(device.idle_ns)
            for part in parts
            for key, sums in part.ranks.items()
            for device in sums.devices
            if device.idle_ns is not None
        }
        met = [communication_details(part.matched, walls) for part in parts if part.matched]
        return joined_details([idle, *met])
