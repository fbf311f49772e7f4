"""What else a device ran while one operation did. Pure numpy.

For few operations among many: unions are prefix sums, and the operations beside one are those that
started in it and the one that reaches furthest of those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray, union_before_ns

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Timeline:
    """Operations of one device in order of their starts; all of shape (n,).

    Attributes:
        start_ns: Ascending.
        end_ns: `end_ns >= start_ns`.
        lane: Code of the stream.
        label: Code of what it is; tells operations with the same times apart.
    """

    start_ns: IntArray
    end_ns: IntArray
    lane: IntArray
    label: IntArray

    @classmethod
    def of(cls, start_ns: IntArray, end_ns: IntArray, lane: IntArray, label: IntArray) -> Timeline:
        """Return the timeline of operations in any order."""
        if (start_ns[1:] >= start_ns[:-1]).all():
            return cls(start_ns, end_ns, lane, label)
        order = np.argsort(start_ns, kind="stable")
        return cls(start_ns[order], end_ns[order], lane[order], label[order])

    @cached_property
    def _reach(self) -> IntArray:
        return np.maximum.accumulate(self.end_ns)

    @property
    def overlaps(self) -> bool:
        """Whether any two operations run at the same time."""
        return bool((self._reach[:-1] > self.start_ns[1:]).any())

    def places(
        self, start_ns: IntArray, end_ns: IntArray, lane: IntArray, label: IntArray
    ) -> IntArray:
        """Return where some of its operations stand; of equal ones the first."""
        place = np.searchsorted(self.start_ns, start_ns, side="left")
        waiting = np.arange(start_ns.size)
        while waiting.size:
            at = place[waiting]
            same = (self.end_ns[at] == end_ns[waiting]) & (self.lane[at] == lane[waiting])
            same &= self.label[at] == label[waiting]
            waiting = waiting[~same]
            place[waiting] += 1
        return place

    def others_ns(self, place: IntArray, member: _Mask) -> IntArray:
        """Return how long at least one other operation of a class ran beside each operation.

        Args:
            place: Shape (k,), the operations.
            member: Shape (n,), which operations are of the class.
        """
        start_ns, end_ns = self.start_ns[member], self.end_ns[member]
        found = _between(self.start_ns[place], self.end_ns[place], start_ns, end_ns)
        # One that is of the class runs all of its own time, so count where two of them do.
        itself = member[place]
        if itself.any():
            rows = place[itself]
            found[itself] = _between(
                self.start_ns[rows], self.end_ns[rows], *_twice(start_ns, end_ns)
            )
        return found

    def longest_beside(self, place: IntArray) -> tuple[IntArray, IntArray]:
        """Return which other operation ran longest beside each one, and how long; -1 and 0: none.

        Of equals the one that reaches furthest; of those that start in it, the first.
        """
        best, best_ns = self._before(place)
        until = np.searchsorted(self.start_ns, self.end_ns[place], side="left")
        after_n = np.maximum(until - place - 1, 0)
        some = np.flatnonzero(after_n)
        first = np.cumsum(after_n[some]) - after_n[some]
        owner = np.repeat(some, after_n[some])
        other = place[owner] + 1 + np.arange(owner.size) - np.repeat(first, after_n[some])
        shared_ns = np.minimum(self.end_ns[other], self.end_ns[place[owner]])
        shared_ns -= self.start_ns[other]
        if some.size:
            longest = np.maximum.reduceat(shared_ns, first)
            hit = np.flatnonzero(shared_ns == np.repeat(longest, after_n[some]))
            chosen = np.full(some.size, -1, dtype=np.int64)
            nth = np.searchsorted(some, owner[hit])
            chosen[nth[::-1]] = other[hit[::-1]]  # the last assignment, the first of equals, stays
            longer = longest > best_ns[some]
            best[some[longer]], best_ns[some[longer]] = chosen[longer], longest[longer]
        return best, best_ns

    def gaps_before_ns(self, place: IntArray, none: int) -> IntArray:
        """Return the time since the last operation of the lane that began earlier ended.

        Args:
            place: Shape (k,), the operations.
            none: What stands for the first operation of a lane.

        Returns:
            Shape (k,); 0 where that one had not ended.
        """
        gaps = np.full(place.shape, none, dtype=np.int64)
        for lane in np.unique(self.lane[place]).tolist():
            rows = np.flatnonzero(self.lane == lane)
            starts, reach = self.start_ns[rows], np.maximum.accumulate(self.end_ns[rows])
            mine = np.flatnonzero(self.lane[place] == lane)
            own_ns = self.start_ns[place[mine]]
            before_n = np.searchsorted(starts, own_ns, side="left")
            known = before_n > 0
            gaps_ns = own_ns[known] - reach[before_n[known] - 1]
            gaps[mine[known]] = np.maximum(gaps_ns, 0)
        return gaps

    def _before(self, place: IntArray) -> tuple[IntArray, IntArray]:
        """Return the furthest reaching operation that stands before each one, as longest_beside."""
        if not self.start_ns.size:
            return place.copy(), place.copy()
        further = np.concatenate(([True], self.end_ns[1:] > self._reach[:-1]))
        furthest = np.maximum.accumulate(np.where(further, np.arange(self.end_ns.size), 0))
        best = furthest[np.maximum(place - 1, 0)]
        shared_ns = np.minimum(self.end_ns[best], self.end_ns[place]) - self.start_ns[place]
        beside = (place > 0) & (shared_ns > 0)
        return np.where(beside, best, -1), np.where(beside, shared_ns, 0)


def _between(at_ns: IntArray, to_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return how much of each [at, to) at least one of the intervals covers."""
    covered = union_before_ns(np.concatenate((at_ns, to_ns)), start_ns, end_ns)
    before, after = np.split(covered, 2)
    return np.asarray(after - before)


def _twice(start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return intervals whose union is the time that at least two intervals cover.

    Args:
        start_ns: Ascending.
        end_ns: Their ends.
    """
    # Where two run, the later one does, and one of those before it has not ended.
    ends = np.minimum(end_ns[1:], np.maximum.accumulate(end_ns)[:-1])
    real = ends > start_ns[1:]
    return start_ns[1:][real], ends[real]
