"""Reduces one rank to the sums that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.facts.compared.host import call_times, range_times
from nsys_llm.facts.compared.operations import MOVE_TABLES, LaunchKeys, coded_launches, move_sums
from nsys_llm.facts.compared.step_walls import RankWalls, StepWalls
from nsys_llm.facts.device.overlap import map_overlap, map_spans
from nsys_llm.facts.nvtx.phase_times import phase_times
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.finder import nameless_steps
from nsys_llm.facts.steps.steps import GRAPH_REPLAYS, KERNEL_PERIOD, STEP_KERNEL, Steps
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray, total_length_ns
from nsys_llm.taxonomy.idle_causes import IDLE_CAUSES_N
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class DeviceSums:
    """One device of one rank, or all devices of ranks together.

    Attributes:
        exposed_ns: Communication beside which nothing but copies runs.
        idle_ns: Shape (causes,), idle time by cause (see `nsys_llm.taxonomy.idle_causes`), the
            profiler's share last; None where it is not known.
    """

    device_id: int
    window_ns: int
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
        walls: Where the time of its full steps went.
        nameless: The same of graph replays or periods of kernels, where steps are ranges.
        whole: The same of the windows as a whole, where there are steps.
        graph_nodes_n: Operations inside CUDA graphs that were traced one by one.
        whole_graphs_n: CUDA graphs that were traced as a whole: kernels that are not seen.
        unrecorded_n: Launches whose work is not in the report.
    """

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
        moves: Copies and fills by packed code (see `nsys_llm.taxonomy.cuda_codes.MoveKind`): those
            that start in the window, ns in them inside of it, and bytes of the first as far as
            sizes are recorded.
        apis: CUDA API calls by function: how many, and ns, likewise.
        phases: Operations and GPU time by phase.
    """

    ranks: Mapping[RankKey, RankSums] = field(default_factory=dict)
    kernels: ByKey = field(default_factory=ByKey)
    calls: ByKey = field(default_factory=ByKey)
    ranges: ByKey = field(default_factory=ByKey)
    moves: ByKey = field(default_factory=ByKey)
    apis: ByKey = field(default_factory=ByKey)
    phases: ByKey = field(default_factory=ByKey)


def of(view: RankView) -> ComparedFacts:
    """Reduce one rank; its key names the side."""
    trace, rank, options = view.trace, view.key, view.options
    kernels = trace.tables["kernels"]
    launches = coded_launches(kernels, trace.strings, options)
    inside = trace.starts_inside(kernels)
    total_ns = summed(launches.key, trace.clipped_ns(kernels), len(launches.keys))
    durations = kernels["end_ns"] - kernels["start_ns"]
    counts = ValueCounts.from_values(launches.key[inside], durations[inside])
    times = phase_times(trace, options)
    operations = [trace.tables[name] for name in ("kernels", *MOVE_TABLES)]
    rank_walls = RankWalls(view, launches)
    walls = rank_walls.of(view.steps)
    sums = RankSums(
        devices=_devices(trace, launches, rank_walls.idle),
        walls=walls,
        nameless=_nameless(trace, rank_walls, view.steps),
        whole=None if walls.name is None else rank_walls.of(None),
        graph_nodes_n=sum(int(is_graph_node(ops).sum()) for ops in operations),
        whole_graphs_n=len(trace.tables["graph_traces"]),
        unrecorded_n=len(view.unrecorded.lost),
    )
    return ComparedFacts(
        ranks={rank: sums},
        kernels=ByKey(launches.keys, {"total_ns": total_ns}, counts),
        calls=call_times(trace),
        ranges=range_times(trace),
        moves=move_sums(trace),
        apis=_apis(trace),
        phases=ByKey.of(times.phases, {"ops_n": times.ops_n, "gpu_ns": times.gpu_ns}),
    )


def _nameless(trace: RankTrace, walls: RankWalls, steps: Steps | None) -> StepWalls | None:
    """Return the steps that a run without ranges has too; None where the steps are those."""
    if steps is None or steps.source in (GRAPH_REPLAYS, KERNEL_PERIOD, STEP_KERNEL):
        return None
    repeated = nameless_steps(trace)
    return None if repeated is None else walls.of(repeated)


def _apis(trace: RankTrace) -> ByKey:
    calls, _ = trace.host_calls("api_calls")
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    counts = np.bincount(code[trace.starts_inside(calls)], minlength=len(names)).astype(np.int64)
    total_ns = summed(code, trace.clipped_ns(calls), len(names))
    return ByKey(names, {"calls_n": counts, "total_ns": total_ns})


def _devices(
    trace: RankTrace, launches: LaunchKeys, idle: Mapping[int, IntArray]
) -> tuple[DeviceSums, ...]:
    return tuple(
        DeviceSums(
            device_id=overlap.device_id,
            window_ns=total_length_ns(device_windows(trace, overlap.device_id)[0]),
            exposed_ns=overlap.parts.communication_only_ns + overlap.parts.communication_copy_ns,
            copy_ns=overlap.copy_ns,
            busy_ns=overlap.busy_ns,
            idle_ns=idle.get(overlap.device_id),
        )
        for overlap in map_overlap(map_spans(trace, launches.communicates()))
    )
