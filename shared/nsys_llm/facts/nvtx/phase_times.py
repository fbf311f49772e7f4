"""GPU time of one rank by phase, every nanosecond of it once.

    times = phase_times(trace, options)
    dict(zip(times.phases, times.gpu_ns))        # adds up to the GPU time of the rank

The pieces it is made of (`ranged_ops`, `phase_codes`) serve those who need more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.attributed_ops import NO_API, NO_RANGE, AttributedOps, attribute
from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.nvtx.range_names import RangeNames
from nsys_llm.numeric.blocks import gathered
from nsys_llm.numeric.grouping import distinct, distinct_codes, exact_sums, joined, rows_by_code
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.phase_maps import NO_API as NO_API_PHASE
from nsys_llm.taxonomy.phase_maps import NO_RANGE as NO_RANGE_PHASE
from nsys_llm.taxonomy.phase_maps import UNMAPPED, PhaseMap, phase_map
from nsys_llm.trace.filters import FoundPhase
from nsys_llm.trace.graph_nodes import NodeCaptures
from nsys_llm.trace.rank_trace import GRAPH_NODE_TABLES, OP_TABLES, RankTrace


@dataclass(frozen=True)
class RangedOps:
    """The operations of a rank with their ranges.

    Attributes:
        tables: The tables of operations, in the order in which they are lined up, before filters.
        every: All operations, before any filter.
        kept: Shape (operations,), bool: those that the filters leave; None for all.
    """

    tables: Mapping[str, Table]
    every: AttributedOps
    kept: npt.NDArray[np.bool_] | None
    tree: NvtxTree
    names: RangeNames

    def chosen(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of the operations that the filters leave, of those of all."""
        return values if self.kept is None else values[self.kept]

    def column(self, name: str) -> IntArray:
        """Return a column of all tables, one behind the other."""
        return np.concatenate([op[name] for op in self.tables.values()])

    @cached_property
    def device_ids(self) -> tuple[int, ...]:
        """The CUDA devices that run any operation, whatever the filters leave, sorted."""
        by_table = [distinct(op["device_id"]) for op in self.tables.values()]
        return tuple(distinct(joined(by_table)).tolist())

    @cached_property
    def device(self) -> npt.NDArray[Any]:
        """The position in `device_ids` of the device of each operation, in few bytes."""
        last = max(len(self.device_ids) - 1, 0)
        if not last:
            return np.broadcast_to(np.uint8(0), self.every.start_ns.shape)
        ids, kind = np.array(self.device_ids, dtype=np.int64), np.min_scalar_type(last)
        return np.concatenate(
            [np.searchsorted(ids, op["device_id"]).astype(kind) for op in self.tables.values()]
        )

    def by_device(self, device: npt.NDArray[Any]) -> dict[int, IntArray | slice]:
        """Return which of some operations run on each of `device_ids`.

        Args:
            device: Of these operations, values of `device`.
        """
        rows = rows_by_code(device, len(self.device_ids))
        return dict(zip(self.device_ids, rows, strict=True))

    def table_codes(self) -> npt.NDArray[np.int8]:
        """Return the position in `tables` of the table of each operation."""
        sizes = [len(op) for op in self.tables.values()]
        return np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)

    @cached_property
    def selected(self) -> AttributedOps:
        """The operations that the filters leave."""
        if self.kept is None:
            return self.every
        return self.every.take(self.kept)


@dataclass(frozen=True)
class PhaseTimes:
    """GPU time of one rank: durations of operations, cut to the windows; integers, exact.

    Attributes:
        phases: Those of the map in its order, then unmapped, no_range and no_api.
        gpu_ns: Shape (phases,); adds up to the time of all operations.
        ops_n: Shape (phases,), operations that start in the windows.
    """

    phases: tuple[str, ...]
    gpu_ns: IntArray
    ops_n: IntArray


def phase_times(trace: RankTrace, options: Mapping[str, Any]) -> PhaseTimes:
    """Add up the GPU time of one rank.

    Args:
        options: phase_map (None for the built-in ones) and graph_ranges; absent ones are None.
    """
    ops, phases = ranged_ops(trace, options), phase_map(options.get("phase_map"))
    names = phase_names(phases)
    phase = ops.chosen(phase_codes(ops, phases))
    clipped_ns, inside = selected_times(trace, ops)
    return PhaseTimes(
        phases=names,
        gpu_ns=exact_sums(phase, clipped_ns, len(names)),
        ops_n=np.bincount(phase[inside], minlength=len(names)).astype(np.int64),
    )


def ranged_ops(trace: RankTrace, options: Mapping[str, Any]) -> RangedOps:
    """Find the range of every operation of a rank."""
    events = trace.tables.get("nvtx_events")
    tree = NvtxTree.of(events, trace.last_end_ns)
    tables = {name: trace.unfiltered[name] for name in OP_TABLES if name in trace.unfiltered}
    every = attribute(
        tables,
        trace.tables.get("api_calls"),
        tree,
        NodeCaptures.of([trace.tables.get(name) for name in GRAPH_NODE_TABLES]),
        capture_first=options.get("graph_ranges") == "capture",
    )
    kept = None
    if not trace.complete:
        kept = np.concatenate([trace.kept[name] for name in tables])
    names = RangeNames.of(events, tree.event, trace.strings)
    return RangedOps(tables, every, kept, tree, names)


def selected_times(trace: RankTrace, ops: RangedOps) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return the time of each selected operation in the windows, and whether it starts in one."""
    line = Table({"start_ns": ops.selected.start_ns, "end_ns": ops.selected.end_ns})
    return trace.clipped_ns(line), trace.starts_inside(line)


def phase_names(phases: PhaseMap) -> tuple[str, ...]:
    """Return what the codes of `phase_codes` stand for."""
    return (*phases.phases, UNMAPPED, NO_RANGE_PHASE, NO_API_PHASE)


def phase_codes(ops: RangedOps, phases: PhaseMap) -> npt.NDArray[np.int32]:
    """Return the phase of each operation, whatever the filters leave: codes of `phase_names`.

    It is that of the nearest range around the launch that has one.
    """
    piece_phase = ops.names.mapped(phases.phase_of)
    return codes_of_owners(ops, piece_phase, owners(ops, piece_phase >= 0), len(phases.phases))


def codes_of_owners(
    ops: RangedOps, piece_phase: IntArray, owner: npt.NDArray[np.int32], phases_n: int
) -> npt.NDArray[np.int32]:
    """Return the phase of each operation, of any filter.

    Args:
        piece_phase: Shape (pieces,), the phase of each range's own name, -1 for none.
        owner: Shape (operations,), the nearest range around with a phase, or -1.
    """
    codes = gathered(np.append(piece_phase, phases_n).astype(np.int32), owner)
    codes[ops.every.method == NO_RANGE] = phases_n + 1
    codes[ops.every.method == NO_API] = phases_n + 2
    return codes


def same_phase_roots(tree: NvtxTree, piece_phase: IntArray) -> IntArray:
    """Return for each piece with a phase the outermost one around it of which all have that.

    Args:
        piece_phase: Shape (pieces,), the phase of each range's own name, -1 for none.
    """
    around = tree.around(piece_phase >= 0)
    rows = np.flatnonzero((piece_phase >= 0) & (around >= 0))
    rows = rows[piece_phase[rows] == piece_phase[around[rows]]]
    root = np.arange(len(tree))
    root[rows] = around[rows]
    # Each round goes twice as far up.
    while ((further := root[root]) != root).any():
        root = further
    return root


def owners(ops: RangedOps, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return the nearest chosen range around each operation, whatever the filters leave, or -1.

    Args:
        chosen: Shape (pieces,).
    """
    every, tree = ops.every, ops.tree
    if chosen.all():
        return every.piece
    owner = gathered(np.append(tree.nearest(chosen), -1).astype(np.int32), every.piece)
    # Start/end ranges nest in nothing: another one that is open may be chosen.
    free = np.flatnonzero((every.piece >= tree.pushed_n) & (owner < 0))
    if free.size:
        thread = np.full(free.shape, tree.free, dtype=np.int64)
        owner[free] = tree.innermost(thread, every.evidence_ns(free), chosen)
    return owner


def find_phase(trace: RankTrace, options: Mapping[str, Any]) -> FoundPhase:
    """Return one phase of a rank, before any filter.

    Args:
        options: phase, in upper or lower case; phase_map, graph_ranges as for `phase_times`.
    """
    ops, phases = ranged_ops(trace, options), phase_map(options.get("phase_map"))
    piece_phase = ops.names.mapped(phases.phase_of)
    owner = owners(ops, piece_phase >= 0)
    codes = codes_of_owners(ops, piece_phase, owner, len(phases.phases))
    names = [phase.casefold() for phase in phases.phases]
    text = str(options["phase"]).casefold()
    wanted = names.index(text) if text in names else len(names) + len("none")
    launched = codes == wanted
    there_n = np.bincount(codes[codes < len(names)], minlength=len(names))
    return FoundPhase(
        launched=launched,
        windows_ns=_spans(ops, same_phase_roots(ops.tree, piece_phase), owner, launched),
        holds=lambda at_ns, tid: _phase_at(ops.tree, piece_phase, at_ns, tid) == wanted,
        there=tuple(phases.phases[code] for code in np.flatnonzero(there_n).tolist()),
    )


def _spans(
    ops: RangedOps, roots: IntArray, owner: npt.NDArray[np.int32], launched: npt.NDArray[np.bool_]
) -> IntArray:
    """Return the union of the spans on the GPU of the outermost ranges of the phase."""
    rows = np.flatnonzero(launched)
    used, code = distinct_codes(roots[owner[rows]])
    first = np.full(used.size, np.iinfo(np.int64).max, dtype=np.int64)
    last = np.full(used.size, np.iinfo(np.int64).min, dtype=np.int64)
    np.minimum.at(first, code, ops.every.start_ns[rows])
    np.maximum.at(last, code, ops.every.end_ns[rows])
    return union_intervals(first, last)


def _phase_at(tree: NvtxTree, piece_phase: IntArray, at_ns: IntArray, tid: IntArray) -> IntArray:
    """Return the phase of calls on the host, as that of launches; -1 for none."""
    tids, code = distinct_codes(tid)
    piece = tree.innermost(tree.thread_codes(tids)[code], at_ns)
    owner = np.append(tree.nearest(piece_phase >= 0), -1)[piece]
    free = np.flatnonzero(piece < 0)
    if free.size:
        thread = np.full(free.shape, tree.free, dtype=np.int64)
        owner[free] = tree.innermost(thread, at_ns[free], piece_phase >= 0)
    return np.append(piece_phase, -1)[owner]
