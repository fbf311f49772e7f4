"""The operations of one rank with all that the tables ask of each: time, name, phase, step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.dependents import Dependents
from nsys_llm.facts.nvtx.phase_times import (
    RangedOps,
    codes_of_owners,
    owners,
    phase_names,
    ranged_ops,
    same_phase_roots,
    selected_times,
)
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.exclusive import exclusive_in_windows
from nsys_llm.numeric.grouping import distinct, exact_sums
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.phase_maps import PhaseMap, phase_map
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.device_ops import OpNames
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

KERNEL_TABLE: Final = "kernels"
GRAPH_TABLE: Final = "graph_traces"

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RankOps:
    """The operations that the filters leave; arrays of shape (operations,) unless said otherwise.

    A rank may have millions of operations: codes are narrow.

    Attributes:
        ranged: All operations with their ranges.
        text_phase: Shape (names of ranges,), the phase that each name has; -1 for none.
        own_phase: Shape (pieces,), that of each range's own name.
        names: What operations are called: distinct texts.
        full_names: The demangled name of each that is a kernel's; of several kernels of one short
            name, that of the first one.
        talks: Whether each name is that of a kernel that communicates.
        table: int8, position of the table of each in `ranged.tables`.
        exclusive_ns: Share of the time in which the device ran anything.
        name: int32, position in `names`.
        phase: int32, code of `phase_names`.
        every_phase: Shape (all operations,), likewise.
        steps: The steps; None where there are none.
        step: int32, the step of each, -1 for none.
    """

    ranged: RangedOps
    phases: PhaseMap
    text_phase: IntArray
    own_phase: IntArray
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    full_names: tuple[str, ...]
    talks: _Mask
    table: npt.NDArray[np.int8]
    clipped_ns: IntArray
    inside: _Mask
    exclusive_ns: IntArray
    name: npt.NDArray[np.int32]
    phase: npt.NDArray[np.int32]
    every_phase: npt.NDArray[np.int32]
    steps: Steps | None
    step: npt.NDArray[np.int32]

    @classmethod
    def of(cls, view: RankView) -> RankOps:
        """Look at one rank."""
        trace, options = view.trace, view.options
        # First: these have the highest peaks.
        steps, _ = view.steps, trace.gpu_busy
        ranged, phases = ranged_ops(trace, options), phase_map(options["phase_map"])
        text_phase = np.array(phases.codes(ranged.names.texts), dtype=np.int64)
        piece_phase = text_phase[ranged.names.code]
        owner = owners(ranged, piece_phase >= 0)
        every_phase = codes_of_owners(ranged, piece_phase, owner, len(phases.phases))
        names, kinds, every_name = _names(ranged, view.op_names)
        full_names = _full_names(trace, names, every_name, options)
        name = ranged.chosen(every_name)
        clipped_ns, inside = selected_times(trace, ranged)
        return cls(
            ranged=ranged,
            phases=phases,
            text_phase=text_phase,
            own_phase=piece_phase,
            names=names,
            kinds=kinds,
            full_names=full_names,
            talks=np.array(
                [
                    kind == OP_TABLES[KERNEL_TABLE] and is_communication(name)
                    for name, kind in zip(full_names, kinds, strict=True)
                ],
                dtype=bool,
            ),
            table=ranged.chosen(ranged.table_codes()),
            clipped_ns=clipped_ns,
            inside=inside,
            exclusive_ns=_exclusive(trace, ranged, name, view.dependents),
            name=name,
            phase=ranged.chosen(every_phase),
            every_phase=every_phase,
            steps=steps,
            step=_chosen_steps(ranged, steps),
        )

    def pairs(self, rows: IntArray | slice) -> IntArray:
        """Return a code of (phase, name) for some operations."""
        return self.phase[rows].astype(np.int64) * len(self.names) + self.name[rows]

    @property
    def phase_names(self) -> tuple[str, ...]:
        """What the codes of `phase` stand for."""
        return phase_names(self.phases)

    @cached_property
    def is_kernel(self) -> _Mask:
        """Return which operations are kernels."""
        return np.asarray(self.table == list(self.ranged.tables).index(KERNEL_TABLE))

    @cached_property
    def roots(self) -> IntArray:
        """For each piece with a phase, the outermost one around it of which all have that."""
        return same_phase_roots(self.ranged.tree, self.own_phase)

    def sums(self, code: npt.NDArray[np.int32], codes_n: int) -> dict[str, IntArray]:
        """Return operations, kernels and GPU time by code; operations with a code below 0 are none.

        Args:
            code: Shape (operations,).
        """
        sums = {
            name: np.zeros(codes_n, dtype=np.int64) for name in ("ops_n", "kernels_n", "gpu_ns")
        }
        for block in blocks(code.size, codes_n):
            rows = block.start + np.flatnonzero(code[block] >= 0)
            of_row, inside = code[rows].astype(np.int64), self.inside[rows]
            # Nearly all operations are kernels: the others are taken away.
            others = inside & ~self.is_kernel[rows]
            ops_n = np.bincount(of_row[inside], minlength=codes_n)
            sums["ops_n"] += ops_n
            sums["kernels_n"] += ops_n - np.bincount(of_row[others], minlength=codes_n)
            sums["gpu_ns"] += exact_sums(of_row, self.clipped_ns[rows], codes_n)
        return sums

    def held_by_free(self, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return which operations each start/end range holds, as if no push/pop range were open.

        Args:
            rows: Operations that the filters leave, in any order.

        Returns:
            The rows in order of their evidence; and for each start/end range, of shape (ranges,),
            the first of these that it holds and the first behind them.
        """
        tree, at_ns = self.ranged.tree, self.ranged.selected.evidence_ns(rows)
        order = np.argsort(at_ns, kind="stable")
        rows, at_ns = rows[order], at_ns[order]
        free = slice(tree.pushed_n, None)
        low, high = (
            np.searchsorted(at_ns, edges[free], side="left")
            for edges in (tree.start_ns, tree.end_ns)
        )
        return rows, low, high

    def counted_pieces(self) -> _Mask:
        """Return which pieces hold an operation that the filters leave; without a filter, all do.

        Operations whose range is a start/end one are held by all such ranges that are open.
        """
        tree = self.ranged.tree
        if self.ranged.kept is None:
            return np.ones(len(tree), dtype=bool)
        piece = self.ranged.selected.piece
        pushed = piece[(piece >= 0) & (piece < tree.pushed_n)]
        held_n = np.bincount(pushed, minlength=len(tree)).astype(np.int64)
        counted = np.asarray(tree.rolled_up(held_n) > 0)
        _, low, high = self.held_by_free(np.flatnonzero(piece >= tree.pushed_n))
        counted[tree.pushed_n :] = high > low
        return counted


def _chosen_steps(ranged: RangedOps, steps: Steps | None) -> npt.NDArray[np.int32]:
    if steps is None:
        return np.full(ranged.selected.start_ns.shape, -1, dtype=np.int32)
    return ranged.chosen(steps.step)


def _names(
    ranged: RangedOps, names: OpNames
) -> tuple[tuple[str, ...], tuple[str, ...], npt.NDArray[np.int32]]:
    """Return distinct names, the kind of each, and the name of each operation."""
    kinds = [""] * len(names.texts)
    for table, codes in names.codes.items():
        for code in distinct(codes).tolist():
            kinds[code] = OP_TABLES[table]
    name = np.concatenate([names.codes[table].astype(np.int32) for table in ranged.tables])
    return names.texts, tuple(kinds), name


def _full_names(
    trace: RankTrace,
    names: tuple[str, ...],
    every_name: npt.NDArray[np.int32],
    options: Mapping[str, Any],
) -> tuple[str, ...]:
    if not (options["base"] or options["mangled"]):
        return names
    full_names, kernels = list(names), trace.unfiltered[KERNEL_TABLE]
    # Kernels are the first table.
    used, first = np.unique(every_name[: len(kernels)], return_index=True)
    ids = kernels["demangled_name_id"][first].tolist()
    for code, key in zip(used.tolist(), ids, strict=True):
        full_names[code] = text_of(key, trace.strings)
    return tuple(full_names)


def _exclusive(
    trace: RankTrace, ranged: RangedOps, tie_break: npt.NDArray[np.int32], early: Dependents
) -> IntArray:
    """Return each operation's share of its device's busy time inside the windows."""
    starts, ends = ranged.selected.start_ns, ranged.selected.end_ns
    if early.row.size:
        starts = starts + ranged.chosen(early.early_ns(ranged.every.start_ns.size))
    if len(trace.device_ids) == 1:
        return exclusive_in_windows(starts, ends, tie_break, trace.windows_ns)
    shares = np.zeros(starts.shape, dtype=np.int64)
    on_device = ranged.by_device(ranged.chosen(ranged.device))
    for device in trace.device_ids:
        selected = on_device[device]
        shares[selected] = exclusive_in_windows(
            starts[selected], ends[selected], tie_break[selected], trace.windows_ns
        )
    return shares
