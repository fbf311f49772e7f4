"""From the first to the last operation launched in each range, on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.attributed_ops import GRAPH_CAPTURE
from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, union_intervals
from nsys_llm.trace.rank_trace import RankTrace

_NEVER: Final = int(np.iinfo(np.int64).max)

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Shown:
    """The ranges that tables of ranges hold; arrays of shape (pieces,).

    Attributes:
        pieces: Whether a piece holds an operation that the filters leave.
        home: Where each range counts: its first such piece; -1 for a range without one.
        first: Whether a piece is that one.
    """

    pieces: _Mask
    home: IntArray
    first: _Mask

    @classmethod
    def of(cls, tree: NvtxTree, pieces: _Mask) -> Shown:
        """Look at the pieces that the filters leave."""
        rows = np.flatnonzero(pieces)[::-1]
        of_event = np.full(int(tree.event.max(initial=-1)) + 1, -1, dtype=np.int64)
        of_event[tree.event[rows]] = rows  # the last assignment, the first piece, stays
        home = of_event[tree.event]
        return cls(pieces, home, home == np.arange(len(tree)))


def range_spans(
    trace: RankTrace, ops: RankOps, shown: Shown
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the span on the GPU of each range that is shown and has work there.

    What a range captured into a graph is left out: it runs whenever the graph is launched.

    Returns:
        Three arrays of shape (ranges,): the piece at which each counts, see `Shown`; the time from
        its first operation to the last, cut to the windows; and of that, the time in which nothing
        ran on any device of the rank.
    """
    tree, attributed = ops.ranged.tree, ops.ranged.selected
    owner = attributed.piece
    first_ns = np.full(len(tree), _NEVER, dtype=np.int64)
    last_ns = np.full(len(tree), -1, dtype=np.int64)
    counts = attributed.method != GRAPH_CAPTURE
    for block in blocks(owner.size):
        pushed = counts[block] & (owner[block] >= 0) & (owner[block] < tree.pushed_n)
        rows = block.start + np.flatnonzero(pushed)
        np.minimum.at(first_ns, owner[rows], attributed.start_ns[rows])
        np.maximum.at(last_ns, owner[rows], attributed.end_ns[rows])
    first_ns = tree.over_inner(first_ns, np.minimum)
    last_ns = tree.over_inner(last_ns, np.maximum)
    _free_spans(ops, np.flatnonzero(counts & (owner >= tree.pushed_n)), first_ns, last_ns)
    # Any piece of a range holds for the range.
    rest = np.flatnonzero(shown.pieces & ~shown.first)
    home = shown.home[rest]
    np.minimum.at(first_ns, home, first_ns[rest])
    np.maximum.at(last_ns, home, last_ns[rest])
    piece = np.flatnonzero(shown.first & (first_ns < _NEVER))
    return piece, *gpu_spans(trace, first_ns[piece], last_ns[piece])


def gpu_spans(trace: RankTrace, first_ns: IntArray, last_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the length of spans, cut to the windows, and the time in them in which nothing ran."""
    busy = trace.gpu_busy
    if trace.windows_ns is not None and len(trace.windows_ns):
        low, high = int(trace.windows_ns[0, 0]), int(trace.windows_ns[-1, 1])
        first_ns, last_ns = np.clip(first_ns, low, high), np.clip(last_ns, low, high)
    span_ns = last_ns - first_ns
    return span_ns, span_ns - clipped_lengths(first_ns, last_ns, busy)


def free_inclusive(ops: RankOps, label: IntArray, labels_n: int) -> dict[str, IntArray]:
    """Return what lies in start/end ranges by label, each operation once for a label.

    Operations that count to push/pop ranges are in no start/end range.

    Args:
        label: Shape (pieces,), codes.

    Returns:
        ops_n, kernels_n and inclusive_ns of shape (labels,); 0 for labels of other ranges.
    """
    tree = ops.ranged.tree
    rows, _, _ = ops.held_by_free(np.flatnonzero(ops.ranged.selected.piece >= tree.pushed_n))
    at_ns, inside = ops.ranged.selected.evidence_ns(rows), ops.inside[rows]
    kernel = inside & ops.is_kernel[rows]
    columns = {"ops_n": inside, "kernels_n": kernel, "inclusive_ns": ops.clipped_ns[rows]}
    until = {
        name: np.concatenate(([0], np.cumsum(values.astype(np.int64))))
        for name, values in columns.items()
    }
    by_label = {name: np.zeros(labels_n, dtype=np.int64) for name in columns}
    free = np.arange(tree.pushed_n, len(tree))
    for code in np.unique(label[free]).tolist():
        selected = free[label[free] == code]
        spans = union_intervals(tree.start_ns[selected], tree.end_ns[selected])
        low, high = (np.searchsorted(at_ns, edge, side="left") for edge in spans.T)
        for name, sums in until.items():
            by_label[name][code] = int((sums[high] - sums[low]).sum())
    return by_label


def _free_spans(ops: RankOps, rows: IntArray, first_ns: IntArray, last_ns: IntArray) -> None:
    """Set the first and last instant of start/end ranges, which hold what any of them holds."""
    tree, attributed = ops.ranged.tree, ops.ranged.selected
    if not rows.size:
        return
    rows, low, high = ops.held_by_free(rows)
    free = np.arange(tree.pushed_n, len(tree))
    free, low, high = (values[high > low] for values in (free, low, high))
    # Every other slice of reduceat is one range's operations.
    bounds = np.column_stack((low, high)).ravel()
    starts, ends = (
        np.append(attributed.start_ns[rows], _NEVER),
        np.append(attributed.end_ns[rows], -1),
    )
    first_ns[free] = np.minimum.reduceat(starts, bounds)[::2]
    last_ns[free] = np.maximum.reduceat(ends, bounds)[::2]
