"""Where walks are while they go back, after what they went through is known. Pure numpy.

A walk only goes back in time: where it is follows from the earliest of all instants that it met.
So the loop that follows it has to note segments alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class Positions:
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
    ) -> Positions:
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
