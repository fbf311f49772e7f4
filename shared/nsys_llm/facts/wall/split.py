"""How long each class of the wall split was, in each of some windows; and of each device of a rank.

The classes of a window add up to its length, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.beside import other_steps
from nsys_llm.facts.wall.layers import WallLayers
from nsys_llm.facts.wall.work import DeviceWorks
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import (
    IntArray,
    bounds,
    clip_to_windows,
    covered_in,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
)
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.wall import MOST_HIDDEN, DeviceWall, RankWall


@dataclass(frozen=True)
class WallOfSteps:
    """The wall split of windows; all int64, of shape (windows,)."""

    compute_ns: IntArray
    communication_ns: IntArray
    copies_ns: IntArray
    profiler_ns: IntArray
    not_recorded_ns: IntArray
    idle_ns: IntArray


def wall_of_steps(layers: WallLayers, windows: IntArray) -> WallOfSteps:
    """Split windows of one device, such as its steps.

    Args:
        windows: Shape (n, 2), sorted and disjoint.
    """
    compute_ns, communication_ns, copies_ns, profiler_ns, not_recorded_ns = (
        covered_in(windows, spans)
        for spans in (
            *(layers.compute, layers.communication, layers.copies),
            *(layers.profiler, layers.not_recorded),
        )
    )
    taken_ns = compute_ns + communication_ns + copies_ns + profiler_ns + not_recorded_ns
    return WallOfSteps(
        *(compute_ns, communication_ns, copies_ns, profiler_ns, not_recorded_ns),
        idle_ns=windows[:, 1] - windows[:, 0] - taken_ns,
    )


def map_wall(view: RankView, *, work: bool = False) -> RankWall:
    """Split the span of each device of a rank.

    Args:
        view: The rank; the span is all of the capture with the option whole_capture.
        work: Tell too what ranks are compared by.
    """
    names, layers = view.wall_layers
    devices, hidden = [], "collectives" in vars(view)  # where somebody asked for these
    works = DeviceWorks(view) if work else None
    for device_layers in layers:
        windows, _ = device_windows(
            view.trace, device_layers.device_id, whole_capture=view.whole_capture
        )
        wall = _device_wall(device_layers, windows, hidden=hidden)
        devices.append(wall if works is None else replace(wall, work=works.of(device_layers)))
    # Where nobody asked for steps they change nothing.
    steps = view.steps if work else vars(view).get("steps")
    step = None if steps is None else steps.kind
    uneven = any(wall.work.is_uneven for wall in devices if wall.work and wall.work.has_steps)
    beside = other_steps(view.marked, steps) if uneven and steps is not None else None
    return RankWall(names, tuple(devices), step, beside)


def compute_by_kernel(layers: WallLayers, windows: IntArray) -> IntArray:
    """Return the computing time of windows, shape (windows, names + 1); last, of whole graphs."""
    labels_n = len(layers.names) + 1
    starts, ends = layers.compute[:, 0], layers.compute[:, 1]
    if not len(windows) or not starts.size:
        return np.zeros((len(windows), labels_n), dtype=np.int64)
    if len(windows) == 1 and windows[0, 0] <= starts[0] and ends[-1] <= windows[0, 1]:
        return exact_sums(layers.label, ends - starts, labels_n).reshape(1, labels_n)
    owner, starts, ends = clip_to_windows(starts, ends, windows)
    window = np.searchsorted(windows[:, 0], starts, side="right") - 1
    code = window * labels_n + layers.label[owner]
    return exact_sums(code, ends - starts, len(windows) * labels_n).reshape(-1, labels_n)


def _device_wall(layers: WallLayers, windows: IntArray, *, hidden: bool) -> DeviceWall:
    split = wall_of_steps(layers, windows)
    start_ns, end_ns = bounds(windows)
    compute_ns = compute_by_kernel(layers, windows).sum(axis=0).tolist()
    load_ns, other_ns, no_work_ns, start_up_ns = (
        total_length_ns(intersect_intervals(spans, windows))
        for spans in (layers.load, layers.other_process, layers.no_work, layers.start_up)
    )
    return DeviceWall(
        device_id=layers.device_id,
        span_start_ns=start_ns,
        span_end_ns=end_ns,
        span_ns=total_length_ns(windows),
        kernels_ns={
            name: time_ns
            for name, time_ns in zip(layers.names, compute_ns, strict=False)
            if time_ns
        },
        graphs_ns=compute_ns[-1],
        communication_ns=int(split.communication_ns.sum()),
        load_ns=load_ns,
        copies_ns=int(split.copies_ns.sum()) - load_ns,
        profiler_ns=int(split.profiler_ns.sum()),
        not_recorded_ns=int(split.not_recorded_ns.sum()),
        other_process_ns=other_ns,
        no_work_ns=no_work_ns,
        start_up_ns=start_up_ns,
        idle_ns=int(split.idle_ns.sum()) - other_ns - no_work_ns - start_up_ns,
        hidden=_hidden(layers, windows) if hidden else None,
    )


def _hidden(layers: WallLayers, windows: IntArray) -> IntArray | None:
    """Return when communication kernels ran that do not count as such; None for too many times."""
    counted = intersect_intervals(layers.communication, windows)
    hidden = subtract_intervals(layers.communicating, counted)
    return hidden if len(hidden) <= MOST_HIDDEN else None
