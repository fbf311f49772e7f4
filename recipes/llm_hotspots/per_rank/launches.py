"""How often and how fast one rank launches kernels, and how long its launch calls take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.device.profiler_time import HeldCalls
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    clipped_lengths,
    gaps_within,
    intersect_intervals,
    starts_inside,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Length of the window whose kernels are the peak.
PEAK_NS: Final = 100_000_000
#: Kernels shorter than these are counted.
SHORT_NS: Final = (5_000, 10_000, 20_000)
#: Idle gaps from this length on are left out of the active time: nobody launches there.
LONG_GAP_NS: Final = 10_000_000
#: A launch call waits if it is longer than ten median ones, and longer than this.
BLOCKED_NS: Final = 100_000
_BLOCKED_TIMES: Final = 10
#: Steps of a window in which instants are counted before its fullest place is looked for.
_STEPS: Final = 1_000
#: From so many instants on, counting them in steps first takes a tenth of the time (5M: 0.25 s).
_MANY: Final = 10_000
_MOST_STEPS: Final = 4_000_000


@dataclass(frozen=True)
class CallTimes:
    """Launch calls of one device. See the table `launches` of the manifest."""

    host_launches_n: int
    graph_launches_n: int
    unmatched_launches_n: int
    launch_api_ns: int
    graph_launch_api_ns: int
    blocked_over_ns: int
    blocked_launches_n: int
    blocked_launch_ns: int
    blocked_launch_busy_ns: int
    blocked_launch_idle_ns: int
    blocked_profiler_busy_ns: int
    blocked_profiler_idle_ns: int
    longest_launch_ns: int | None
    longest_launch_start_ns: int | None


@dataclass(frozen=True)
class DeviceLaunches:
    """One device of one rank. See the table `launches` of the manifest.

    Attributes:
        short_n: Kernels shorter than each of `SHORT_NS`.
        durations: Of kernels that start in the window; one group.
        calls: None where no API calls were traced.
    """

    device_id: int
    long_gaps_n: int
    long_gaps_ns: int
    kernels_n: int
    graph_nodes_n: int
    peak_kernels_n: int
    peak_start_ns: int | None
    short_n: tuple[int, ...]
    durations: Spread
    calls: CallTimes | None


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
    held: HeldCalls,
    durations: ValueCounts,
    devices: IntArray,
) -> tuple[DeviceLaunches, ...]:
    """Reduce the launches of one rank.

    Args:
        calls: Its API calls that the filters leave, with a column `device_id`: see
            `launched_devices`.
        held: Which of the calls the profiler held.
        durations: How often a kernel took how long, by position of its device in `devices`.
        devices: Ids of the devices that have kernels, sorted.
    """
    traced = len(trace.tables["api_calls"]) > 0
    launched = _launch_calls(trace, calls, held) if traced else None
    known = devices.tolist()
    return tuple(
        _device(
            trace,
            device,
            _only(durations, known.index(device) if device in known else -1),
            None if launched is None else _of_device(launched, device, trace),
            held,
        )
        for device in trace.device_ids
    )


def _launch_calls(trace: RankTrace, calls: Table, held: HeldCalls) -> Table:
    """Return the calls that launch kernels or graphs, with columns `graph` and `profiler_ns`."""
    kinds = {key: classify_api(text) for key, text in trace.strings.items()}
    ids = [key for key, kind in kinds.items() if kind in LAUNCH_CLASSES]
    calls = calls.plus(profiler_ns=held.each(len(calls)))
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
    held: HeldCalls,
) -> DeviceLaunches:
    kernels = trace.device_ops(device)["kernels"]
    kernels = kernels.take(trace.starts_inside(kernels))
    peak = busiest_window(kernels["start_ns"], PEAK_NS)
    gaps_ns = _idle_gaps_ns(trace, device)
    return DeviceLaunches(
        device_id=device,
        long_gaps_n=int((gaps_ns >= LONG_GAP_NS).sum()),
        long_gaps_ns=int(gaps_ns[gaps_ns >= LONG_GAP_NS].sum()),
        kernels_n=len(kernels),
        graph_nodes_n=int(is_graph_node(kernels).sum()),
        peak_kernels_n=peak[0] if peak else 0,
        peak_start_ns=peak[1] if peak else None,
        short_n=tuple(int(durations.count[durations.value < ns].sum()) for ns in SHORT_NS),
        durations=durations.spread(1),
        calls=None if launched is None else _call_times(launched, trace, held),
    )


def _idle_gaps_ns(trace: RankTrace, device: int) -> IntArray:
    """Return the lengths of the long stretches of the window without an operation on the device.

    An operation of no length ends one and begins the next, as in idle_gaps.
    """
    if len(trace.device_ids) == 1 and trace.complete:
        busy = trace.gpu_busy
    else:
        ops = trace.device_ops(device).values()
        starts = np.concatenate([op["start_ns"] for op in ops])
        busy = union_intervals(starts, np.concatenate([op["end_ns"] for op in ops]))
    if trace.windows_ns is None:
        gaps = np.column_stack((busy[:-1, 1], busy[1:, 0]))
    else:
        gaps = gaps_within(busy, trace.windows_ns)
    gaps = gaps[gaps[:, 1] - gaps[:, 0] >= LONG_GAP_NS]
    return _split(gaps, _instants(trace, device))


def _instants(trace: RankTrace, device: int) -> IntArray:
    """Return when operations of no length ran, sorted: no union of intervals holds them."""
    ops = [op for name, op in trace.tables.items() if name in OP_TABLES]
    none = [(op["start_ns"] == op["end_ns"]) & (op["device_id"] == device) for op in ops]
    return np.sort(
        np.concatenate([op["start_ns"][rows] for op, rows in zip(ops, none, strict=True)])
    )


def _split(gaps: IntArray, at_ns: IntArray) -> IntArray:
    """Return the lengths of the pieces that instants cut gaps into."""
    inside = at_ns[starts_inside(at_ns, gaps)]
    opens = np.sort(np.concatenate((gaps[:, 0], inside)))
    return np.asarray(np.sort(np.concatenate((gaps[:, 1], inside))) - opens)


def _call_times(launched: Table, trace: RankTrace, held: HeldCalls) -> CallTimes:
    graph, inside = launched["graph"], trace.starts_inside(launched)
    whole_ns = launched["end_ns"] - launched["start_ns"]
    # Without a time filter all three are the same, and as long as the trace.
    clipped_ns = whole_ns if trace.windows_ns is None else trace.clipped_ns(launched)
    starting_ns = whole_ns if inside.all() else whole_ns[inside]
    over_ns = BLOCKED_NS
    if len(starting_ns):
        over_ns = max(int(_BLOCKED_TIMES * np.median(starting_ns)), BLOCKED_NS)
    blocked = whole_ns > over_ns
    waited = launched.take(blocked)
    spans = union_intervals(waited["start_ns"], waited["end_ns"])
    busy_ns, idle_ns = _beside_gpu(spans, trace)
    held_up = waited.take(waited["profiler_ns"] > 0)
    spans = intersect_intervals(union_intervals(held_up["start_ns"], held_up["end_ns"]), held.spans)
    profiler_busy_ns, profiler_idle_ns = _beside_gpu(spans, trace)
    net_ns = whole_ns - launched["profiler_ns"] if held.row.size else whole_ns
    longest_ns = int(net_ns[inside].max(initial=-1))
    longest = inside & (net_ns == longest_ns)
    return CallTimes(
        host_launches_n=int((inside & ~graph).sum()),
        graph_launches_n=int((inside & graph).sum()),
        unmatched_launches_n=int((inside & (launched["device_id"] == NULL_INT)).sum()),
        launch_api_ns=int(clipped_ns[~graph].sum()),
        graph_launch_api_ns=int(clipped_ns[graph].sum()),
        blocked_over_ns=over_ns,
        blocked_launches_n=int((blocked & inside).sum()),
        blocked_launch_ns=int(clipped_ns[blocked].sum()),
        blocked_launch_busy_ns=busy_ns,
        blocked_launch_idle_ns=idle_ns,
        blocked_profiler_busy_ns=profiler_busy_ns,
        blocked_profiler_idle_ns=profiler_idle_ns,
        longest_launch_ns=longest_ns if len(starting_ns) else None,
        longest_launch_start_ns=int(launched["start_ns"][longest].min()) if longest.any() else None,
    )


def _beside_gpu(spans: IntArray, trace: RankTrace) -> tuple[int, int]:
    """Return for how much of some spans the GPU was busy, and for how much between operations.

    Inside the windows. The latter is idle time; before the first and after the last operation
    nothing is counted.
    """
    busy = trace.gpu_busy
    if not len(busy) or not len(spans):
        return 0, 0
    starts, ends = spans[:, 0], spans[:, 1]
    if trace.windows_ns is not None:
        _, starts, ends = clip_to_windows(starts, ends, trace.windows_ns)
    busy_ns = int(clipped_lengths(starts, ends, busy).sum())
    span = np.array([[busy[0, 0], busy[-1, 1]]], dtype=np.int64)
    return busy_ns, int(clipped_lengths(starts, ends, span).sum()) - busy_ns


def busiest_window(start_ns: IntArray, length_ns: int) -> tuple[int, int] | None:
    """Return how many instants the fullest window of a length holds, and when it begins.

    A window is half-open and slides freely: some fullest window begins at an instant, so that it is
    enough to try those. Of equally full windows the earliest is taken.

    Args:
        start_ns: Shape (n,), in any order.
        length_ns: Above 0.

    Returns:
        None without instants.
    """
    if start_ns.size == 0:
        return None
    starts = np.sort(start_ns) if (np.diff(start_ns) < 0).any() else start_ns
    tried = _worth_trying(starts, length_ns)
    held_n = np.searchsorted(starts, starts[tried] + length_ns, side="left") - tried
    first = int(np.argmax(held_n))
    return int(held_n[first]), int(starts[tried[first]])


def _worth_trying(starts: IntArray, length_ns: int) -> IntArray:
    """Return the positions at which a fullest window may begin, in order.

    Instants are counted in steps of a thousandth of the window. A window that begins in a step
    holds at most what that step and the thousand after it do, and one more for the rounding; some
    window holds what a thousand steps do.
    """
    step_ns, span_ns = length_ns // _STEPS, int(starts[-1] - starts[0])
    if step_ns < _STEPS or starts.size < _MANY or span_ns // step_ns > _MOST_STEPS:
        return np.arange(starts.size)
    steps_n = span_ns // step_ns + 1
    edges = starts[0] + step_ns * np.arange(steps_n + _STEPS + 2)
    before = np.searchsorted(starts, edges, side="left")
    least = (before[_STEPS:] - before[:-_STEPS]).max()
    full = before[_STEPS + 2 :] - before[:steps_n] >= least
    return np.flatnonzero(np.repeat(full, np.diff(before[: steps_n + 1])))
