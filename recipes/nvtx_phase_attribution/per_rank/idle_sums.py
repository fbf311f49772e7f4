"""The gaps that the operations of each phase end, and the devices that they are gaps of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.gaps import Gaps, Positions, find_gaps, start_order
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, bounds, clipped_lengths, total_length_ns
from nsys_llm.trace.device_ops import device_windows

from .rank_ops import RankOps
from .sums_by_key import SumsByKey

_NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class DeviceGaps:
    """One device of one rank; see the table `devices`."""

    device_id: int
    window_start_ns: int | None
    window_end_ns: int | None
    window_ns: int
    gpu_ns: int
    gap_ns: int
    overhead_ns: int


@dataclass(frozen=True)
class PhaseIdle:
    """One rank.

    Attributes:
        phases: By phase, see the table `phase_idle`; empty where idle time is not known.
    """

    devices: tuple[DeviceGaps, ...]
    known: bool
    phases: SumsByKey


def map_idle(view: RankView, ops: RankOps) -> PhaseIdle:
    """Look at the gaps of one rank."""
    trace, known = view.trace, view.missing_work.opaque_launches_n == 0
    ranged = ops.ranged
    rows = selected = ranged.by_device(ranged.device)
    if ranged.kept is not None:
        selected = ranged.by_device(ranged.chosen(ranged.device))
    devices, sums = [], []
    for device in trace.device_ids:
        windows, _ = device_windows(trace, device)
        gaps = _DeviceGaps.of(ops, rows[device], windows, view.profiler)
        start_ns, end_ns = bounds(windows)
        devices.append(
            DeviceGaps(
                device_id=device,
                window_start_ns=start_ns,
                window_end_ns=end_ns,
                window_ns=total_length_ns(windows),
                gpu_ns=int(ops.clipped_ns[selected[device]].sum()),
                gap_ns=gaps.gap_ns,
                overhead_ns=gaps.overhead_ns,
            )
        )
        if known:
            sums.append(gaps.by_phase(ops.phase_names))
    return PhaseIdle(tuple(devices), known, SumsByKey.merge(sums))


@dataclass
class _DeviceGaps:
    """The gaps of one device, added up; arrays of shape (phases,), see the table `phase_idle`.

    A gap belongs to the phase of the operation that ends it. What the window holds behind the last
    operation belongs to the last phase.
    """

    gap_ns: int
    overhead_ns: int
    gaps_n: IntArray
    idle_ns: IntArray
    within_ns: IntArray
    profiler_ns: IntArray
    longest_ns: IntArray

    @classmethod
    def of(
        cls,
        ops: RankOps,
        rows: IntArray | slice,
        windows: IntArray,
        profiler: IntArray,
    ) -> _DeviceGaps:
        every = ops.ranged.every
        starts, ends, phase = every.start_ns[rows], every.end_ns[rows], ops.every_phase[rows]

        def ties(some: IntArray) -> tuple[IntArray, IntArray]:
            # Of operations that start together, which one ends a gap: the one launched first, then
            # the order of tables and rows.
            launched = every.launched_ns(some if isinstance(rows, slice) else rows[some])
            return np.where(launched < 0, _NEVER, launched), some

        order = start_order(starts, ties)
        added = cls(0, 0, *np.zeros((5, len(ops.phase_names)), dtype=np.int64))
        if order is not None:
            starts, ends, phase = starts[order], ends[order], phase[order]
        gaps = find_gaps(starts, ends, windows)
        overhead_ns = clipped_lengths(gaps.start_ns, gaps.end_ns, profiler)
        added.gap_ns = int((gaps.end_ns - gaps.start_ns).sum())
        added.overhead_ns = int(overhead_ns.sum())
        if phase.size:
            added._add(gaps, overhead_ns, phase)
        return added

    def _add(
        self,
        gaps: Gaps,
        overhead_ns: IntArray,
        phase: npt.NDArray[np.int32],
    ) -> None:
        def phase_at(place: Positions) -> IntArray:
            return phase[place].astype(np.int64)

        phases_n = self.gaps_n.size
        of_gap = phase_at(np.where(gaps.after < 0, gaps.before, gaps.after))
        same = (gaps.before >= 0) & (phase_at(gaps.before) == of_gap)
        length = gaps.end_ns - gaps.start_ns
        idle = length - overhead_ns
        self.gaps_n += np.bincount(of_gap, minlength=phases_n)
        self.idle_ns += exact_sums(of_gap, idle, phases_n)
        self.within_ns += exact_sums(of_gap[same], idle[same], phases_n)
        self.profiler_ns += exact_sums(of_gap, overhead_ns, phases_n)
        np.maximum.at(self.longest_ns, of_gap, length)

    def by_phase(self, names: tuple[str, ...]) -> SumsByKey:
        return SumsByKey.of(
            [(name,) for name in names],
            {
                "gaps_n": self.gaps_n,
                "idle_ns": self.idle_ns,
                "within_ns": self.within_ns,
                "overhead_ns": self.profiler_ns,
            },
            {"longest_ns": self.longest_ns},
        )
