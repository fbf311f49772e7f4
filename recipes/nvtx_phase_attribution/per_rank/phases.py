"""Phases of one rank: their sums, their single ranges, their kernels and their communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.nvtx.attributed_ops import GRAPH_CAPTURE
from nsys_llm.analyses.nvtx.nvtx_tree import NvtxTree
from nsys_llm.numeric.distributions import HistogramByName, ValueCounts
from nsys_llm.numeric.grouping import distinct_codes, exact_sums
from nsys_llm.numeric.intervals import IntArray, covered_ns, intersect_intervals, union_intervals
from nsys_llm.numeric.longest import longest_of_each
from nsys_llm.taxonomy.communication import operation_of
from nsys_llm.trace.rank_trace import RankTrace

from .rank_ops import KERNEL_TABLE, RankOps
from .sums_by_key import Key, SumsByKey

#: Ranges of a phase up to which a rank keeps the GPU time of each for the percentiles: 0.5 MB.
_COUNTED_INSTANCES: Final = 20_000

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PhaseSums:
    """One rank.

    Attributes:
        phases: By phase, see the table `phases`; those of the map first, also without GPU time.
        kernels: By phase, kind of operation and name, see the table `phase_kernels`; the demangled
            name of a kernel is the last part of its key.
        collectives: By phase and operation, see the table `phase_collectives`.
    """

    phases: SumsByKey
    kernels: SumsByKey
    collectives: SumsByKey


@dataclass(frozen=True)
class InstanceRow:
    """One range of a phase; see the table `phase_instances`. `step` is -1 for none."""

    phase: str
    name: str
    step: int
    start_ns: int
    end_ns: int
    ops_n: int
    gpu_ns: int
    gpu_start_ns: int
    gpu_end_ns: int


@dataclass(frozen=True)
class PhaseInstances:
    """The ranges of the phases of one rank.

    Attributes:
        rows: Those of each phase with most GPU time.
        counts: How often a range of a phase had which GPU time.
        uncounted: Phases with too many ranges to count.
    """

    rows: tuple[InstanceRow, ...]
    counts: HistogramByName
    uncounted: frozenset[str]


def map_phases(trace: RankTrace, ops: RankOps) -> PhaseSums:
    """Add up the phases of one rank.

    Args:
        trace: Its rows.
        ops: Its operations.
    """
    names = ops.phase_names
    sums = ops.sums(ops.phase.astype(np.int64), len(names))
    sums |= _ranges_of_phases(ops)
    return PhaseSums(
        phases=SumsByKey.of([(name,) for name in names], sums),
        kernels=_kernels(ops),
        collectives=_collectives(trace, ops),
    )


def _ranges_of_phases(ops: RankOps) -> dict[str, IntArray]:
    """Return host time and number of ranges by phase."""
    tree = ops.ranged.tree
    counted = ops.counted_pieces(ops.ranged.selected.piece)
    piece_phase = ops.own_phase
    phases_n, unmapped = len(ops.phase_names), len(ops.phases.phases)
    nearest = tree.nearest(piece_phase >= 0)
    of_piece = np.append(piece_phase, unmapped)[nearest]
    # The host time of a range that counts is whole, with what is inside and counts not.
    outermost = tree.nearest(tree.parent < 0)
    whole = _ranges_with(tree, counted)[np.where(nearest < 0, outermost, nearest)]
    wall_ns = exact_sums(of_piece[whole], tree.self_wall_ns()[whole], phases_n)
    roots = np.flatnonzero((ops.roots == np.arange(len(tree))) & (piece_phase >= 0) & counted)
    # A range in pieces is one range.
    _, first = np.unique(tree.event[roots], return_index=True)
    instances_n = np.bincount(piece_phase[roots[first]], minlength=phases_n)
    return {"wall_ns": wall_ns, "instances_n": instances_n.astype(np.int64)}


def _ranges_with(tree: NvtxTree, chosen: _Mask) -> _Mask:
    """Return all pieces of the ranges of which any piece is chosen; shape (pieces,)."""
    events = np.bincount(tree.event[chosen], minlength=int(tree.event.max(initial=-1)) + 1)
    return np.asarray(events[tree.event] > 0)


def map_instances(ops: RankOps, most: int) -> PhaseInstances:
    """Look at the single ranges of each phase.

    Args:
        ops: The operations.
        most: Ranges of a phase that are listed one by one.
    """
    tree = ops.ranged.tree
    # A range that captured a graph holds all of its runs: that is no length of the range.
    captured = ops.ranged.selected.method == GRAPH_CAPTURE
    rows = np.flatnonzero((ops.phase_owner >= 0) & ~captured)
    event, instance = distinct_codes(tree.event[ops.roots[ops.phase_owner[rows]]])
    phase = np.zeros(event.size, dtype=np.int64)
    phase[instance] = ops.phase[rows]
    gpu_ns = exact_sums(instance, ops.clipped_ns[rows], event.size)
    names, phases_n = ops.phase_names, len(ops.phase_names)
    many = np.bincount(phase, minlength=phases_n) > _COUNTED_INSTANCES
    few = ~many[phase]
    order = np.argsort(np.array(names), kind="stable")
    place = np.empty(phases_n, dtype=np.int64)
    place[order] = np.arange(phases_n)
    counts = ValueCounts.from_values(place[phase[few]], gpu_ns[few])
    chosen = longest_of_each(phase, gpu_ns, (event,), most)
    return PhaseInstances(
        rows=_instance_rows(ops, rows, instance, event, chosen),
        counts=HistogramByName(tuple(sorted(names)), counts),
        uncounted=frozenset(names[code] for code in np.flatnonzero(many).tolist()),
    )


def _instance_rows(
    ops: RankOps, rows: IntArray, instance: IntArray, event: IntArray, chosen: IntArray
) -> tuple[InstanceRow, ...]:
    tree, attributed = ops.ranged.tree, ops.ranged.selected
    first = np.full(int(tree.event.max(initial=-1)) + 1, -1, dtype=np.int64)
    first[tree.event[::-1]] = np.arange(len(tree))[::-1]
    last_end = np.zeros(first.size, dtype=np.int64)
    np.maximum.at(last_end, tree.event, tree.end_ns)
    among = np.isin(instance, chosen)
    rows, instance = rows[among], instance[among]
    instance_rows = []
    for code in chosen.tolist():
        selected = rows[instance == code]
        piece = int(first[event[code]])
        steps = ops.step[selected]
        instance_rows.append(
            InstanceRow(
                phase=ops.phase_names[int(ops.phase[selected[0]])],
                name=ops.ranged.raw_name(piece),
                step=int(steps[0]),
                start_ns=int(tree.start_ns[piece]),
                end_ns=int(last_end[event[code]]),
                ops_n=int(ops.inside[selected].sum()),
                gpu_ns=int(ops.clipped_ns[selected].sum()),
                gpu_start_ns=int(attributed.start_ns[selected].min()),
                gpu_end_ns=int(attributed.end_ns[selected].max()),
            )
        )
    return tuple(instance_rows)


def _kernels(ops: RankOps) -> SumsByKey:
    names_n = len(ops.names)
    used, code = distinct_codes(ops.pairs(ops.name, names_n))
    keys: list[Key] = [
        (ops.phase_names[phase], ops.kinds[name], ops.names[name], ops.full_names[name])
        for phase, name in (divmod(value, names_n) for value in used.tolist())
    ]
    counted = code[ops.inside]
    return SumsByKey.of(
        keys,
        {
            "launches_n": np.bincount(counted, minlength=used.size).astype(np.int64),
            "total_ns": exact_sums(code, ops.clipped_ns, used.size),
            "exclusive_ns": exact_sums(code, ops.exclusive_ns, used.size),
            "whole_ns": exact_sums(counted, _whole_ns(ops)[ops.inside], used.size),
        },
    )


def _whole_ns(ops: RankOps) -> IntArray:
    attributed = ops.ranged.selected
    return np.asarray(attributed.end_ns - attributed.start_ns)


def _collectives(trace: RankTrace, ops: RankOps) -> SumsByKey:
    full_names = ops.full_names
    rows = np.flatnonzero(ops.talks[ops.name])
    if not rows.size:
        return SumsByKey()
    used, code = distinct_codes(ops.pairs(ops.name, len(full_names))[rows])
    keys: list[Key] = [
        (ops.phase_names[phase], operation_of(full_names[name]))
        for phase, name in (divmod(value, len(full_names)) for value in used.tolist())
    ]
    inside = ops.inside[rows]
    return SumsByKey.of(
        keys,
        {
            "launches_n": np.bincount(code[inside], minlength=used.size).astype(np.int64),
            "total_ns": exact_sums(code, ops.clipped_ns[rows], used.size),
            "exposed_ns": exact_sums(code, _exposed_ns(trace, ops, rows), used.size),
        },
    )


def _exposed_ns(trace: RankTrace, ops: RankOps, rows: IntArray) -> IntArray:
    """Return the time of some operations, in the windows, in which no kernel computed beside."""
    ranged, attributed = ops.ranged, ops.ranged.selected
    # What a filter leaves out ran all the same.
    kernel = ranged.table_codes() == list(ranged.tables).index(KERNEL_TABLE)
    computes = ~ops.talks[ops.every_name] & kernel
    device = ranged.column("device_id")
    own_device = ranged.chosen(device)[rows]
    exposed = ops.clipped_ns[rows].copy()
    for device_id in np.unique(own_device).tolist():
        selected = np.flatnonzero(own_device == device_id)
        other = computes & (device == device_id)
        spans = union_intervals(ranged.every.start_ns[other], ranged.every.end_ns[other])
        if trace.windows_ns is not None:
            spans = intersect_intervals(spans, trace.windows_ns)
        at = rows[selected]
        hidden = covered_ns(attributed.end_ns[at], spans) - covered_ns(
            attributed.start_ns[at], spans
        )
        exposed[selected] -= hidden
    return exposed
