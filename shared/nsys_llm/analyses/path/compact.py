"""Makes paths small enough to travel: what nobody cuts is added up within its segment.

A walk of the job is cut where a step of the job ends, between the end of a step on this rank and
the end of the next collective; and paths of two steps are listed. Segments there keep their
stretches. The others keep one for each thing that they charge, so that all sums stay exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nsys_llm.analyses.path.forest import PathForest
from nsys_llm.analyses.path.ops import Bools
from nsys_llm.analyses.path.stretches import OPEN_NS
from nsys_llm.numeric.intervals import IntArray, union_intervals

#: Stretches that a rank sends as they are; 13 bytes each. Ours.
MOST_WHOLE: Final = 6_000
#: So many stretches at a time stay small beside the trace.
_BLOCK: Final = 1 << 19


def compacted(forest: PathForest, cuts: IntArray, shown: IntArray) -> PathForest:
    """Return the paths of a rank with most segments added up, if they are many.

    Args:
        forest: The paths.
        cuts: Shape (k, 2), in any order: spans of time in which walks may end.
        shown: Shape (k, 2), in any order: spans whose paths are listed, the most important last;
            they are added up too where they have too many stretches.
    """
    if forest.begin_ns.size <= MOST_WHOLE:
        return forest
    whole = _within(forest, cuts)
    sizes = np.diff(forest.first)
    for span in shown[::-1]:
        more = whole | _within(forest, span[None, :])
        if int(sizes[more].sum()) <= max(MOST_WHOLE, int(sizes[whole].sum())):
            whole = more
    return _added_up(forest, whole)


def _within(forest: PathForest, spans: IntArray) -> Bools:
    """Return which segments have time in any of some spans."""
    spans = union_intervals(spans[:, 0], spans[:, 1])
    bottom = forest.begin_ns[forest.first[1:] - 1]
    # What ends a path has no begin; where it begins to be that is enough.
    ended = bottom == OPEN_NS
    bottom = np.where(ended, forest.top_ns, bottom)
    low = np.searchsorted(spans[:, 1], bottom, side="right")
    high = np.searchsorted(spans[:, 0], forest.top_ns, side="left")
    return np.asarray((high > low) | ended)


def _added_up(forest: PathForest, whole: Bools) -> PathForest:
    """Return the paths with all but some segments added up, block by block."""
    parts, sizes = [], [np.zeros(1, dtype=np.int64)]
    low, n = 0, len(forest)
    while low < n:
        high = int(np.searchsorted(forest.first, forest.first[low] + _BLOCK, side="right")) - 1
        high = min(max(high, low + 1), n)
        rows, begin_ns, counts = _block(forest, whole, low, high)
        parts.append((begin_ns, forest.code[rows], forest.doubtful[rows]))
        sizes.append(counts)
        low = high
    begins, codes, doubts = zip(*parts, strict=True)
    return replace(
        forest,
        begin_ns=np.concatenate(begins),
        code=np.concatenate(codes),
        doubtful=np.concatenate(doubts),
        first=np.cumsum(np.concatenate(sizes)),
    )


def _block(
    forest: PathForest, whole: Bools, low: int, high: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows that stand for the sums of some segments, their begins, and how many of each."""
    from_row = int(forest.first[low])
    rows = slice(from_row, int(forest.first[high]))
    first, top_ns = forest.first[low : high + 1] - from_row, forest.top_ns[low:high]
    begin_ns, code, doubtful = forest.begin_ns[rows], forest.code[rows], forest.doubtful[rows]
    sizes = np.diff(first)
    segment = np.repeat(np.arange(sizes.size), sizes)
    ends = np.empty_like(begin_ns)
    ends[1:] = begin_ns[:-1]
    ends[first[:-1]] = top_ns
    nth = np.arange(segment.size) - first[segment]
    charges_n = len(forest.charges)
    what = np.where(whole[low:high][segment], nth, doubtful * charges_n + code)
    key = segment * max(int(sizes.max()), 2 * charges_n) + what
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    sums = np.add.reduceat((ends - begin_ns)[order], np.flatnonzero(new))
    chosen = order[new]
    counts = np.bincount(segment[chosen], minlength=sizes.size).astype(np.int64)
    spent = np.cumsum(sums)
    before = np.concatenate(([0], spent))[np.cumsum(counts) - counts]
    begins = top_ns[segment[chosen]] - (spent - before[segment[chosen]])
    return from_row + chosen, begins, counts
