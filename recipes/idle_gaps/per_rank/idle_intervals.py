"""When all devices of one rank were idle, for the comparison with other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import (
    IntArray,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
)
from nsys_llm.trace.device_ops import DeviceOps

from ..partials import IdleIntervals
from .gap_rows import longest_gaps

#: Idle stretches that a rank keeps for the comparison with others: 32 kB.
_INTERVALS_KEPT: Final = 2_000


def map_idle_intervals(
    devices: Sequence[DeviceOps], profiler: IntArray, least_ns: int
) -> IdleIntervals:
    """Return when all devices of a rank were idle, where their windows overlap.

    Args:
        devices: Their windows and gaps are looked at.
        profiler: When the profiler did its own work: shape (n, 2), sorted and disjoint.
        least_ns: Shorter stretches are left out.
    """
    nothing = np.empty((0, 2), dtype=np.int64)
    windows, gaps = (
        (devices[0].windows_ns, devices[0].gaps.spans) if devices else (nothing, nothing)
    )
    for device in devices[1:]:
        windows = intersect_intervals(windows, device.windows_ns)
        gaps = intersect_intervals(gaps, device.gaps.spans)
    if len(devices) > 1:
        gaps = intersect_intervals(gaps, windows)
    idle = subtract_intervals(gaps, profiler) if len(profiler) else gaps
    kept = _longest(idle, least_ns)
    return IdleIntervals(
        idle_ns=kept,
        unwatched_ns=_longest(intersect_intervals(profiler, gaps), least_ns),
        left_out_n=len(idle) - len(kept),
        left_out_ns=total_length_ns(idle) - total_length_ns(kept),
        span_ns=(int(windows[0, 0]), int(windows[-1, 1])) if len(windows) else None,
    )


def _longest(spans: IntArray, least_ns: int) -> IntArray:
    return spans[np.sort(longest_gaps(spans[:, 1] - spans[:, 0], _INTERVALS_KEPT, least_ns))]
