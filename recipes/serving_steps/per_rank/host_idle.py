"""Idle time by host causes inside steps that launch their work call by call."""

from __future__ import annotations

import numpy as np

from nsys_llm.analyses.device.idle_split import situate, split_gaps
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.gaps import Gaps
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, clip_to_windows
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, HOST_CAUSES

from .step_times import StepTimes

_HOST: list[int] = [CAUSE_NAMES.index(name) for name in HOST_CAUSES]


def host_idle_ns(view: RankView, times: StepTimes, rows: IntArray) -> IntArray:
    """Return the idle time by host causes of some steps, of the device that has most of it.

    Of a step from the begin of its range on, or from where the step before ended.

    Args:
        view: The rank; its idle time is known.
        times: Of its steps.
        rows: Which steps, ascending.

    Returns:
        Shape (steps,); 0 for the others.
    """
    most = np.zeros(times.end_ns.size, dtype=np.int64)
    spans = np.column_stack((times.begin_ns[rows], times.end_ns[rows]))
    rows, spans = rows[spans[:, 1] > spans[:, 0]], spans[spans[:, 1] > spans[:, 0]]
    if not rows.size or view.missing_work.opaque_launches_n:
        return most
    for device in view.device_ops:
        gaps = device.gaps
        owner, starts, ends = clip_to_windows(gaps.start_ns, gaps.end_ns, spans)
        some = Gaps(
            np.column_stack((starts, ends)),
            gaps.before[owner],
            gaps.after[owner],
            gaps.since_ns[owner],
        )
        split = split_gaps(some, situate(some, device.launch_row, view.host), view.host)
        place = np.searchsorted(spans[:, 0], starts, side="right") - 1
        sums = exact_sums(place, split.time_ns[_HOST].sum(axis=0), rows.size)
        most[rows] = np.maximum(most[rows], sums)
    return most
