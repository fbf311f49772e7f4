"""How quantities spread over ranks, where a rank that lacks one counts as 0. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class RankSpread:
    """The value of each part on each rank that has it.

    Attributes:
        part: Shape (rows,), codes 0 .. parts_n - 1, sorted; each occurs.
        rank: Shape (rows,), positions 0 .. ranks_n - 1, sorted within a part, each once.
        value: Shape (rows,), int64 >= 0.
        ranks_n: How many ranks there are, also those without any part.
    """

    part: IntArray
    rank: IntArray
    value: IntArray
    parts_n: int
    ranks_n: int

    def present_n(self) -> IntArray:
        """Return how many ranks have each part; shape (parts,), as of all results here."""
        return np.bincount(self.part, minlength=self.parts_n).astype(np.int64)

    def total(self) -> IntArray:
        """Return the sum over ranks."""
        return summed(self.part, self.value, self.parts_n)

    def ordered(self, position: int) -> IntArray:
        """Return the value at a position, from 0, of the sorted values of all ranks."""
        ranked = self.value[np.lexsort((self.value, self.part))]
        absent_n = self.ranks_n - self.present_n()
        index = self._first() + np.maximum(position - absent_n, 0)
        return np.where(position < absent_n, 0, ranked[index])

    def lower_median(self) -> IntArray:
        """Return the median; of two values in the middle the lower one."""
        return self.ordered((self.ranks_n - 1) // 2)

    def twice_median(self) -> IntArray:
        """Return twice the median, which is an integer."""
        return self.lower_median() + self.ordered(self.ranks_n // 2)

    def excess(self) -> IntArray:
        """Return what each rank has above the median of the others, summed; a half is cut off.

        The median of all would hold back half of what one of two ranks has more than the other.
        """
        half, odd = divmod(self.ranks_n, 2)
        if not odd:
            # Without a value above the middle, the median is the lower one of the middle.
            twice = 2 * self.ordered(max(half - 1, 0))[self.part]
        else:
            # Without the middle one itself, those on both sides of it; without a higher one, it
            # and the one below.
            below, middle = self.ordered(max(half - 1, 0)), self.ordered(half)
            above = self.ordered(min(half + 1, self.ranks_n - 1))
            top = np.where(self.value > middle[self.part], middle[self.part], above[self.part])
            twice = below[self.part] + top
        more = np.maximum(2 * self.value - twice, 0) if self.ranks_n > 1 else 0 * self.value
        return summed(self.part, more, self.parts_n) // 2

    def rank_of_most(self) -> IntArray:
        """Return the position of the rank with the largest value, the lowest of equals."""
        return self._lowest_rank(self.value == self.ordered(self.ranks_n - 1)[self.part])

    def rank_of_least(self) -> IntArray:
        """Return the position of the rank with the smallest value, the lowest of equals."""
        least = self._lowest_rank(self.value == self.ordered(0)[self.part])
        nth = np.arange(self.part.size) - self._first()[self.part]
        # The first position that is skipped; behind the last row where none is.
        absent = np.minimum(self._lowest_rank(self.rank != nth, nth), self.present_n())
        return np.minimum(least, np.where(absent < self.ranks_n, absent, least))

    def at(self, rank: IntArray) -> IntArray:
        """Return the value of each part on one rank of each; shape (parts,), 0 where it lacks."""
        return summed(
            self.part, np.where(self.rank == rank[self.part], self.value, 0), self.parts_n
        )

    def _first(self) -> IntArray:
        return np.searchsorted(self.part, np.arange(self.parts_n))

    def _lowest_rank(
        self, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], of: IntArray | None = None
    ) -> IntArray:
        """Return the lowest position of the chosen rows of each part; ranks_n where none is."""
        if not self.parts_n:
            return np.empty(0, dtype=np.int64)
        position = np.where(chosen, self.rank if of is None else of, self.ranks_n)
        return np.asarray(np.minimum.reduceat(position, self._first()))
