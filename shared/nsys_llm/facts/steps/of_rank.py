"""The steps of one rank on each of its devices, and which of them are whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import clipped_lengths
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace
from nsys_llm.trace.steps import DeviceSteps

_Mask = npt.NDArray[np.bool_]


def device_steps(
    trace: RankTrace, steps: Steps | None, *, by_window: bool = True
) -> dict[int, DeviceSteps]:
    """Return the steps of each device of a rank that has some, by its CUDA id.

    Args:
        by_window: Whether a filter also cuts a step of which it leaves all operations, and not all
            of the window. One of a phase does with every step: it leaves out what is between.
    """
    if steps is None:
        return {}
    kept, devices = _kept(trace), {}
    for device_id in sorted(set(steps.devices) & set(trace.device_ids)):
        windows = steps.windows_ns(device_id)
        complete = steps.full & (windows[:, 1] > windows[:, 0])
        complete &= ~_cut(trace, steps, device_id, kept, by_window)
        devices[device_id] = DeviceSteps(windows, complete, has_steps=True, warmup_n=steps.warmup_n)
    return devices


def _kept(trace: RankTrace) -> _Mask | None:
    """Return which operations the filters leave, in the order of `LaunchedOps`; None for all."""
    if trace.complete:
        return None
    tables = [name for name in OP_TABLES if name in trace.unfiltered]
    every = [np.ones(len(trace.unfiltered[name]), dtype=bool) for name in tables]
    masks = zip(tables, every, strict=True)
    return joined([trace.kept.get(name, whole) for name, whole in masks]).astype(bool)


def _cut(
    trace: RankTrace, steps: Steps, device_id: int, kept: _Mask | None, by_window: bool
) -> _Mask:
    """Tell which steps a filter cuts on a device: an operation of theirs is left out, or a time."""
    cut = np.zeros(len(steps), dtype=bool)
    if kept is not None:
        for some in steps.ops.blocks():
            step = steps.step[some.rows]
            lost = (step >= 0) & (some.device_id == device_id) & ~kept[some.rows]
            cut[step[lost]] = True
    if by_window and trace.windows_ns is not None:
        windows = steps.windows_ns(device_id)
        start_ns, end_ns = windows[:, 0], windows[:, 1]
        cut |= clipped_lengths(start_ns, end_ns, trace.windows_ns) < end_ns - start_ns
    return cut
