"""The operations of one rank with all that the tables ask of each: time, name, phase, step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.coded_names import text_of
from nsys_llm.communication import is_communication
from nsys_llm.device_ops import op_names
from nsys_llm.exclusive import exclusive_ns
from nsys_llm.grouping import distinct, exact_sums, summed
from nsys_llm.intervals import IntArray, clip_to_windows
from nsys_llm.phase_maps import PhaseMap, phase_map
from nsys_llm.phase_times import (
    RangedOps,
    codes_of_owners,
    owners,
    phase_names,
    ranged_ops,
    rank_steps,
    selected_times,
)
from nsys_llm.ranges import Ranges
from nsys_llm.rank_trace import OP_TABLES, RankTrace

__all__ = ["COPY_TABLES", "GRAPH_TABLE", "KERNEL_TABLE", "RankOps"]

KERNEL_TABLE: Final = "kernels"
COPY_TABLES: Final = ("memcpys", "memsets")
GRAPH_TABLE: Final = "graph_traces"

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RankOps:
    """The operations that the filters leave; arrays of shape (operations,) unless said otherwise.

    A rank may have millions of operations: codes are as narrow as they can be.

    Attributes:
        ranged: All operations with their ranges.
        phases: The phase map.
        own_phase: Shape (pieces,), the phase that each range's own name has; -1 for none.
        names: What operations are called: distinct texts.
        kinds: What kind of operation each name is of.
        full_names: The demangled name of each that is a kernel's; of several kernels of one short
            name, that of the first one.
        talks: Whether each name is that of a kernel that communicates.
        table: int8, position of the table of each in `ranged.tables`.
        clipped_ns: Time in the windows.
        inside: Whether it starts in one.
        exclusive_ns: Share of the time in which the device ran anything.
        name: int32, position in `names`.
        every_name: Shape (all operations,), likewise.
        phase: int16, code of `phase_names`.
        every_phase: Shape (all operations,), likewise.
        phase_owner: int32, the range that gives the phase, position in the forest; -1 without one.
        steps: The steps; None where there are none.
        step: int32, the step of each, -1 for none.
    """

    ranged: RangedOps
    phases: PhaseMap
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
    every_name: npt.NDArray[np.int32]
    phase: npt.NDArray[np.int16]
    every_phase: npt.NDArray[np.int16]
    phase_owner: npt.NDArray[np.int32]
    steps: Ranges | None
    step: npt.NDArray[np.int32]

    @classmethod
    def of(cls, trace: RankTrace, options: Mapping[str, Any]) -> RankOps:
        """Look at one rank."""
        ranged, phases = ranged_ops(trace, options), phase_map(options["phase_map"])
        own = ranged.names.told(phases.phase_of)
        owner = owners(ranged, own >= 0)
        every_phase = codes_of_owners(ranged, own, owner, len(phases.phases)).astype(np.int16)
        phase_owner: npt.NDArray[np.int32] = ranged.chosen(owner.astype(np.int32))
        del owner
        steps, step = rank_steps(trace, ranged.every, options)
        narrow_step: npt.NDArray[np.int32] = ranged.chosen(step.astype(np.int32))
        names, kinds, every_name = _names(trace, ranged, options)
        full_names = _full_names(trace, names, every_name, options)
        name = ranged.chosen(every_name)
        clipped_ns, inside = selected_times(trace, ranged)
        return cls(
            ranged=ranged,
            phases=phases,
            own_phase=own,
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
            exclusive_ns=_exclusive(trace, ranged, name),
            name=name,
            every_name=every_name,
            phase=ranged.chosen(every_phase),
            every_phase=every_phase,
            phase_owner=phase_owner,
            steps=steps,
            step=narrow_step,
        )

    def pairs(self, code: npt.NDArray[Any], codes_n: int) -> IntArray:
        """Return a code of (phase, another code) for each operation."""
        return self.phase.astype(np.int64) * codes_n + code

    @property
    def phase_names(self) -> tuple[str, ...]:
        """What the codes of `phase` stand for."""
        return phase_names(self.phases)

    def of_tables(self, *tables: str) -> _Mask:
        """Tell which operations are of some tables."""
        wanted = np.array([name in tables for name in self.ranged.tables], dtype=bool)
        return np.asarray(wanted[self.table])

    def sums(self, code: IntArray, codes_n: int) -> dict[str, IntArray]:
        """Return operations, kernels and times by code; operations with a code below 0 are none.

        Args:
            code: Shape (operations,), int64.
            codes_n: Codes.
        """
        if (code < 0).any():
            code, codes_n = np.where(code < 0, codes_n, code), codes_n + 1
            return {name: one[:-1] for name, one in self._sums(code, codes_n).items()}
        return self._sums(code, codes_n)

    def _sums(self, code: IntArray, codes_n: int) -> dict[str, IntArray]:
        kernel, copy = self.of_tables(KERNEL_TABLE), self.of_tables(*COPY_TABLES)
        gpu_ns = exact_sums(code, self.clipped_ns, codes_n)
        talking = np.flatnonzero(self.talks[self.name])
        memop_ns = exact_sums(code[copy], self.clipped_ns[copy], codes_n)
        graph = self.of_tables(GRAPH_TABLE)
        whole_graph_ns = exact_sums(code[graph], self.clipped_ns[graph], codes_n)
        counted = code if self.inside.all() else code[self.inside]
        return {
            "ops_n": np.bincount(counted, minlength=codes_n),
            "kernels_n": np.bincount(code[self.inside & kernel], minlength=codes_n),
            "gpu_ns": gpu_ns,
            "kernel_ns": gpu_ns - memop_ns - whole_graph_ns,
            "memop_ns": memop_ns,
            "whole_graph_ns": whole_graph_ns,
            "communication_ns": exact_sums(code[talking], self.clipped_ns[talking], codes_n),
            "exclusive_ns": exact_sums(code, self.exclusive_ns, codes_n),
        }

    def counted_pieces(self) -> _Mask:
        """Tell which ranges count; with a filter, only those around an operation that it leaves."""
        forest = self.ranged.forest
        if self.ranged.kept is None:
            return np.ones(len(forest), dtype=bool)
        piece = self.ranged.selected.piece
        own = np.bincount(piece[piece >= 0], minlength=len(forest)).astype(np.int64)
        return np.asarray(forest.rolled_up(own) > 0)


def _names(
    trace: RankTrace, ranged: RangedOps, options: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...], npt.NDArray[np.int32]]:
    """Return distinct names, the kind of each, and the name of each operation."""
    found = op_names(trace, options)
    kinds = [""] * len(found.texts)
    for table, codes in found.codes.items():
        for code in distinct(codes).tolist():
            kinds[code] = OP_TABLES[table]
    name = np.concatenate([found.codes[table].astype(np.int32) for table in ranged.tables])
    return found.texts, tuple(kinds), name


def _full_names(
    trace: RankTrace,
    names: tuple[str, ...],
    every_name: npt.NDArray[np.int32],
    options: Mapping[str, Any],
) -> tuple[str, ...]:
    if not (options["base"] or options["mangled"]):
        return names
    found, kernels = list(names), trace.unfiltered[KERNEL_TABLE]
    # Kernels are the first table.
    used, first = np.unique(every_name[: len(kernels)], return_index=True)
    ids = kernels["demangled_name_id"][first].tolist()
    for code, key in zip(used.tolist(), ids, strict=True):
        found[code] = text_of(key, trace.strings)
    return tuple(found)


def _exclusive(trace: RankTrace, ranged: RangedOps, tie_break: npt.NDArray[np.int32]) -> IntArray:
    """Return each operation's share of its device's busy time inside the windows."""
    starts, ends = ranged.selected.start_ns, ranged.selected.end_ns
    device = ranged.chosen(ranged.column("device_id"))
    shares = np.zeros(starts.shape, dtype=np.int64)
    devices = distinct(device).tolist()
    for one in devices:
        mine = slice(None) if len(devices) == 1 else np.flatnonzero(device == one)
        low, high, ties = starts[mine], ends[mine], tie_break[mine].astype(np.int64)
        if trace.windows_ns is None:
            shares[mine] = exclusive_ns(low, high, ties)
        else:
            owner, begins, stops = clip_to_windows(low, high, trace.windows_ns)
            pieces_ns = exclusive_ns(begins, stops, ties[owner], low[owner])
            shares[mine] = summed(owner, pieces_ns, low.size)
    return shares
