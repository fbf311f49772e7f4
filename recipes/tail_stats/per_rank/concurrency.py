"""What else a device ran while one operation did. Pure numpy.

For few operations among many: unions are prefix sums, and the operations beside one are those that
started in it and the one that reaches furthest of those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray, union_before_ns

_Mask = npt.NDArray[np.bool_]

#: So many pairs of operations of which one begins in the other are looked at together.
_PAIRS: Final = 1 << 20


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
        others: _Mask = np.ones(place.size, dtype=bool)
        while others.any():
            others = (self.end_ns[place] != end_ns) | (self.lane[place] != lane)
            others |= self.label[place] != label
            place = place + others
        return place

    def others_ns(self, place: IntArray, member: _Mask) -> IntArray:
        """Return how long at least one other operation of a class ran beside each operation.

        Args:
            place: Shape (k,), the operations.
            member: Shape (n,), which operations are of the class.
        """
        start_ns, end_ns = self.start_ns[member], self.end_ns[member]
        beside_ns = _between(self.start_ns[place], self.end_ns[place], start_ns, end_ns)
        # One that is of the class runs all of its own time, so count where two of them do.
        itself = member[place]
        if itself.any():
            rows = place[itself]
            beside_ns[itself] = _between(
                self.start_ns[rows], self.end_ns[rows], *_twice(start_ns, end_ns)
            )
        return beside_ns

    def longest_beside(self, place: IntArray) -> tuple[IntArray, IntArray]:
        """Return which other operation ran longest beside each one, and how long; -1 and 0: none.

        Of equals the one that reaches furthest; of those that start in it, the first.
        """
        best, best_ns = self._before(place)
        until = np.searchsorted(self.start_ns, self.end_ns[place], side="left")
        after_n = until - place - 1
        some = np.flatnonzero(after_n > 0)
        part = np.cumsum(after_n[some]) // _PAIRS
        for rows in np.split(some, np.flatnonzero(np.diff(part)) + 1):
            if rows.size:
                chosen, longest_ns = self._longest_after(place[rows], after_n[rows])
                longer = longest_ns > best_ns[rows]
                best[rows[longer]], best_ns[rows[longer]] = chosen[longer], longest_ns[longer]
        return best, best_ns

    def _longest_after(self, place: IntArray, after_n: IntArray) -> tuple[IntArray, IntArray]:
        """Return which of the `after_n` operations after each one ran longest beside it.

        The first of equals; and how long.
        """
        first = np.cumsum(after_n) - after_n
        nth = np.repeat(np.arange(place.size), after_n)
        other = place[nth] + 1 + np.arange(nth.size) - np.repeat(first, after_n)
        shared_ns = np.minimum(self.end_ns[other], self.end_ns[place[nth]]) - self.start_ns[other]
        longest_ns = np.maximum.reduceat(shared_ns, first)
        hit = np.flatnonzero(shared_ns == np.repeat(longest_ns, after_n))
        chosen = np.full(place.size, -1, dtype=np.int64)
        chosen[nth[hit[::-1]]] = other[hit[::-1]]  # the last assignment, the first of equals, stays
        return chosen, longest_ns

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
    """
    # Where two run, the later one does, and one of those before it has not ended.
    ends = np.minimum(end_ns[1:], np.maximum.accumulate(end_ns)[:-1])
    real = ends > start_ns[1:]
    return start_ns[1:][real], ends[real]
