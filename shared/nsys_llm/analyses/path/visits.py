"""Walks over the paths of one rank, and what they charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.path.classes import CLASS_NAMES, COMMUNICATION, UNKNOWN
from nsys_llm.analyses.path.forest import PathForest
from nsys_llm.analyses.path.ops import Bools
from nsys_llm.analyses.path.stretches import OPEN_NS
from nsys_llm.numeric.intervals import IntArray

#: So many stretches at a time stay small beside the trace.
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Walk:
    """Where a walk begins and ends: the segment that its first node begins, and two instants."""

    segment: int
    from_ns: int
    until_ns: int


@dataclass(frozen=True)
class Visits:
    """The segments that walks went through; arrays of shape (visits,).

    Attributes:
        walk: Position of the walk.
        segment: The segment.
        high_ns: Where the walk entered it, never later than its top.
        low_ns: Where the walk ends, for all of its visits.
        doubtful: Whether an edge before it was inferred.
    """

    walk: IntArray
    segment: IntArray
    high_ns: IntArray
    low_ns: IntArray
    doubtful: Bools


@dataclass(frozen=True)
class Passages:
    """Time of walks in communication operations; arrays of shape (passages,).

    Attributes:
        walk: Position of the walk.
        member: The operation, see `PathForest`.
        start_ns: Begin of the time in it.
        end_ns: Its end.
        doubtful: Whether an edge before it was inferred.
    """

    walk: IntArray
    member: IntArray
    start_ns: IntArray
    end_ns: IntArray
    doubtful: Bools


@dataclass(frozen=True)
class Charges:
    """What walks charge; arrays of shape (walks, classes), ns.

    Attributes:
        time_ns: All of it; communication is not yet divided into waiting and transfer.
        certain_ns: The part to which no inferred edge led.
    """

    time_ns: IntArray
    certain_ns: IntArray


def follow(forest: PathForest, walks: Sequence[Walk]) -> Visits:
    """Follow walks inside one rank, through communication too."""
    top, after = forest.top_ns.data, forest.next.data
    bottom, crosses = _bottoms(forest)
    segments: list[int] = []
    highs: list[int] = []
    counts: list[int] = []
    for walk in walks:
        segment, at_ns, until_ns = walk.segment, walk.from_ns, walk.until_ns
        before_n = len(segments)
        seen: set[int] = set()
        # Broken rows may make a circle; no path visits anything twice.
        while segment >= 0 and at_ns > until_ns and segment not in seen:
            seen.add(segment)
            if top[segment] < at_ns:
                at_ns = top[segment]
            segments.append(segment)
            highs.append(at_ns)
            if bottom[segment] < at_ns:
                at_ns = bottom[segment]
            segment = after[segment]
        counts.append(len(segments) - before_n)
    visited = np.array(segments, dtype=np.int64)
    place = np.repeat(np.arange(len(walks)), counts)
    low_ns = np.array([walk.until_ns for walk in walks], dtype=np.int64)[place]
    doubts = _crossed(crosses[visited], np.array(counts, dtype=np.int64))
    return Visits(place, visited, np.array(highs, dtype=np.int64), low_ns, doubts)


def _crossed(inferred: Bools, counts: IntArray) -> Bools:
    """Return before which visits their walk has crossed an inferred edge; `counts` are by walk."""
    crossed: IntArray = np.cumsum(inferred) - inferred
    first = np.cumsum(counts) - counts
    filled = counts > 0
    return np.asarray(crossed > np.repeat(crossed[first[filled]], counts[filled]))


def _bottoms(forest: PathForest) -> tuple[memoryview, Bools]:
    """Return where each segment ends, and whether it has an inferred edge."""
    last = forest.first[1:] - 1
    return forest.begin_ns[last].data, forest.doubtful[last]


def charge(forest: PathForest, visits: Visits, walks: Sequence[Walk]) -> tuple[Charges, Passages]:
    """Add up what walks charge to each class; what nothing explains is unknown."""
    classes_n = len(CLASS_NAMES)
    kinds = np.array([item.kind for item in forest.charges], dtype=np.int64)
    sums = np.zeros((2, len(walks) * classes_n), dtype=np.int64)
    passages = []
    sizes = np.diff(forest.first)[visits.segment]
    reached = np.cumsum(sizes)
    low = 0
    while low < sizes.size:
        before = int(reached[low - 1]) if low else 0
        high = max(int(np.searchsorted(reached, before + _BLOCK, side="right")), low + 1)
        owner = np.repeat(np.arange(low, high), sizes[low:high])
        at = np.arange(owner.size) - (reached[owner] - sizes[owner] - before)
        at += forest.first[visits.segment[owner]]
        begin, end = _clipped(forest, visits, owner, at)
        kind = kinds[forest.code[at]]
        doubtful = visits.doubtful[owner] | forest.doubtful[at]
        code = visits.walk[owner] * classes_n + kind
        _add(sums[0], code, end - begin)
        _add(sums[1], code[~doubtful], (end - begin)[~doubtful])
        inside = np.flatnonzero((kind == COMMUNICATION) & (end > begin))
        visit = owner[inside]
        passages.append(
            np.column_stack(
                (
                    visits.walk[visit],
                    forest.member[visits.segment[visit]],
                    begin[inside],
                    end[inside],
                    doubtful[inside],
                )
            )
        )
        low = high
    time_ns, certain_ns = sums.reshape(2, len(walks), classes_n)
    wall_ns = np.array([walk.from_ns - walk.until_ns for walk in walks], dtype=np.int64)
    time_ns[:, UNKNOWN] += wall_ns - time_ns.sum(axis=1)
    columns = np.concatenate([np.empty((0, 5), dtype=np.int64), *passages])
    walk, member, start, end, doubt = columns.T
    return Charges(time_ns, certain_ns), Passages(walk, member, start, end, doubt.astype(bool))


def _clipped(
    forest: PathForest, visits: Visits, owner: IntArray, at: IntArray
) -> tuple[IntArray, IntArray]:
    """Return begin and end of stretches inside the walks that visit them."""
    low, high = visits.low_ns[owner], visits.high_ns[owner]
    begin = forest.begin_ns[at]
    end = np.empty_like(begin)
    end[1:] = begin[:-1]
    first = at == forest.first[visits.segment[owner]]
    end[first] = forest.top_ns[visits.segment[owner[first]]]
    begin = np.clip(begin, low, np.maximum(high, low))
    return begin, np.clip(end, begin, np.maximum(high, low))


def _add(sums: IntArray, code: IntArray, ns: IntArray) -> None:
    """Add integers up by code; doubles hold them exactly, since a capture is below 2^53 ns."""
    sums += np.bincount(code, weights=ns, minlength=sums.size).astype(np.int64)


def path_end_ns(begin_ns: int) -> int | None:
    """Return where a stretch begins; None where nothing before it is recorded."""
    return None if begin_ns == OPEN_NS else begin_ns
