"""The gaps that the operations of each phase end, and the devices that they are gaps of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.missing_work import find_missing_work
from nsys_llm.analyses.device.profiler_time import profiler_spans
from nsys_llm.numeric.gaps import Gaps, find_gaps, start_order
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, bounds, clipped_lengths, total_length_ns
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.rank_trace import RankTrace

from .rank_ops import RankOps
from .sums_by_key import SumsByKey

_NEVER: Final = int(np.iinfo(np.int64).max)
#: So many gaps are looked at together: what is made of them on the way stays small.
_BLOCK: Final = 1 << 18


@dataclass(frozen=True)
class DeviceTimes:
    """One device of one rank; see the table `devices`."""

    device_id: int
    window_start_ns: int | None
    window_end_ns: int | None
    window_ns: int
    gpu_ns: int
    gap_ns: int
    overhead_ns: int


@dataclass(frozen=True)
class RankIdle:
    """One rank.

    Attributes:
        devices: Sorted by id.
        known: Whether idle time is known.
        phases: By phase, see the table `phase_idle`; empty where idle time is not known.
    """

    devices: tuple[DeviceTimes, ...]
    known: bool
    phases: SumsByKey


def map_idle(trace: RankTrace, ops: RankOps) -> RankIdle:
    """Look at the gaps of one rank.

    Args:
        trace: Its rows.
        ops: Its operations.
    """
    profiler = profiler_spans(trace)
    known = find_missing_work(trace).opaque_launches_n == 0
    device_id = ops.ranged.column("device_id")
    devices, sums = [], []
    for device in trace.device_ids:
        own_gpu_ns = int(ops.clipped_ns[ops.ranged.chosen(device_id) == device].sum())
        line = _line(trace, ops, device, device_id)
        gaps, windows = line.gaps, line.windows_ns
        start_ns, end_ns = bounds(windows)
        overhead_ns = clipped_lengths(gaps.start_ns, gaps.end_ns, profiler)
        devices.append(
            DeviceTimes(
                device_id=device,
                window_start_ns=start_ns,
                window_end_ns=end_ns,
                window_ns=total_length_ns(windows),
                gpu_ns=own_gpu_ns,
                gap_ns=int((gaps.end_ns - gaps.start_ns).sum()),
                overhead_ns=int(overhead_ns.sum()),
            )
        )
        if known:
            sums.append(_phase_sums(line, ops.phase_names, overhead_ns))
    return RankIdle(tuple(devices), known, SumsByKey.merge(sums))


@dataclass(frozen=True)
class _Line:
    """The gaps of one device, and the phase of its operations in order of time."""

    windows_ns: IntArray
    gaps: Gaps
    phase: npt.NDArray[np.int16]


def _line(trace: RankTrace, ops: RankOps, device: int, device_id: IntArray) -> _Line:
    every = ops.ranged.every
    selected = device_id == device
    starts, ends, phase = every.start_ns, every.end_ns, ops.every_phase
    if not selected.all():
        starts, ends, phase = starts[selected], ends[selected], phase[selected]
    # Of operations that start together, which one ends a gap: the one launched first, then the
    # order of tables and rows.
    launched = every.launched_ns if selected.all() else every.launched_ns[selected]
    order = start_order(
        starts, lambda some: (np.where(launched[some] < 0, _NEVER, launched[some]), some)
    )
    if order is not None:
        starts, ends, phase = starts[order], ends[order], phase[order]
    windows, _ = device_windows(trace, device)
    return _Line(windows, find_gaps(starts, ends, windows), phase)


def _phase_sums(line: _Line, names: tuple[str, ...], overhead_ns: IntArray) -> SumsByKey:
    """Add up the gaps of one device by the phase of the operation that ends each.

    What the window holds behind the last operation belongs to the last phase.
    """
    gaps = line.gaps
    if not line.phase.size:
        return SumsByKey()
    phases_n = len(names)
    gaps_n, idle_ns, within_ns, profiler_ns, longest_ns = np.zeros((5, phases_n), dtype=np.int64)
    for first in range(0, len(gaps), _BLOCK):
        block = slice(first, first + _BLOCK)
        some, overhead = gaps.take(block), overhead_ns[block]
        ends_gap = np.where(some.after < 0, some.before, some.after)
        of_gap = line.phase[ends_gap].astype(np.int64)
        same = (some.before >= 0) & (line.phase[some.before] == of_gap)
        length = some.end_ns - some.start_ns
        idle = length - overhead
        gaps_n += np.bincount(of_gap, minlength=phases_n)
        idle_ns += exact_sums(of_gap, idle, phases_n)
        within_ns += exact_sums(of_gap[same], idle[same], phases_n)
        profiler_ns += exact_sums(of_gap, overhead, phases_n)
        np.maximum.at(longest_ns, of_gap, length)
    return SumsByKey.of(
        [(name,) for name in names],
        {
            "gaps_n": gaps_n,
            "idle_ns": idle_ns,
            "within_ns": within_ns,
            "overhead_ns": profiler_ns,
        },
        {"longest_ns": longest_ns},
    )
