"""What each step costs: its window, what lies in it between steps, and when the device is busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import (
    COUNTED,
    CUT,
    EMPTY,
    FILTERED,
    NOT_RECORDED,
    WARMUP,
    Steps,
    device_steps,
)
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.grouping import exact_sums, joined
from nsys_llm.numeric.intervals import IntArray, covered_ns, total_length_ns, union_intervals
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, HOST_CAUSES
from nsys_llm.trace.device_ops import DeviceOps

_HOST: Final = [CAUSE_NAMES.index(name) for name in HOST_CAUSES]


@dataclass(frozen=True)
class StepTimes:
    """Times of steps; int64 arrays of shape (steps,), the profile's clock.

    Attributes:
        before_ns: Where the step before ended, E_(k-1).
        begin_ns: From when on it costs: the begin of its range, where that is later.
        end_ns: Where all that it and earlier steps launched has ended, E_k.
        busy_ns: Time from `begin_ns` to `end_ns` in which the device runs anything.
        no_work_ns: Part of the time before `begin_ns` in which the server had no request.
    """

    mark: tuple[str, ...]
    before_ns: IntArray
    begin_ns: IntArray
    end_ns: IntArray
    busy_ns: IntArray
    no_work_ns: IntArray

    @property
    def cost_ns(self) -> IntArray:
        """The window without what is between steps."""
        return np.asarray(self.end_ns - self.begin_ns)

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Which steps are in statistics."""
        return np.array([mark == COUNTED for mark in self.mark], dtype=bool)


def step_times(view: RankView, steps: Steps) -> StepTimes:
    """Return the times of steps; of several devices of a process the last one to end counts.

    One on which less than half as many steps run anything as on another is not a device of theirs.
    """
    trace = view.trace
    devices = np.array(sorted(set(steps.devices) & set(trace.device_ids)))
    windows = np.stack([steps.windows_ns(device) for device in devices.tolist()])
    runs_n = (windows[..., 1] > windows[..., 0]).sum(axis=1)
    is_theirs = 2 * runs_n >= runs_n.max()
    windows = windows[is_theirs].max(axis=0)
    before_ns, end_ns = windows[:, 0], windows[:, 1]
    begin_ns = np.clip(steps.start_ns, before_ns, end_ns)
    busy, empty = trace.gpu_busy, view.no_work
    return StepTimes(
        mark=_marks(view, steps, windows, devices[is_theirs].tolist()),
        before_ns=before_ns,
        begin_ns=begin_ns,
        end_ns=end_ns,
        busy_ns=covered_ns(end_ns, busy) - covered_ns(begin_ns, busy),
        no_work_ns=covered_ns(begin_ns, empty) - covered_ns(before_ns, empty),
    )


def _marks(
    view: RankView, steps: Steps, windows: IntArray, devices: Sequence[int]
) -> tuple[str, ...]:
    whole = np.ones(len(steps), dtype=bool)
    for device_id, of_device in device_steps(view.trace, steps, by_window=False).items():
        whole &= of_device.whole | (device_id not in devices)
    marks = np.full(len(steps), FILTERED, dtype=object)
    marks[whole] = COUNTED
    marks[~whole & (windows[:, 1] == windows[:, 0])] = EMPTY
    marks[steps.warmup] = WARMUP
    marks[~steps.full] = CUT
    marks[steps.unrecorded] = NOT_RECORDED
    return tuple(marks.tolist())


def draft_busy_ns(drafts: IntArray, steps: Steps) -> IntArray:
    """Return how long what each draft launched ran, shape (drafts,)."""
    parts = [
        (innermost(some.launched_ns, *drafts.T), some.start_ns, some.end_ns)
        for some in steps.ops.blocks()
    ]
    draft, starts, ends = (joined(list(column)) for column in zip(*parts, strict=True))
    order = np.argsort(draft, kind="stable")
    bounds = np.searchsorted(draft[order], np.arange(len(drafts) + 1))
    spans = [order[low:high] for low, high in pairwise(bounds.tolist())]
    lengths = [total_length_ns(union_intervals(starts[rows], ends[rows])) for rows in spans]
    return np.array(lengths, dtype=np.int64)


def host_idle_ns(view: RankView, times: StepTimes, rows: IntArray) -> IntArray:
    """Return the idle time by host causes of some steps, of the device that has most of it.

    Of a step from the begin of its range on, or from where the step before ended.

    Args:
        rows: Ascending.

    Returns:
        Shape (steps,); 0 for the others.
    """
    most = np.zeros(times.end_ns.size, dtype=np.int64)
    spans = np.column_stack((times.begin_ns[rows], times.end_ns[rows]))
    rows, spans = rows[spans[:, 1] > spans[:, 0]], spans[spans[:, 1] > spans[:, 0]]
    if not rows.size:
        return most
    for device in view.device_ops:
        sums = idle_causes_ns(view, device, spans)[_HOST].sum(axis=0)
        most[rows] = np.maximum(most[rows], sums)
    view.release("device_ops")
    return most


def idle_causes_ns(view: RankView, device: DeviceOps, spans: IntArray) -> IntArray:
    """Return the idle time of a device in some spans by cause.

    Args:
        spans: Shape (n, 2), sorted and disjoint.

    Returns:
        Shape (causes, n), in the order of `CAUSE_NAMES`.
    """
    some = device.gaps.inside(spans)
    split = split_gaps(some, situate(some, device.launch_row, view.host), view.host)
    place = np.searchsorted(spans[:, 0], some.start_ns, side="right") - 1
    return np.stack([exact_sums(place, time_ns, len(spans)) for time_ns in split.time_ns])
