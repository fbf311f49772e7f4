"""The work of one phase, for --phase: what was launched in ranges that the phase map puts there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.nvtx.phase_times import (
    RangedOps,
    codes_of_owners,
    owners,
    ranged_ops,
    same_phase_roots,
)
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.taxonomy.phase_maps import phase_map
from nsys_llm.trace.filters import FoundPhase
from nsys_llm.trace.rank_trace import RankTrace


def find_phase(trace: RankTrace, options: Mapping[str, Any]) -> FoundPhase:
    """Return one phase of a rank, before any filter.

    Args:
        options: phase, in upper or lower case; phase_map, graph_ranges as for `phase_times`.
    """
    ops, phases = ranged_ops(trace, options), phase_map(options.get("phase_map"))
    piece_phase = ops.names.phases(phases)
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
    ops: RangedOps,
    roots: IntArray,
    owner: npt.NDArray[np.int32],
    launched: npt.NDArray[np.bool_],
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
