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
    sizes = np.diff(forest.first)
    segment = np.repeat(np.arange(sizes.size), sizes)
    ends = np.empty_like(forest.begin_ns)
    ends[1:] = forest.begin_ns[:-1]
    ends[forest.first[:-1]] = forest.top_ns
    ns = ends - forest.begin_ns
    nth = np.arange(segment.size) - forest.first[segment]
    charges_n = len(forest.charges)
    what = np.where(whole[segment], nth, forest.doubtful * charges_n + forest.code)
    key = segment * max(int(sizes.max()), 2 * charges_n) + what
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    sums = np.add.reduceat(ns[order], np.flatnonzero(new))
    rows = order[new]
    first = np.searchsorted(segment[rows], np.arange(sizes.size + 1))
    spent = np.cumsum(sums)
    before = np.concatenate(([0], spent))[first[segment[rows]]]
    return replace(
        forest,
        begin_ns=forest.top_ns[segment[rows]] - (spent - before),
        code=forest.code[rows],
        doubtful=forest.doubtful[rows],
        first=first,
    )
