"""Reduces one rank to the sums that are compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nsys_llm.facts.compared.host import call_times, range_times
from nsys_llm.facts.compared.kept import ComparedFacts, DeviceSums, RankSums
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
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import RankTrace


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
        moves=move_sums(trace),
        apis=_apis(trace),
        phases=ByKey.of(times.phases, {"ops_n": times.ops_n, "gpu_ns": times.gpu_ns}),
        devices=_devices(trace, launches, rank_walls.idle),
        walls=walls,
        nameless=_nameless(trace, rank_walls, view.steps),
        whole=None if walls.name is None else rank_walls.of(None),
        graph_nodes_n=sum(int(is_graph_node(ops).sum()) for ops in operations),
        whole_graphs_n=len(trace.tables["graph_traces"]),
        unrecorded_n=len(view.unrecorded.lost),
    )
    worked = ByKey(launches.keys, {"total_ns": total_ns}, counts)
    return ComparedFacts({rank: sums}, worked, call_times(trace), range_times(trace))


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
            communication_ns=overlap.communication_ns,
            exposed_ns=overlap.parts.communication_only_ns + overlap.parts.communication_copy_ns,
            copy_ns=overlap.copy_ns,
            busy_ns=overlap.busy_ns,
            idle_ns=idle.get(overlap.device_id),
        )
        for overlap in map_overlap(map_spans(trace, launches.communicates()))
    )
