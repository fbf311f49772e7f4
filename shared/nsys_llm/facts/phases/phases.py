"""Phases of one rank: their sums and their kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.phases.rank_ops import GRAPH_TABLE, KERNEL_TABLE, RankOps
from nsys_llm.numeric.blocks import blocks, few_codes
from nsys_llm.numeric.by_key import ByKey, Texts
from nsys_llm.numeric.grouping import distinct, exact_sums, joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PhaseSums:
    """One rank.

    Attributes:
        phases: By phase, see the table `phases`; those of the map first, also without GPU time.
        kernels: By phase, kind of operation and name, see the table `phase_kernels`; the demangled
            name of a kernel is the last part of its key.
    """

    phases: ByKey
    kernels: ByKey


def map_phases(trace: RankTrace, ops: RankOps) -> PhaseSums:
    """Add up the phases of one rank."""
    names, by_name = ops.phase_names, _NameSums.of(trace, ops)
    return PhaseSums(
        phases=ByKey.of([(name,) for name in names], by_name.sums() | _ranges_of_phases(ops)),
        kernels=by_name.kernels(),
    )


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
