"""The full steps of one rank: how many each of its devices has, and how long they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.steps.of_job import StepKind
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray, clipped_lengths
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceStepTimes:
    """Full steps on one device that are no warm-up and that no filter cuts.

    Attributes:
        time_ns: Length of their windows together.
        worst_ns: Where the window of the longest one begins and ends, the first of equals; None
            without one.
    """

    steps_n: int
    time_ns: int
    worst_ns: tuple[int, int] | None = None


@dataclass(frozen=True)
class RankStepTimes:
    """What one rank calls a step; a part of a partial.

    Attributes:
        kind: What a step is.
        devices: By CUDA device id.
    """

    kind: StepKind
    devices: Mapping[int, DeviceStepTimes]


def rank_steps(trace: RankTrace, steps: Steps | None) -> RankStepTimes | None:
    """Return the steps of one rank as its devices have them; None where there are none."""
    if steps is None:
        return None
    devices = {}
    for device_id, windows, whole in whole_steps(trace, steps):
        length_ns = windows[:, 1] - windows[:, 0]
        worst = int(np.where(whole, length_ns, -1).argmax())
        devices[device_id] = DeviceStepTimes(
            steps_n=int(whole.sum()),
            time_ns=int(length_ns[whole].sum()),
            worst_ns=(int(windows[worst, 0]), int(windows[worst, 1])) if whole.any() else None,
        )
    return RankStepTimes(StepKind.of(steps), devices)


def whole_steps(
    trace: RankTrace, steps: Steps, *, by_window: bool = True
) -> Iterator[tuple[int, IntArray, _Mask]]:
    """Yield each device, the windows of its steps, and which are full, no warm-up, uncut.

    Args:
        by_window: Whether a filter also cuts a step of which it leaves all operations, and not all
            of the window. One of a phase does with every step: it leaves out what is between.
    """
    kept = _kept(trace)
    for device_id in sorted(set(steps.devices) & set(trace.device_ids)):
        windows = steps.windows_ns(device_id)
        whole = steps.full & ~steps.warmup & (windows[:, 1] > windows[:, 0])
        yield device_id, windows, whole & ~_cut(trace, steps, device_id, kept, by_window)


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
