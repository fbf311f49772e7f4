"""Which transfers of two ranks may be one: candidates, and those without a rival. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.alignment import Executions
from nsys_llm.job.collectives.p2p_pairs import PeerFit, coinciding
from nsys_llm.numeric.intervals import IntArray

#: A pair that ends so many times less closely is no rival.
_LOOSER: Final = 2
#: Share of the transfers of two streams that end together, in percent, from which the streams
#: belong to each other: a communicator of two ranks, or one direction of it.
_WHOLE_PCT: Final = 90

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TransferEdges:
    """Candidates: transfers of two ranks that end together and overlap; all of shape (edges,).

    Attributes:
        fit: Position of the pair of ranks.
        left: Number of the first rank's transfer, counted over all ranks.
        first: For each rank, the number of its first transfer; and all transfers at the end.
        sides: For each pair, its ranks.
    """

    fit: IntArray
    left: IntArray
    right: IntArray
    first: IntArray
    sides: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        fits: Sequence[PeerFit],
        tracks: Sequence[Executions],
        streams: Sequence[IntArray],
        clocks: Sequence[int],
    ) -> TransferEdges:
        """Return the candidates of pairs of ranks.

        Args:
            streams: For each rank, the stream of each transfer, numbered from 0.
        """
        first = np.concatenate(([0], np.cumsum([len(track) for track in tracks])))
        left, right = map(list, zip(*(coinciding(fit, tracks) for fit in fits), strict=True))
        for place, fit in enumerate(fits):
            left[place] = left[place] + first[fit.left]
            right[place] = right[place] + first[fit.right]
        edges = cls(
            np.repeat(np.arange(len(fits)), [row.size for row in left]),
            np.concatenate(left),
            np.concatenate(right),
            first,
            tuple((fit.left, fit.right) for fit in fits),
        )
        edges = edges._of_own_streams(streams)
        # What two clocks scatter says nothing against a peer on another one.
        apart = np.array([clocks[fit.left] != clocks[fit.right] for fit in fits])
        tolerance_ns = np.array([fit.tolerance_ns for fit in fits])
        return edges._without_looser(np.where(apart, tolerance_ns // _LOOSER, tolerance_ns))

    @property
    def rows_n(self) -> int:
        """How many candidates there are."""
        return self.fit.size

    def sole(self) -> tuple[_Bools, _Bools]:
        """Return which candidates have no rival left, and which stay open.

        A transfer that has one candidate only takes it, unless another one with but this does too;
        what they were rivals of goes, and so on.
        """
        sole, alive = np.zeros(self.rows_n, dtype=bool), np.ones(self.rows_n, dtype=bool)
        while True:
            degree = self._degree(alive)
            forced = alive & ((degree[self.left] == 1) | (degree[self.right] == 1))
            claims = self._degree(forced)
            new = forced & (claims[self.left] == 1) & (claims[self.right] == 1) & ~sole
            if not new.any():
                break
            sole |= new
            taken = np.zeros(int(self.first[-1]), dtype=bool)
            taken[self.left[sole]] = taken[self.right[sole]] = True
            alive = sole | ~(taken[self.left] | taken[self.right])
        return sole, alive & ~sole

    def rows(self, number: int, which: _Bools) -> tuple[IntArray, IntArray]:
        """Return the rows of both ranks of a pair in their tracks, ascending in the first."""
        left, right = self.sides[number]
        order = np.argsort(self.left[which], kind="stable")
        return (
            self.left[which][order] - self.first[left],
            self.right[which][order] - self.first[right],
        )

    def _degree(self, alive: _Bools) -> IntArray:
        ends = np.concatenate((self.left[alive], self.right[alive]))
        return np.bincount(ends, minlength=int(self.first[-1]))

    def _only(self, kept: _Bools) -> TransferEdges:
        return replace(self, fit=self.fit[kept], left=self.left[kept], right=self.right[kept])

    def _of_own_streams(self, streams: Sequence[IntArray]) -> TransferEdges:
        """Leave out candidates of a stream that belongs to another one."""
        before = np.concatenate(([0], np.cumsum([int(stream.max()) + 1 for stream in streams])))
        stream = np.concatenate(
            [numbers + at for numbers, at in zip(streams, before[:-1], strict=True)]
        )
        size = np.bincount(stream)
        key = stream[self.left] * size.size + stream[self.right]
        pairs, pair = np.unique(key, return_inverse=True)
        left, right = np.divmod(pairs, size.size)
        whole = np.ones(pairs.size, dtype=bool)
        for ends, side_stream in ((self.left, left), (self.right, right)):
            distinct = np.unique(pair * int(self.first[-1]) + ends) // int(self.first[-1])
            whole &= (
                100 * np.bincount(distinct, minlength=pairs.size) >= _WHOLE_PCT * size[side_stream]
            )
        settled = np.zeros(size.size, dtype=bool)
        settled[left[whole]] = settled[right[whole]] = True
        rival = settled[stream[self.left]] | settled[stream[self.right]]
        return self._only(whole[pair] | ~rival)

    def _without_looser(self, tolerance_ns: IntArray) -> TransferEdges:
        """Leave out candidates of a transfer that ends far more closely with another rank."""
        edge_tolerance_ns = tolerance_ns[self.fit]
        best = np.full(int(self.first[-1]), np.iinfo(np.int64).max)
        np.minimum.at(best, self.left, edge_tolerance_ns)
        np.minimum.at(best, self.right, edge_tolerance_ns)
        tightest = np.minimum(best[self.left], best[self.right])
        return self._only(edge_tolerance_ns < _LOOSER * tightest)
