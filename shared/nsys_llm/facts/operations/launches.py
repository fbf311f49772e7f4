"""How often and how fast one rank launches kernels, and how long each stage of a launch takes.

Stages are as NVIDIA's `cuda_kern_exec_sum` has them: the API call on the host, the queue from the
call's end to the kernel's start, and the kernel. Overall is from the call's start to the end of the
kernel or of the call, whichever is later. A kernel that starts before its call returns has no queue
time. Nodes of a CUDA graph all have the times of the graph's launch call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.dependents import Dependents
from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import distinct, distinct_rows
from nsys_llm.numeric.intervals import IntArray, subtract_intervals, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace, sane_times

#: Length of the window whose kernels are the peak.
PEAK_NS: Final = 100_000_000
#: Kernels shorter than this are counted.
SHORT_NS: Final = 5_000
#: Idle gaps from this length on are left out of the active time: nobody launches there.
LONG_GAP_NS: Final = 10_000_000


@dataclass(frozen=True)
class DeviceLaunches:
    """One device of one rank. See the table `launches` of the manifest.

    Attributes:
        durations: Of kernels that start in the window; one group.
    """

    device_id: int
    long_gaps_ns: int
    kernels_n: int
    graph_nodes_n: int
    peak_kernels_n: int
    under_5us_n: int
    durations: Spread
    host_launches_n: int | None
    launch_api_ns: int | None
    pdl_pairs_n: int
    pdl_hidden_ns: int


def launched_devices(trace: RankTrace) -> IntArray:
    """Return the device of the work that each API call launched; NULL_INT where none is known."""
    devices = np.full(len(trace.tables["api_calls"]), NULL_INT, dtype=np.int64)
    for name in OP_TABLES:
        if name in trace.unfiltered:
            op = trace.unfiltered[name]
            row, device_id = op["launch_row"], op["device_id"]
            for some in small_blocks(len(op)):
                known = row[some] >= 0
                devices[row[some][known]] = device_id[some][known]
    return devices


def map_launches(
    trace: RankTrace,
    calls: Table,
    durations: ValueCounts,
    devices: IntArray,
    early: Dependents,
) -> tuple[DeviceLaunches, ...]:
    """Reduce the launches of one rank.

    Args:
        calls: Its API calls that the filters leave, with a column `device_id`: see
            `launched_devices`.
        durations: How often a kernel took how long, by position of its device in `devices`.
        devices: Ids of the devices that have kernels, sorted.
    """
    traced = len(trace.tables["api_calls"]) > 0
    launched = _launch_calls(trace, calls) if traced else None
    known = devices.tolist()
    return tuple(
        _device(
            trace,
            device,
            _only(durations, known.index(device) if device in known else -1),
            None if launched is None else _of_device(launched, device, trace),
            _hidden(trace, device, early),
        )
        for device in trace.device_ids
    )


def _launch_calls(trace: RankTrace, calls: Table) -> Table:
    """Return the calls that launch kernels or graphs, with a column `graph`."""
    kinds = {key: classify_api(text) for key, text in trace.strings.items()}
    ids = [key for key, kind in kinds.items() if kind in LAUNCH_CLASSES]
    launching = calls.take(np.isin(calls["name_id"], ids))
    graph = np.isin(launching["name_id"], [key for key in ids if kinds[key] == "graph_launch"])
    return launching.plus(graph=graph)


def _of_device(launched: Table, device: int, trace: RankTrace) -> Table:
    """Return the launch calls of one device; those without recorded work belong to the only one."""
    selected = launched["device_id"] == device
    used = {
        value for op in trace.unfiltered.values() for value in distinct(op["device_id"]).tolist()
    }
    if len(used) == 1:
        selected |= launched["device_id"] == NULL_INT
    return launched.take(selected)


def _only(counts: ValueCounts, group: int) -> ValueCounts:
    """Return the counts of one group, as group 0."""
    selected = counts.group == group
    return ValueCounts(counts.group[selected] * 0, counts.value[selected], counts.count[selected])


def _device(
    trace: RankTrace,
    device: int,
    durations: ValueCounts,
    launched: Table | None,
    hidden: tuple[int, int],
) -> DeviceLaunches:
    kernels = trace.device_ops(device)["kernels"]
    kernels = kernels.take(trace.starts_inside(kernels))
    gaps_ns = _idle_gaps_ns(trace, device)
    launches_n = launches_ns = None
    if launched is not None:
        single = launched.take(~launched["graph"])
        launches_n = int(trace.starts_inside(single).sum())
        launches_ns = int(trace.clipped_ns(single).sum())
    return DeviceLaunches(
        device_id=device,
        long_gaps_ns=int(gaps_ns[gaps_ns >= LONG_GAP_NS].sum()),
        kernels_n=len(kernels),
        graph_nodes_n=int(is_graph_node(kernels).sum()),
        peak_kernels_n=busiest_window(kernels["start_ns"], PEAK_NS),
        under_5us_n=int(durations.count[durations.value < SHORT_NS].sum()),
        durations=durations.spread(1),
        host_launches_n=launches_n,
        launch_api_ns=launches_ns,
        pdl_pairs_n=hidden[0],
        pdl_hidden_ns=hidden[1],
    )


def _hidden(trace: RankTrace, device: int, early: Dependents) -> tuple[int, int]:
    """Return the pairs of kernels of a device that overlap again and again, and for how long."""
    kernels = trace.unfiltered["kernels"].take(early.row)
    here = (kernels["device_id"] == device) & trace.starts_inside(kernels) & (early.hidden_ns > 0)
    if not trace.complete:
        here &= trace.kept["kernels"][early.row]
    return distinct(early.pair[here]).size, int(early.hidden_ns[here].sum())


def _idle_gaps_ns(trace: RankTrace, device: int) -> IntArray:
    """Return the lengths of the stretches of the window without an operation on the device."""
    if len(trace.device_ids) == 1 and trace.complete:
        busy = trace.gpu_busy
    else:
        ops = trace.device_ops(device).values()
        starts = np.concatenate([op["start_ns"] for op in ops])
        busy = union_intervals(starts, np.concatenate([op["end_ns"] for op in ops]))
    if trace.windows_ns is None:
        gaps = np.column_stack((busy[:-1, 1], busy[1:, 0]))
    else:
        gaps = subtract_intervals(trace.windows_ns, busy)
    return gaps[:, 1] - gaps[:, 0]


def busiest_window(start_ns: IntArray, length_ns: int) -> int:
    """Return how many instants the fullest window of a length holds.

    A window is half-open and slides freely: some fullest window begins at an instant, so that it is
    enough to try those.

    Args:
        start_ns: Shape (n,), in any order.
        length_ns: Above 0.
    """
    starts = np.sort(start_ns) if (np.diff(start_ns) < 0).any() else start_ns
    held_n = np.searchsorted(starts, starts + length_ns, side="left") - np.arange(starts.size)
    return int(held_n.max(initial=0))


#: Stages of a launch, and prefixes of their columns.
STAGES: Final = ("api", "queue", "kernel", "overall")


@dataclass(frozen=True)
class LaunchStages:
    """Kernels whose launch call is known, by group; arrays of shape (groups,).

    Attributes:
        api: Name of the function, without version.
        kernel: Codes into the rank's shown kernel names.
        spreads: By name of `STAGES`; the queue has fewer values than the others.
    """

    device_id: IntArray
    thread: IntArray
    api: tuple[str, ...]
    kernel: IntArray
    spreads: Mapping[str, Spread]


def map_stages(trace: RankTrace, kernel_name: IntArray) -> LaunchStages:
    """Reduce the kernels of one rank that start in the window and whose launch call is known."""
    kernels, calls = trace.tables["kernels"], trace.tables["api_calls"]
    known = (kernels["launch_row"] >= 0) & trace.starts_inside(kernels)
    if len(calls):
        known &= sane_times(calls["start_ns"], calls["end_ns"])[kernels["launch_row"]]
    kernels, kernel_name = kernels.take(known), kernel_name if known.all() else kernel_name[known]
    row, device, thread = kernels["launch_row"], kernels["device_id"], calls["global_tid"]
    apis, api = coded_names(calls["name_id"], trace.strings, strip_api_version)
    # A call's thread and function first, so that only one column has to be looked up by kernel.
    _, of_call = distinct_rows((thread, api))
    first, group = distinct_rows((device, of_call[row], kernel_name))
    del of_call  # as large as the trace
    counts, call = _stage_counts(kernels, calls, group), row[first]
    return LaunchStages(
        device_id=device[first],
        thread=thread[call],
        api=tuple(apis[code] for code in api[call].tolist()),
        kernel=kernel_name[first],
        spreads={stage: lengths.spread(len(first)) for stage, lengths in counts.items()},
    )


def _stage_counts(kernels: Table, calls: Table, group: IntArray) -> dict[str, ValueCounts]:
    """Count the lengths of each stage; none of them is there for all kernels at a time."""
    starts, ends, row = kernels["start_ns"], kernels["end_ns"], kernels["launch_row"]
    call_starts, call_ends = calls["start_ns"], calls["end_ns"]

    def api(rows: slice) -> tuple[IntArray, IntArray]:
        return group[rows], call_ends[row[rows]] - call_starts[row[rows]]

    def queue(rows: slice) -> tuple[IntArray, IntArray]:
        queue_ns = starts[rows] - call_ends[row[rows]]
        queued = queue_ns >= 0
        return group[rows][queued], queue_ns[queued]

    def kernel(rows: slice) -> tuple[IntArray, IntArray]:
        return group[rows], ends[rows] - starts[rows]

    def overall(rows: slice) -> tuple[IntArray, IntArray]:
        # At least the call: so it is not negative even where the clocks of host and GPU disagree.
        end_ns = np.maximum(ends[rows], call_ends[row[rows]])
        return group[rows], end_ns - call_starts[row[rows]]

    stages = {"api": api, "queue": queue, "kernel": kernel, "overall": overall}
    return {name: ValueCounts.in_blocks(len(kernels), of) for name, of in stages.items()}
