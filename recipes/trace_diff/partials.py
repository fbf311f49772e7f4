"""What one rank, or many on several sides, are reduced to: integers and strings only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import TypeVar

import numpy as np

from nsys_llm.analyses.collectives.lanes import LaneRows
from nsys_llm.analyses.collectives.matched import MatchedCollectives
from nsys_llm.analyses.collectives.profiler import HeldDevices
from nsys_llm.numeric.distributions import HistogramByName, ValueCounts
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import IDLE_CAUSES_N
from nsys_llm.trace.by_rank import merged_ranks
from nsys_llm.trace.identity import RankKey

from .per_rank.operations import Key, MoveSums, none
from .per_rank.step_walls import StepWalls

Name = TypeVar("Name", bound=Hashable)
#: Calls or operations that start in the window, and ns in them inside of it, by name.
NamedSums = dict[str, tuple[int, ...]]


def added(rows: Iterable[tuple[Name, tuple[int, ...]]]) -> dict[Name, tuple[int, ...]]:
    """Add amounts up by key; of one key all rows have as many."""
    sums: dict[Name, tuple[int, ...]] = {}
    for key, amounts in rows:
        before = sums.get(key)
        sums[key] = amounts if before is None else tuple(map(add, before, amounts))
    return sums


def by_name(
    names: Sequence[Name], calls_n: IntArray, total_ns: IntArray
) -> dict[Name, tuple[int, ...]]:
    """Add up numbers and times, both of shape (names,), by name; a name may occur twice."""
    return added(zip(names, zip(calls_n.tolist(), total_ns.tolist(), strict=True), strict=True))


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
        apis: CUDA API calls by function.
        phases: GPU time by phase.
        walls: Where the time of its full steps went.
        nameless: The same of graph replays or periods of kernels, where steps are ranges.
        whole: The same of the windows as a whole, where there are steps.
        lanes: Its communication kernels, see `nsys_llm.analyses.collectives.lanes`.
        held: When its devices were idle because of the profiler.
        graph_nodes_n: Operations inside CUDA graphs that were traced one by one.
        whole_graphs_n: CUDA graphs that were traced as a whole: kernels that are not seen.
        unrecorded_n: Launches whose work is not in the report.
    """

    moves: MoveSums
    apis: NamedSums
    phases: NamedSums
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
        keys: Kernels by name and configuration over all ranks, sorted.
        total_ns: Shape (keys,), time inside the window.
        counts: How often which duration; groups are positions in `keys`.
        calls: How often a CUDA call that waits for nothing took how long.
        ranges: The same of an NVTX range without a CUDA call.
        matched: The collectives of its ranks, once all are merged; None before.
    """

    ranks: Mapping[RankKey, RankSums] = field(default_factory=dict)
    keys: tuple[Key, ...] = ()
    total_ns: IntArray = field(default_factory=none)
    counts: ValueCounts = field(default_factory=ValueCounts.empty)
    calls: HistogramByName = field(default_factory=HistogramByName)
    ranges: HistogramByName = field(default_factory=HistogramByName)
    matched: MatchedCollectives | None = None


@dataclass(frozen=True)
class DiffPartial:
    """All sides; see `nsys_llm.trace.rank_sets`."""

    sides: Mapping[str, SidePart] = field(default_factory=dict)


def merged(parts: Sequence[DiffPartial]) -> DiffPartial:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    sides = sorted({side for part in parts for side in part.sides})
    return DiffPartial(
        {
            side: _merged_side([part.sides[side] for part in parts if side in part.sides])
            for side in sides
        }
    )


def _merged_side(parts: Sequence[SidePart]) -> SidePart:
    keys = tuple(sorted({key for part in parts for key in part.keys}))
    place = {key: index for index, key in enumerate(keys)}
    total_ns = np.zeros(len(keys), dtype=np.int64)
    counts = []
    for part in parts:
        code = np.array([place[key] for key in part.keys], dtype=np.int64)
        total_ns[code] += part.total_ns
        if part.counts.group.size:
            counts.append(
                ValueCounts(code[part.counts.group], part.counts.value, part.counts.count)
            )
    return SidePart(
        merged_ranks(part.ranks for part in parts),
        keys,
        total_ns,
        ValueCounts.merge(counts),
        HistogramByName.merge([part.calls for part in parts]),
        HistogramByName.merge([part.ranges for part in parts]),
    )
