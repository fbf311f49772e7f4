"""Makes paths small enough to travel: what nobody cuts is added up within its segment.

A walk of the job is cut where a step of the job ends, between the end of a step on this rank and
the end of the next collective; and paths of two steps are listed. Segments there keep their
stretches. The others keep one for each thing that they charge, so that all sums stay exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.analyses.critical_path.path.blocks import Block, Blocks
from nsys_llm.analyses.critical_path.path.ops import Bools
from nsys_llm.analyses.critical_path.path.outline import Outline
from nsys_llm.analyses.critical_path.path.stretches import OPEN_NS
from nsys_llm.numeric.intervals import IntArray, union_intervals

#: Stretches that a rank sends as they are; 13 bytes each. Ours.
MOST_WHOLE: Final = 6_000


def kept_whole(outline: Outline, blocks: Blocks, cuts: IntArray, shown: IntArray) -> Bools:
    """Return which segments of a rank keep their stretches: all of them, if they are few.

    Args:
        outline: The segments.
        blocks: Their stretches.
        cuts: Shape (k, 2), in any order: spans of time in which walks may end.
        shown: Shape (k, 2), in any order: spans whose paths are listed, the most important last;
            they are added up too where they have too many stretches.
    """
    every = np.ones(len(outline), dtype=bool)
    if _few(blocks, every):
        return every
    whole = _within(outline, cuts)
    for span in shown[::-1]:
        more = whole | _within(outline, span[None, :])
        if _few(blocks, more):
            whole = more
    return whole


def _few(blocks: Blocks, chosen: Bools) -> bool:
    """Return whether segments have so few stretches that all of these travel."""
    # A node has two at least; of many, these need not be made.
    if 2 * int(blocks.nodes_n[chosen].sum()) > MOST_WHOLE:
        return False
    return blocks.stretches(np.flatnonzero(chosen)).begin_ns.size <= MOST_WHOLE


def _within(outline: Outline, spans: IntArray) -> Bools:
    """Return which segments have time in any of some spans."""
    spans = union_intervals(spans[:, 0], spans[:, 1])
    # What ends a path has no begin; where it begins to be that is enough.
    ended = outline.bottom_ns == OPEN_NS
    bottom = np.where(ended, outline.top_ns, outline.bottom_ns)
    low = np.searchsorted(spans[:, 1], bottom, side="right")
    high = np.searchsorted(spans[:, 0], outline.top_ns, side="left")
    return np.asarray((high > low) | ended)


def added_up(block: Block, whole: Bools) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows of a block that stand for sums, their begins, and how many each segment has."""
    parts, first = block.parts, block.parts.first
    sizes = np.diff(first)
    segment = np.repeat(np.arange(sizes.size), sizes)
    whole = whole[block.low : block.low + sizes.size]
    if whole.all():
        return np.arange(segment.size), parts.begin_ns, sizes
    nth = np.arange(segment.size) - first[segment]
    charges_n = len(block.charges)
    what = np.where(whole[segment], nth, parts.doubtful * charges_n + block.code)
    # A walk may enter below the top, where an operation began inside of its call: what the first
    # stretch is charged to stays first, since that is what the walk leaves out.
    what = np.where(what == what[first[:-1]][segment], 0, what + 1)
    key = segment * (max(int(sizes.max()), 2 * charges_n) + 1) + what
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    sums = np.add.reduceat((parts.ends_ns() - parts.begin_ns)[order], np.flatnonzero(new))
    chosen = order[new]
    counts = np.bincount(segment[chosen], minlength=sizes.size).astype(np.int64)
    spent = np.cumsum(sums)
    before = np.concatenate(([0], spent))[np.cumsum(counts) - counts]
    begins = parts.top_ns[segment[chosen]] - (spent - before[segment[chosen]])
    return chosen, begins, counts
