"""Walks over the paths of one rank, and what they charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.path.classes import CLASS_NAMES, COMMUNICATION, UNKNOWN
from nsys_llm.analyses.path.forest import PathForest
from nsys_llm.analyses.path.ops import Bools
from nsys_llm.analyses.path.positions import Positions, crossed
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
    after, last = forest.next.data, forest.first[1:] - 1
    bottom_ns = forest.begin_ns[last]
    bottom = bottom_ns.data
    segments: list[int] = []
    counts: list[int] = []
    seen = [-1] * len(forest)
    for place, walk in enumerate(walks):
        segment, until_ns, before_n = walk.segment, walk.until_ns, len(segments)
        # Broken rows may make a circle; no path visits anything twice.
        while segment >= 0 and walk.from_ns > until_ns and seen[segment] != place:
            seen[segment] = place
            segments.append(segment)
            if bottom[segment] <= until_ns:
                break
            segment = after[segment]
        counts.append(len(segments) - before_n)
    visited, counts_n = np.array(segments, dtype=np.int64), np.array(counts, dtype=np.int64)
    from_ns = np.array([walk.from_ns for walk in walks], dtype=np.int64)
    low_ns = np.array([walk.until_ns for walk in walks], dtype=np.int64)
    places = np.arange(len(walks))
    place_of = np.repeat(places, counts_n)
    high_ns = Positions.of(
        places, counts_n, from_ns, from_ns, forest.top_ns[visited], bottom_ns[visited]
    ).high_ns
    inferred = forest.doubtful[last][visited]
    before = crossed(inferred.astype(np.int64), place_of) > inferred
    return Visits(place_of, visited, high_ns, low_ns[place_of], before)


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
