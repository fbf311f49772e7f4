"""NCCL's calls of one rank, and where the time of its steps went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.facts.nccl.sizes import RankCalls, map_sizes
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.wall.split import WallOfSteps, wall_of_steps
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, subtract_intervals
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, HOST_CAUSES
from nsys_llm.taxonomy.step_names import STEP
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.steps import DeviceSteps

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
class CommDevice(DeviceSteps):
    """One device that communicates; without steps of a model its windows are those of the run.

    Attributes:
        launches: Names of its kernels with how often it launched each.
        hidden: Shape (n, 2), when communication ran beside computation, the profile's clock.
        wall: None for a device that neither sends nor receives.
        host: Of its idle time; None likewise, and where causes are not known.
    """

    device_id: int
    launches: tuple[tuple[str, int], ...]
    hidden: IntArray
    wall: WallOfSteps | None
    host: HostIdle | None


def map_devices(view: RankView) -> tuple[CommDevice, ...]:
    """Return the devices of a rank that communicate."""
    devices = sorted({lane.device_id for lane in view.collectives if lane.start_ns.size})
    if not devices:
        return ()
    messages = {lane.device_id for lane in view.collectives if lane.operation == SEND_RECV}
    of_model = view.steps is not None and view.steps.unit == STEP  # not layers or graphs
    layers = {some.device_id: some for some in view.wall_layers[1]}
    kernels = view.trace.unfiltered["kernels"]
    names, code = coded_names(kernels["demangled_name_id"], view.trace.strings)
    rows = []
    for device in devices:
        windows, _ = device_windows(view.trace, device)
        whole, steps = np.ones(len(windows), dtype=bool), view.device_steps.get(device)
        has_steps = of_model and steps is not None and bool(steps.whole.any())
        if has_steps and steps is not None:
            # The first step begins with the first operation.
            windows, whole = np.maximum(steps.window_ns, windows[:1, 0]), steps.complete
        wall = host = None
        if device in messages:
            wall, host = wall_of_steps(layers[device], windows), _host_idle(view, device, windows)
        counts = np.bincount(code[kernels["device_id"] == device], minlength=len(names)).tolist()
        launches = tuple((name, n) for name, n in zip(names, counts, strict=True) if n)
        hidden = subtract_intervals(layers[device].communicating, layers[device].communication)
        rows.append(
            CommDevice(
                *(windows, whole, has_steps, device, launches, hidden, wall, host),
                warmup_n=steps.warmup_n if has_steps and steps is not None else 0,
            ),
        )
    return tuple(rows)


def _host_idle(view: RankView, device: int, windows: IntArray) -> HostIdle | None:
    if not len(windows):
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


@dataclass(frozen=True)
class RankComm:
    """One rank that communicates.

    Attributes:
        devices: Sorted by id.
        calls: NCCL's calls.
    """

    devices: tuple[CommDevice, ...]
    calls: RankCalls


def of(view: RankView) -> Mapping[RankKey, RankComm]:
    """Reduce one rank; nothing is kept of one that does not communicate."""
    if not view.collectives:
        return {}
    return {view.key: RankComm(map_devices(view), map_sizes(view.trace))}
