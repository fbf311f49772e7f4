"""Where the time of one rank's steps went, apart from what other ranks tell. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.idle_split import situate, split_gaps
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.of_rank import whole_steps
from nsys_llm.analyses.wall.layers import WallLayers
from nsys_llm.analyses.wall.split import wall_of_steps
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, subtract_intervals
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, HOST_CAUSES
from nsys_llm.taxonomy.step_names import STEP
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows

_HOST_CODES: Final = [CAUSE_NAMES.index(name) for name in HOST_CAUSES]
#: Gaps that are split at once.
_BLOCK: Final = 1 << 14


@dataclass(frozen=True)
class HostIdle:
    """Idle time of windows by host causes, ns; arrays of shape (windows,).

    Attributes:
        first_ns: When the first operation of the window begins, the profile's clock.
        lead_ns: Before that.
        inner_ns: After it.
    """

    first_ns: IntArray
    lead_ns: IntArray
    inner_ns: IntArray


@dataclass(frozen=True)
class StepSplit:
    """Where the time of windows went, ns; arrays of shape (windows,).

    Attributes:
        compute_ns: A kernel computed.
        communication_ns: Nothing computed, and communication ran.
        copy_ns: Neither ran, and a copy or fill did.
        overhead_ns: Nothing ran, and the profiler did its own work.
        idle_ns: The rest.
        host: Of the idle time; None where causes are not known.
    """

    compute_ns: IntArray
    communication_ns: IntArray
    copy_ns: IntArray
    overhead_ns: IntArray
    idle_ns: IntArray
    host: HostIdle | None


@dataclass(frozen=True)
class DeviceSteps:
    """One device that communicates.

    Attributes:
        device_id: CUDA device id.
        window_ns: Shape (steps, 2), its steps on the device, the profile's clock; the windows of
            the run where there are no steps of a model.
        whole: Shape (steps,), which are full, no warm-up, and cut by no filter.
        has_steps: Whether the windows are steps.
        launches: Names of its kernels with how often it launched each.
        hidden: Shape (n, 2), when communication ran beside computation, the profile's clock.
        split: None for a device that neither sends nor receives.
    """

    device_id: int
    window_ns: IntArray
    whole: npt.NDArray[np.bool_]
    has_steps: bool
    launches: tuple[tuple[str, int], ...]
    hidden: IntArray
    split: StepSplit | None


def map_steps(view: RankView) -> tuple[DeviceSteps, ...]:
    """Return the devices of a rank that communicate."""
    devices = sorted({lane.device_id for lane in view.collectives if lane.start_ns.size})
    if not devices:
        return ()
    messages = {lane.device_id for lane in view.collectives if lane.operation == SEND_RECV}
    steps: dict[int, tuple[IntArray, npt.NDArray[np.bool_]]] = {}
    if view.steps is not None and view.steps.unit == STEP:  # not layers or graphs
        every_step = whole_steps(view.trace, view.steps)
        steps = {device: (windows, whole) for device, windows, whole in every_step if whole.any()}
    layers = {some.device_id: some for some in view.wall_layers[1]}
    kernels = view.trace.unfiltered["kernels"]
    names, code = coded_names(kernels["demangled_name_id"], view.trace.strings)
    rows = []
    for device in devices:
        has_steps = device in steps
        windows, _ = device_windows(view.trace, device)
        whole = np.ones(len(windows), dtype=bool)
        if has_steps:
            first_ns = windows[:1, 0]  # the first step begins with the first operation
            windows, whole = np.maximum(steps[device][0], first_ns), steps[device][1]
        split = _split(view, layers[device], windows) if device in messages else None
        counts = np.bincount(code[kernels["device_id"] == device], minlength=len(names)).tolist()
        launches = tuple((name, n) for name, n in zip(names, counts, strict=True) if n)
        hidden = subtract_intervals(layers[device].communicating, layers[device].communication)
        rows.append(DeviceSteps(device, windows, whole, has_steps, launches, hidden, split))
    return tuple(rows)


def _split(view: RankView, layers: WallLayers, windows: IntArray) -> StepSplit:
    wall = wall_of_steps(layers, windows)
    return StepSplit(
        wall.compute_ns.sum(axis=1),
        wall.communication_ns,
        wall.copies_ns,
        wall.profiler_ns,
        wall.idle_ns,
        _host_idle(view, layers.device_id, windows),
    )


def _host_idle(view: RankView, device: int, windows: IntArray) -> HostIdle | None:
    if view.missing_work.opaque_launches_n or not len(windows):
        return None
    ops = next(ops for ops in view.device_ops if ops.device_id == device)
    gaps = ops.gaps.inside(np.array([[windows[0, 0], windows[-1, 1]]]))
    lead_ns, inner_ns = np.zeros((2, len(windows)), dtype=np.int64)
    first_ns = windows[:, 0].copy()
    for begin in range(0, len(gaps), _BLOCK):
        some = gaps.take(slice(begin, begin + _BLOCK))
        split = split_gaps(some, situate(some, ops.launch_row, view.host), view.host)
        host_ns = split.time_ns[_HOST_CODES].sum(axis=0)
        row = np.searchsorted(windows[:, 0], some.start_ns, side="right") - 1
        leads = some.start_ns == windows[row, 0]
        for sums, chosen in ((lead_ns, leads), (inner_ns, ~leads)):
            sums += exact_sums(row[chosen], host_ns[chosen], len(windows))
        first_ns[row[leads]] = some.end_ns[leads]
    return HostIdle(first_ns, lead_ns, inner_ns)
