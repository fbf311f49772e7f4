"""The wall split of the devices of a rank, and what they computed and launched in steps.

The classes of a window add up to its length, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.beside import other_steps
from nsys_llm.facts.wall.layers import WallLayers
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import distinct, distinct_rows, exact_sums
from nsys_llm.numeric.intervals import (
    IntArray,
    bin_edges,
    bounds,
    clip_to_windows,
    covered_in,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
)
from nsys_llm.taxonomy.wall_classes import (
    BEFORE_STEPS,
    NO_WORK,
    NOT_RECORDED,
    OTHER_PROCESS,
    PROFILER,
)
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.kernel_launches import GEOMETRY
from nsys_llm.trace.steps import DeviceSteps
from nsys_llm.trace.wall import MOST_HIDDEN, DeviceWall, DeviceWork, RankWall

#: Equal parts of the run that stand for steps where there are none.
PARTS: Final = 16


class DeviceWorks:
    """The devices of one rank, after its filters."""

    def __init__(self, view: RankView) -> None:
        self._trace = trace = view.trace
        self._steps = view.device_steps
        kernels = trace.tables["kernels"]
        self._ids = distinct(kernels["demangled_name_id"])
        self._names, self._code = coded_names(self._ids, trace.strings)
        self._has_shapes = all(name in kernels for name in GEOMETRY)
        self._requests = None if view.batches is None else view.batches.requests

    def of(self, layers: WallLayers) -> DeviceWork:
        """Return what one device did, by its layers."""
        device = layers.device_id
        found = self._steps.get(device)
        steps = found or self._parts(device)
        return DeviceWork(
            **vars(steps),
            compute_ns=covered_in(steps.window_ns, layers.only_compute),
            profiler_ns=covered_in(steps.window_ns, layers.host[PROFILER]),
            names=self._names,
            launches=self._launches(device),
            has_shapes=self._has_shapes,
            requests=None if found is None else self._requests,
        )

    def _parts(self, device: int) -> DeviceSteps:
        span, _ = device_windows(self._trace, device)
        edges = bin_edges(int(span[0, 0]), int(span[-1, 1]), PARTS) if len(span) else span[:, 0]
        windows = np.column_stack((edges[:-1], edges[1:]))
        return DeviceSteps(windows, np.ones(len(windows), dtype=bool), has_steps=False)

    def _launches(self, device: int) -> IntArray:
        """Return its kernels by name and shape; a block at a time, because columns are long."""
        kernels = self._trace.tables["kernels"]
        parts = [np.empty((0, len(GEOMETRY) + 3), dtype=np.int64)]
        for block in blocks(len(kernels)):
            here = kernels["device_id"][block] == device
            # Not copied where all are here: a column of one value stays known as such.
            rows = block if here.all() else block.start + np.flatnonzero(here)
            time_ns = kernels["end_ns"][rows] - kernels["start_ns"][rows]
            nothing = np.zeros(time_ns.size, dtype=np.int64)
            shape = [kernels[name][rows] if self._has_shapes else nothing for name in GEOMETRY]
            key = [kernels["demangled_name_id"][rows], *shape]
            parts.append(_summed(key, nothing + 1, time_ns))
        name_id, *shape, launches_n, time_ns = np.concatenate(parts).T
        code = self._code[np.searchsorted(self._ids, name_id)]
        return _summed([code, *shape], launches_n, time_ns)


def _summed(key: Sequence[IntArray], launches_n: IntArray, time_ns: IntArray) -> IntArray:
    """Return the distinct keys in their order, each with its launches and their time."""
    first, code = distinct_rows(key)
    sums = (exact_sums(code, values, first.size) for values in (launches_n, time_ns))
    return np.column_stack((*(column[first] for column in key), *sums)).astype(np.int64)


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
    device = layers.compute, layers.communication, layers.copies
    spans = (*device, layers.host[PROFILER], layers.host[NOT_RECORDED])
    columns = [covered_in(windows, some) for some in spans]
    columns.append(windows[:, 1] - windows[:, 0] - sum(columns))  # idle
    return WallOfSteps(*columns)


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
        int(covered_in(windows, spans).sum())
        for spans in (
            layers.load,
            *(layers.host[name] for name in (OTHER_PROCESS, NO_WORK, BEFORE_STEPS)),
        )
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
