"""The gaps that the operations of each phase end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.gaps import Gaps, Positions, gap_blocks, start_order
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, merged_unions
from nsys_llm.trace.device_ops import device_windows

_NEVER: Final = int(np.iinfo(np.int64).max)


def map_idle(view: RankView, ops: RankOps) -> ByKey:
    """Add up the gaps of one rank by phase."""
    apart = merged_unions([view.profiler, view.not_recorded])
    sums = _PhaseGaps(*np.zeros((3, len(ops.phase_names)), dtype=np.int64))
    rows = ops.ranged.by_device(ops.ranged.device)
    for device in view.trace.device_ids:
        windows, _ = device_windows(view.trace, device)
        sums.add_device(ops, rows[device], windows, apart)
    columns = {"gaps_n": sums.gaps_n, "idle_ns": sums.idle_ns, "within_ns": sums.within_ns}
    return ByKey.of([(name,) for name in ops.phase_names], columns)


@dataclass(frozen=True)
class _PhaseGaps:
    """Gaps, added up; arrays of shape (phases,), see the table `phase_idle`.

    A gap belongs to the phase of the operation that ends it. What the window holds behind the last
    operation belongs to the last phase.
    """

    gaps_n: IntArray
    idle_ns: IntArray
    within_ns: IntArray

    def add_device(
        self, ops: RankOps, rows: IntArray | slice, windows: IntArray, apart: IntArray
    ) -> None:
        every = ops.ranged.every
        starts, ends, phase = every.start_ns[rows], every.end_ns[rows], ops.every_phase[rows]

        def ties(some: IntArray) -> tuple[IntArray, IntArray]:
            # Of operations that start together, which one ends a gap: the one launched first, then
            # the order of tables and rows.
            launched = every.launched_ns(some if isinstance(rows, slice) else rows[some])
            return np.where(launched < 0, _NEVER, launched), some

        if phase.size:
            order = start_order(starts, ties)
            for gaps in gap_blocks(starts, ends, order, windows):
                self._add(gaps, apart, phase, order)

    def _add(
        self, gaps: Gaps, apart: IntArray, phase: npt.NDArray[np.int32], order: IntArray | None
    ) -> None:
        def phase_at(place: Positions) -> IntArray:
            return phase[place if order is None else order[place]].astype(np.int64)

        phases_n = self.gaps_n.size
        of_gap = phase_at(np.where(gaps.after < 0, gaps.before, gaps.after))
        same = (gaps.before >= 0) & (phase_at(gaps.before) == of_gap)
        idle = gaps.end_ns - gaps.start_ns
        idle = idle - clipped_lengths(gaps.start_ns, gaps.end_ns, apart)
        self.gaps_n[:] += np.bincount(of_gap, minlength=phases_n)
        self.idle_ns[:] += exact_sums(of_gap, idle, phases_n)
        self.within_ns[:] += exact_sums(of_gap[same], idle[same], phases_n)
