"""Phases of one rank: their sums, their kernels, and the gaps that their operations end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.phases.rank_ops import GRAPH_TABLE, KERNEL_TABLE, RankOps
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.blocks import blocks, few_codes
from nsys_llm.numeric.by_key import ByKey, Texts
from nsys_llm.numeric.gaps import Gaps, Positions, gap_blocks, start_order
from nsys_llm.numeric.grouping import distinct, exact_sums, joined, summed
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, merged_unions
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_Mask = npt.NDArray[np.bool_]


def map_phases(trace: RankTrace, ops: RankOps) -> tuple[ByKey, ByKey]:
    """Add up one rank by phase and by what runs in it, see the tables `phases` and `phase_kernels`.

    Returns:
        Sums by phase, those of the map first, also without GPU time; and by phase, kind of
        operation, name and demangled name.
    """
    by_name, names = _NameSums.of(trace, ops), [(name,) for name in ops.phase_names]
    return ByKey.of(names, by_name.sums() | _ranges_of_phases(ops)), by_name.kernels()


@dataclass(frozen=True)
class _NameSums:
    """The operations by phase and name; arrays of shape (pairs,).

    Attributes:
        phase: Codes of the pairs that there are, in this order.
        launches_n: Operations that start in the windows.
        total_ns: Time in the windows.
        exclusive_ns: Share of the time in which the device ran anything.
        whole_ns: Time of those operations, in the windows and outside.
    """

    ops: RankOps
    phase: IntArray
    name: IntArray
    launches_n: IntArray
    total_ns: IntArray
    exclusive_ns: IntArray
    whole_ns: IntArray

    @classmethod
    def of(cls, trace: RankTrace, ops: RankOps) -> _NameSums:
        pairs, pairs_n = _pairs(ops)
        attributed = ops.ranged.selected
        ops_n, launches_n, total_ns, exclusive_ns, whole_ns = np.zeros((5, pairs_n), dtype=np.int64)
        for block in blocks(ops.name.size, pairs_n):
            code, inside = ops.pairs(block), ops.inside[block]
            if pairs is not None:
                code = np.searchsorted(pairs, code)
            ops_n += np.bincount(code, minlength=pairs_n)
            total_ns += exact_sums(code, ops.clipped_ns[block], pairs_n)
            exclusive_ns += exact_sums(code, ops.exclusive_ns[block], pairs_n)
            if trace.windows_ns is not None:
                launches_n += np.bincount(code[inside], minlength=pairs_n)
                length_ns = attributed.end_ns[block] - attributed.start_ns[block]
                whole_ns += exact_sums(code[inside], length_ns[inside], pairs_n)
        if trace.windows_ns is None:
            launches_n, whole_ns = ops_n, total_ns
        used = np.flatnonzero(ops_n)
        phase, name = np.divmod(used if pairs is None else pairs, max(len(ops.names), 1))
        columns = (launches_n, total_ns, exclusive_ns, whole_ns)
        return cls(ops, phase, name, *(values[used] for values in columns))

    def sums(self) -> dict[str, IntArray]:
        """Return operations, kernels and times by phase."""
        kinds = np.array(self.ops.kinds)[self.name]
        kernel, graph = kinds == OP_TABLES[KERNEL_TABLE], kinds == OP_TABLES[GRAPH_TABLE]

        def added(values: IntArray, chosen: _Mask | slice = slice(None)) -> IntArray:
            return summed(self.phase[chosen], values[chosen], len(self.ops.phase_names))

        return {
            "ops_n": added(self.launches_n),
            "kernels_n": added(self.launches_n, kernel),
            "gpu_ns": added(self.total_ns),
            "kernel_ns": added(self.total_ns, kernel),
            "memop_ns": added(self.total_ns, ~kernel & ~graph),
            "whole_graph_ns": added(self.total_ns, graph),
            "communication_ns": added(self.total_ns, self.ops.talks[self.name]),
            "exclusive_ns": added(self.exclusive_ns),
        }

    def kernels(self) -> ByKey:
        """Return the sums under phase, kind, name and demangled name."""
        ops = self.ops
        keys: list[Texts] = [
            (ops.phase_names[phase], ops.kinds[name], ops.names[name], ops.full_names[name])
            for phase, name in zip(self.phase.tolist(), self.name.tolist(), strict=True)
        ]
        names = ("launches_n", "total_ns", "exclusive_ns", "whole_ns")
        return ByKey.of(keys, {name: getattr(self, name) for name in names})


def _pairs(ops: RankOps) -> tuple[IntArray | None, int]:
    """Return the pairs of phase and name that occur, None where there is room for all; how many."""
    pairs_n, rows_n = len(ops.phase_names) * len(ops.names), ops.name.size
    if few_codes(pairs_n, rows_n):
        return None, pairs_n
    pairs = distinct(joined([distinct(ops.pairs(block)) for block in blocks(rows_n)]))
    return pairs, pairs.size


def _ranges_of_phases(ops: RankOps) -> dict[str, IntArray]:
    """Return host time and number of ranges by phase."""
    tree = ops.ranged.tree
    counted = ops.counted_pieces()
    piece_phase = ops.own_phase
    phases_n, unmapped = len(ops.phase_names), len(ops.phases.phases)
    nearest = tree.nearest(piece_phase >= 0)
    of_piece = np.append(piece_phase, unmapped)[nearest]
    # The host time of a range that counts is whole, with what is inside and counts not.
    outermost = tree.nearest(tree.parent < 0)
    whole = _ranges_with(tree, counted)[np.where(nearest < 0, outermost, nearest)]
    host_ns = exact_sums(of_piece[whole], tree.self_host_ns()[whole], phases_n)
    roots = np.flatnonzero((ops.roots == np.arange(len(tree))) & (piece_phase >= 0) & counted)
    # A range in pieces is one range.
    _, first = np.unique(tree.event[roots], return_index=True)
    instances_n = np.bincount(piece_phase[roots[first]], minlength=phases_n)
    return {"host_ns": host_ns, "instances_n": instances_n.astype(np.int64)}


def _ranges_with(tree: NvtxTree, chosen: _Mask) -> _Mask:
    """Return all pieces of the ranges of which any piece is chosen; shape (pieces,)."""
    events = np.bincount(tree.event[chosen], minlength=int(tree.event.max(initial=-1)) + 1)
    return np.asarray(events[tree.event] > 0)


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
