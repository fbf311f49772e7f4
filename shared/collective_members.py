"""Who belongs to a communicator, among ranks that leave collectives at about the same time. Pure.

Groups that run in lockstep leave at about the same time too. What tells them apart is cause: a rank
leaves when the last one of its own communicator has come, and after that at a steady interval. So
of all sets of ranks the right one is that whose last start foretells the end best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.clock_lines import lower_median
from nsys_llm.collective_alignment import Alignment, Track
from nsys_llm.intervals import IntArray

__all__ = ["MISSING", "members", "places"]

#: Stands for an execution that the other rank does not have.
MISSING: Final = -1

#: Fewer collectives than these foretell anything by chance.
_LEAST: Final = 32
#: Ranks of another group leave so many times less closely together than those of one's own (3 / 2).
_APART: Final = (3, 2)
#: All ranks are one communicator unless some of them foretell the end better than by chance, which
#: improves it by a factor of 1 + 4 / root of the collectives: 1.7 for 32 of them, 1.1 for 1024.
_CHANCE: Final = 4.0


def places(fit: Alignment, reference_n: int) -> IntArray:
    """Return for each execution of the reference the one of the aligned track, or `MISSING`."""
    found = np.full(reference_n, MISSING, dtype=np.int64)
    mine = np.flatnonzero(fit.row >= 0)
    found[fit.row[mine]] = mine
    return found


def members(reference: Track, others: Sequence[tuple[Track, Alignment]]) -> list[int]:
    """Return which tracks belong to the reference's communicator, by position.

    Args:
        reference: A rank's executions.
        others: Of other ranks, each aligned with it, each alike to it by its ends.
    """
    everyone = list(range(len(others)))
    apart = np.array([fit.spread_ns for _, fit in others])
    nearest = np.argsort(apart, kind="stable")
    # Sets to choose from: those that a step in how closely they leave together sets off, and all.
    less, more = apart[nearest][:-1], apart[nearest][1:]
    sizes = (np.flatnonzero(_APART[1] * more > _APART[0] * less) + 1).tolist()
    if not sizes:
        return everyone
    forecasts = _forecasts(reference, [others[place] for place in nearest], [*sizes, len(others)])
    *known, (all_ns, all_n) = forecasts
    told = [(spread_ns, -n, size) for (spread_ns, n), size in zip(known, sizes, strict=True) if n]
    if not told:
        return everyone
    best_ns, best_n, size = min(told)
    if all_n and all_ns <= (1 + _CHANCE / np.sqrt(min(all_n, -best_n))) * best_ns:
        return everyone
    return sorted(nearest[:size].tolist())


def _forecasts(
    reference: Track, nearest: Sequence[tuple[Track, Alignment]], sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """Return for the first so many tracks how steady the end comes after the last of their starts.

    Returns:
        The spread in ns, and the collectives that it is told from; 0 where they are too few.
    """
    last_start = reference.start_ns.copy()
    shared = np.ones(len(reference), dtype=bool)
    found = []
    for size, (track, fit) in enumerate(nearest, start=1):
        row = places(fit, len(reference))
        shared &= row != MISSING
        start = track.start_ns - fit.line.ahead_ns(track.end_ns)
        np.maximum(last_start, start[row], out=last_start, where=shared)
        if size in sizes:
            after = (reference.end_ns - last_start)[shared]
            found.append((_spread_ns(after), after.size) if after.size >= _LEAST else (0, 0))
    return found


def _spread_ns(values: IntArray) -> int:
    return lower_median(np.abs(values - lower_median(values)))
