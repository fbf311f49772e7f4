"""What else a device ran while one operation did. Pure numpy.

For few operations among many: unions are prefix sums, and the operations beside one are those that
started in it and the one that reaches furthest of those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.enclosing import last_above, maxima
from nsys_llm.numeric.grouping import distinct_rows
from nsys_llm.numeric.intervals import IntArray, covered_ns, union_intervals

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Timeline:
    """Operations of one device in order of their starts; all of shape (n,).

    Attributes:
        start_ns: Ascending.
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
        near = np.flatnonzero(np.isin(self.start_ns, start_ns))
        own = (self.start_ns, self.end_ns, self.lane, self.label)
        wanted = (start_ns, end_ns, lane, label)
        first, code = distinct_rows(
            [np.concatenate((all_[near], some)) for all_, some in zip(own, wanted, strict=True)]
        )
        return near[first[code[near.size :]]]

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
        # How long at least: what lies between is halved, for those that any runs longer beside.
        levels, rows = maxima((self.end_ns - self.start_ns)[::-1]), np.arange(place.size)
        most_ns = self.end_ns[place] - self.start_ns[place]
        tried_ns = best_ns + 1
        while (rows := rows[best_ns[rows] < most_ns[rows]]).size:
            other, shared_ns = self._first_after(place[rows], tried_ns[rows], levels)
            found = shared_ns >= tried_ns[rows]
            best[rows[found]], best_ns[rows[found]] = other[found], shared_ns[found]
            most_ns[rows[~found]] = tried_ns[rows[~found]] - 1
            tried_ns[rows] = best_ns[rows] + (most_ns[rows] - best_ns[rows] + 1) // 2
        return best, best_ns

    def _first_after(
        self, place: IntArray, least_ns: IntArray, levels: list[IntArray]
    ) -> tuple[IntArray, IntArray]:
        """Return the first operation after each one that takes so long, and how long both run.

        Where that is shorter, none after it runs so long beside the one. Without any: 0 ns.
        """
        behind = self.end_ns.size - 2 - place
        other = np.full(place.size, -1, dtype=np.int64)
        some = behind >= 0
        back = last_above(behind[some], least_ns[some] - 1, levels)
        other[some] = np.where(back < 0, -1, self.end_ns.size - 1 - back)
        until_ns = np.minimum(self.end_ns[other], self.end_ns[place])
        return other, np.where(other < 0, 0, until_ns - self.start_ns[other])

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
    covered = covered_ns(np.concatenate((at_ns, to_ns)), union_intervals(start_ns, end_ns))
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
