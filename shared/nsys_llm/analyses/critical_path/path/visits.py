"""Walks over the paths of one rank, and what they charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.critical_path.path.blocks import Block
from nsys_llm.analyses.critical_path.path.classes import CLASS_NAMES, COMMUNICATION, UNKNOWN
from nsys_llm.analyses.critical_path.path.ops import Bools
from nsys_llm.analyses.critical_path.path.outline import Outline
from nsys_llm.analyses.critical_path.path.positions import Positions, crossed
from nsys_llm.numeric.grouping import runs
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


def follow(outline: Outline, walks: Sequence[Walk]) -> Visits:
    """Follow walks inside one rank, through communication too."""
    after, bottom = outline.segments.next.data, outline.bottom_ns.data
    segments: list[int] = []
    counts: list[int] = []
    seen = [-1] * len(outline)
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
        places, counts_n, from_ns, from_ns, outline.top_ns[visited], outline.bottom_ns[visited]
    ).high_ns
    inferred = outline.inferred[visited]
    before = crossed(inferred.astype(np.int64), place_of) > inferred
    return Visits(place_of, visited, high_ns, low_ns[place_of], before)


class Charging:
    """Adds up what walks charge to each class, block by block; what nothing explains is unknown."""

    def __init__(self, outline: Outline, walks: Sequence[Walk]) -> None:
        """Follow walks."""
        self._member, self._visits = outline.member, follow(outline, walks)
        self._order = np.argsort(self._visits.segment, kind="stable")
        self._segment = self._visits.segment[self._order]
        self._wall_ns = np.array([walk.from_ns - walk.until_ns for walk in walks], dtype=np.int64)
        self._sums = np.zeros((2, len(walks) * len(CLASS_NAMES)), dtype=np.int64)
        self._passages: list[IntArray] = []

    def add(self, block: Block) -> None:
        """Add the stretches of some segments."""
        within = block.low, block.low + block.parts.top_ns.size
        low, high = np.searchsorted(self._segment, within).tolist()
        sizes = np.diff(block.parts.first)[self._segment[low:high] - block.low]
        for first, last in runs(sizes, _BLOCK):  # walks may visit the same segments
            self._add(block, self._order[low + first : low + last])

    def _add(self, block: Block, visits: IntArray) -> None:
        """Add some visits, all of the same block."""
        of, classes_n = self._visits, len(CLASS_NAMES)
        segment = of.segment[visits] - block.low
        first = block.parts.first[segment]
        sizes = block.parts.first[segment + 1] - first
        owner = np.repeat(np.arange(sizes.size), sizes)
        at = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes - first, sizes)
        begin, end = _clipped(block, at, of.low_ns[visits][owner], of.high_ns[visits][owner])
        kinds = np.array([charge.kind for charge in block.charges], dtype=np.int64)
        kind = kinds[block.code[at]]
        doubtful = of.doubtful[visits][owner] | block.parts.doubtful[at]
        code = of.walk[visits][owner] * classes_n + kind
        _add(self._sums[0], code, end - begin)
        _add(self._sums[1], code[~doubtful], (end - begin)[~doubtful])
        inside = np.flatnonzero((kind == COMMUNICATION) & (end > begin))
        visit = visits[owner[inside]]
        member = self._member[of.segment[visit]]
        columns = visit, of.walk[visit], member, begin[inside], end[inside], doubtful[inside]
        self._passages.append(np.column_stack(columns))

    def total(self) -> tuple[Charges, Passages]:
        """Return the sums, and the time in communication in the order in which walks went."""
        time_ns, certain_ns = self._sums.reshape(2, self._wall_ns.size, len(CLASS_NAMES))
        time_ns[:, UNKNOWN] += self._wall_ns - time_ns.sum(axis=1)
        columns = np.concatenate([np.empty((0, 6), dtype=np.int64), *self._passages])
        columns = columns[np.argsort(columns[:, 0], kind="stable")]
        walk, member, start, end, doubt = columns[:, 1:].T
        return Charges(time_ns, certain_ns), Passages(walk, member, start, end, doubt.astype(bool))


def _clipped(
    block: Block, at: IntArray, low_ns: IntArray, high_ns: IntArray
) -> tuple[IntArray, IntArray]:
    """Return begin and end of stretches inside the walks that visit them, shape (k,) as all."""
    high_ns = np.maximum(high_ns, low_ns)
    begin = np.clip(block.parts.begin_ns[at], low_ns, high_ns)
    return begin, np.clip(block.parts.ends_ns()[at], begin, high_ns)


def _add(sums: IntArray, code: IntArray, ns: IntArray) -> None:
    """Add integers up by code; doubles hold them exactly, since a capture is below 2^53 ns."""
    if code.size:
        low, high = int(code.min()), int(code.max()) + 1
        sums[low:high] += np.bincount(code - low, weights=ns).astype(np.int64)
