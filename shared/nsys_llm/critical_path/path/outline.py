"""The segments of all paths of one rank, walks over them, and what these charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.blocks import Block
from nsys_llm.critical_path.path.classes import CLASS_NAMES, COMMUNICATION, LAST_CERTAIN, UNKNOWN
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.critical_path.path.ops import Bools, PathOps
from nsys_llm.critical_path.path.stretches import (
    OPEN_NS,
    Segments,
    bottoms_ns,
    natural_ends,
    segments,
)
from nsys_llm.numeric.enclosing import first_above
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray, covered_in
from nsys_llm.trace.rank_trace import RankTrace

#: Communication operations of a rank at which paths may go on in other ranks, its earliest: as many
#: as are matched, see `nsys_llm.facts.lanes`.
MOST_MEMBERS: Final = 200_000


@dataclass(frozen=True)
class Members:
    """Communication operations at which paths may go on in other ranks, by start; (members,).

    Attributes:
        start_ns: The profile's clock.
        step: The step that launched it; -1 for none.
    """

    segment: IntArray
    start_ns: IntArray
    end_ns: IntArray
    device: IntArray
    step: IntArray


@dataclass(frozen=True)
class Outline:
    """The segments of one rank; arrays of shape (segments,), the profile's clock.

    Attributes:
        top_ns: When the first stretch of each ends.
        bottom_ns: When its last one begins; `OPEN_NS` at the end of a path.
        idle_ns: How much of its time no device of the rank ran anything; 0 where it ends a path.
        member: The communication operation that it is; -1 for none.
    """

    segments: Segments
    top_ns: IntArray
    bottom_ns: IntArray
    inferred: Bools
    idle_ns: IntArray
    member: IntArray
    members: Members

    def __len__(self) -> int:
        return self.top_ns.size

    @classmethod
    def of(
        cls, trace: RankTrace, edges: Edges, tails: IntArray, op_step: Positions
    ) -> tuple[Outline, IntArray]:
        """Return the paths of a rank from the ends of its steps and from its communication.

        Args:
            tails: Shape (k,), the operations that end windows; -1 for none.
            op_step: Shape (operations,), the step that launched each; -1 for none.

        Returns:
            The paths, and shape (k,): the segment that begins with each of the tails, -1 for none.
        """
        ops = edges.ops
        members = member_ops(ops)
        parts = segments(edges, np.concatenate((members, tails[tails >= 0])).tolist())
        top_ns, bottom_ns = natural_ends(edges, parts.top), bottoms_ns(edges, parts)
        segment_of = np.searchsorted(parts.top, members)
        member = np.full(parts.top.size, -1, dtype=np.int64)
        member[segment_of] = np.arange(members.size)
        nodes = np.flatnonzero(edges.edge > LAST_CERTAIN)
        until = np.searchsorted(nodes, parts.top, side="right")
        low_ns = np.where(bottom_ns == OPEN_NS, top_ns, bottom_ns)
        outline = cls(
            segments=parts,
            top_ns=top_ns,
            bottom_ns=bottom_ns,
            inferred=until > np.searchsorted(nodes, parts.bottom, side="left"),
            idle_ns=top_ns - low_ns - covered_in(np.column_stack((low_ns, top_ns)), trace.gpu_busy),
            member=member,
            members=Members(
                segment_of,
                ops.start_ns[members],
                ops.end_ns[members],
                ops.device_ids[ops.stream[members]],
                op_step[members].astype(np.int64),
            ),
        )
        at = np.searchsorted(parts.top, np.maximum(tails, 0))
        return outline, np.where(tails >= 0, at, -1)


def member_ops(ops: PathOps) -> IntArray:
    """Return the operations at which paths may go on in other ranks, by start."""
    members = np.flatnonzero(ops.kind == COMMUNICATION)
    return members[np.argsort(ops.start_ns[members], kind="stable")][:MOST_MEMBERS]


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
        member: The operation, see `PathForest`.
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
    high_ns = WalkPositions.of(
        places, counts_n, from_ns, from_ns, outline.top_ns[visited], outline.bottom_ns[visited]
    ).high_ns
    inferred = outline.inferred[visited]
    before = crossed(inferred.astype(np.int64), place_of) > inferred
    return Visits(place_of, visited, high_ns, low_ns[place_of], before)


class Charging:
    """Adds up what walks charge to each class, block by block; what nothing explains is unknown."""

    def __init__(self, outline: Outline, walks: Sequence[Walk]) -> None:
        self._member, self._visits = outline.member, follow(outline, walks)
        self._order = np.argsort(self._visits.segment, kind="stable")
        self._segment = self._visits.segment[self._order]
        self._wall_ns = np.array([walk.from_ns - walk.until_ns for walk in walks], dtype=np.int64)
        self._sums = np.zeros((2, len(walks) * len(CLASS_NAMES)), dtype=np.int64)
        self._passages: list[IntArray] = []

    def add(self, block: Block) -> None:
        """Add the stretches of some segments."""
        parts, of = block.parts, self._visits
        within = block.low, block.low + parts.top_ns.size
        visits = self._order[slice(*np.searchsorted(self._segment, within).tolist())]
        kind = np.array([charge.kind for charge in block.charges], dtype=np.int64)[block.code]
        self._add_times(block, kind, visits)
        talks = np.diff(_before(kind == COMMUNICATION)[parts.first]) > 0
        visits = visits[talks[of.segment[visits] - block.low]]
        segment = of.segment[visits] - block.low
        first, sizes = parts.first[segment], np.diff(parts.first)[segment]
        at = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - first, sizes)
        visit = np.repeat(visits, sizes)[kind[at] == COMMUNICATION]
        at = at[kind[at] == COMMUNICATION]
        low_ns, high_ns = of.low_ns[visit], np.maximum(of.high_ns[visit], of.low_ns[visit])
        begin = np.clip(parts.begin_ns[at], low_ns, high_ns)
        end = np.clip(parts.ends_ns()[at], begin, high_ns)
        member, doubtful = self._member[of.segment[visit]], of.doubtful[visit] | parts.doubtful[at]
        columns = np.column_stack((visit, of.walk[visit], member, begin, end, doubtful))
        self._passages.append(columns[end > begin])

    def _add_times(self, block: Block, kind: IntArray, visits: IntArray) -> None:
        """Add by sums from the top of each segment down: many walks may go through the same."""
        parts, of = block.parts, self._visits
        segment, walk = of.segment[visits] - block.low, of.walk[visits] * len(CLASS_NAMES)
        ends_ns, low_ns = parts.ends_ns(), of.low_ns[visits]
        edges = []  # of each visit: the stretch that it is cut in, and what of that is above
        for at_ns in (low_ns, np.maximum(of.high_ns[visits], low_ns)):
            place = first_above(-parts.begin_ns, -at_ns, segment, parts.first)
            cut = np.minimum(place, kind.size - 1)
            above_ns = np.where(place < parts.first[segment + 1], ends_ns[cut] - at_ns, 0)
            edges.append((place, cut, np.maximum(above_ns, 0)))
        for code in distinct(kind).tolist():
            here = kind == code
            for sums, counts, certain in (
                (self._sums[0], here, True),
                (self._sums[1], here & ~parts.doubtful, ~of.doubtful[visits]),
            ):
                before = _before((ends_ns - parts.begin_ns) * counts)
                down, left = (before[place] + ns * counts[cut] for place, cut, ns in edges)
                _add(sums, walk + code, (down - left) * certain)

    def totals(self, walks_n: Sequence[int]) -> list[tuple[Charges, Passages]]:
        """Return the sums and the time in communication, in order, of so many walks at a time."""
        time_ns, certain_ns = self._sums.reshape(2, self._wall_ns.size, len(CLASS_NAMES))
        time_ns[:, UNKNOWN] += self._wall_ns - time_ns.sum(axis=1)
        columns = np.concatenate([np.empty((0, 6), dtype=np.int64), *self._passages])
        columns = columns[np.argsort(columns[:, 0], kind="stable")]
        edges = [0, *np.cumsum(walks_n, dtype=np.int64).tolist()]
        groups = []
        for low, high in pairwise(edges):
            rows = slice(*np.searchsorted(columns[:, 1], (low, high)).tolist())
            walk, member, start, end, doubt = columns[rows, 1:].T
            passages = Passages(walk - low, member, start, end, doubt.astype(bool))
            groups.append((Charges(time_ns[low:high], certain_ns[low:high]), passages))
        return groups


def _before(values: npt.NDArray[Any]) -> IntArray:
    """Return the sum of the values before each place, shape (n + 1,); differences are exact."""
    return np.append(0, np.cumsum(values, dtype=np.int64))


def _add(sums: IntArray, code: IntArray, ns: IntArray) -> None:
    """Add integers up by code; doubles hold them exactly, since a capture is below 2^53 ns."""
    if code.size:
        low, high = int(code.min()), int(code.max()) + 1
        sums[low:high] += np.bincount(code - low, weights=ns).astype(np.int64)


@dataclass(frozen=True)
class WalkPositions:
    """Where walks were; one clock.

    Attributes:
        left_ns: Shape (legs,), where each walk left the leg before; where it began on its first.
        high_ns: Shape (visits,), where it entered each segment.
        end_ns: Shape (legs,), where it was after the leg.
    """

    left_ns: IntArray
    high_ns: IntArray
    end_ns: IntArray

    @classmethod
    def of(
        cls,
        walk: IntArray,
        visits_n: IntArray,
        left_ns: IntArray,
        joined_ns: IntArray,
        top_ns: IntArray,
        bottom_ns: IntArray,
    ) -> WalkPositions:
        """Follow walks that consist of legs, one after the other.

        Args:
            walk: Shape (legs,), the walk of each, ascending.
            visits_n: Shape (legs,), segments that each goes through.
            left_ns: Shape (legs,), a walk leaves the leg before no later than this.
            joined_ns: Shape (legs,), nor does it go on later than this.
            top_ns: Shape (visits,), where each segment begins on the way back.
            bottom_ns: Shape (visits,), where it ends.
        """
        first = np.cumsum(2 + 2 * visits_n) - 2 * visits_n  # of each leg, its first visit
        leg = np.repeat(np.arange(walk.size), visits_n)
        nth = np.arange(leg.size) - (np.cumsum(visits_n) - visits_n)[leg]
        visit = first[leg] + 2 * nth
        at_ns = np.empty(2 * (walk.size + leg.size), dtype=np.int64)
        at_ns[first - 2], at_ns[first - 1] = left_ns, joined_ns
        at_ns[visit], at_ns[visit + 1] = top_ns, bottom_ns
        begins = np.flatnonzero(np.append(True, walk[1:] != walk[:-1])[: walk.size])
        for low, high in pairwise([*(first[begins] - 2).tolist(), at_ns.size]):
            np.minimum.accumulate(at_ns[low:high], out=at_ns[low:high])
        return cls(at_ns[first - 2], at_ns[visit], at_ns[first - 1 + 2 * visits_n])


def crossed(inferred: IntArray, walk: IntArray) -> IntArray:
    """Return how many inferred edges each walk has crossed up to each item, that one included.

    Args:
        inferred: Shape (n,), 1 where an item is such an edge, else 0.
        walk: Shape (n,), the walk of each, ascending.
    """
    total: IntArray = np.cumsum(inferred)
    first = np.flatnonzero(np.append(True, walk[1:] != walk[:-1])[: walk.size])
    before = (total - inferred)[first]
    so_far: IntArray = total - np.repeat(before, np.diff(np.append(first, walk.size)))
    return so_far
