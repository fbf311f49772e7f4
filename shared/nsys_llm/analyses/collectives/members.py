"""Who belongs to a communicator, among ranks that leave collectives at about the same time. Pure.

Groups that run in lockstep leave at about the same time too. What tells them apart is cause: a rank
leaves when the last one of its own communicator has come, and after that at a steady interval. So
of all sets of ranks the right one is that whose last start foretells the end best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.alignment import Alignment, Track
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.intervals import IntArray

#: Stands for an execution that the other rank does not have.
MISSING: Final = -1

#: Fewer collectives than these foretell anything by chance.
_LEAST: Final = 32
#: Ranks of another group leave so many times less closely together than those of one's own (3 / 2).
_APART: Final = (3, 2)
#: All ranks are one communicator unless some of them foretell the end better than by chance, which
#: improves it by a factor of 1 + 4 / root of the collectives: 1.7 for 32 of them, 1.1 for 1024.
_CHANCE: Final = 4.0
#: Less has to be chance where some leave so many times more closely together; ours.
_FAR_APART: Final = 4
_CHANCE_FAR: Final = 1.0
#: Stands for a spread that nothing tells.
_UNTOLD_NS: Final = 2**62


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
    # What was cut short says too little of itself, and would leave too little to tell the rest by.
    long = [place for place, (_, fit) in enumerate(others) if fit.met_n >= _LEAST]
    own = [long[place] for place in _own(reference, [others[place] for place in long])]
    if not own:
        return list(range(len(others)))
    widest_ns = max(others[place][1].spread_ns for place in own)
    short = set(range(len(others))) - set(long)
    own += [place for place in short if _near(others[place][1], widest_ns)]
    return sorted(own)


def _near(fit: Alignment, widest_ns: int) -> bool:
    """Tell whether few pairs lie as close together as those of a group, but for chance."""
    chance = 1 + _CHANCE / np.sqrt(max(fit.met_n, 1))
    return bool(_APART[1] * fit.spread_ns <= chance * _APART[0] * widest_ns)


def _own(reference: Track, others: Sequence[tuple[Track, Alignment]]) -> list[int]:
    everyone = list(range(len(others)))
    apart = np.array([fit.spread_ns for _, fit in others], dtype=np.int64)
    nearest = np.argsort(apart, kind="stable")
    # Sets to choose from: those that a step in how closely they leave together sets off, and all.
    less, more = apart[nearest][:-1], apart[nearest][1:]
    sizes = (np.flatnonzero(_APART[1] * more > _APART[0] * less) + 1).tolist()
    if not sizes:
        return everyone
    forecasts, n = _forecasts(reference, [others[place] for place in nearest], sizes)
    *known, all_ns = forecasts
    best_ns, size = min(zip(known, sizes, strict=True))
    far = more[size - 1] > _FAR_APART * less[size - 1]
    chance = 1 + (_CHANCE_FAR if far else _CHANCE) / np.sqrt(max(n, 1))
    if best_ns == _UNTOLD_NS or (n and all_ns <= chance * best_ns):
        return everyone
    return sorted(nearest[:size].tolist())


def _forecasts(
    reference: Track, nearest: Sequence[tuple[Track, Alignment]], sizes: Sequence[int]
) -> tuple[list[int], int]:
    """Return for the first so many tracks how steady the end comes after the last of their starts.

    Returns:
        The spread in ns for each size and for all, and the collectives that it is told from: those
        that all have, or, where they are too few, those that each set has; then 0.
    """
    found = [places(fit, len(reference)) for _, fit in nearest]
    everywhere = np.logical_and.reduce([row != MISSING for row in found])
    n = int(everywhere.sum())
    shared = everywhere if n >= _LEAST else np.ones(len(reference), dtype=bool)
    last_start = reference.start_ns.copy()
    spreads = []
    for size, ((track, fit), row) in enumerate(zip(nearest, found, strict=True), start=1):
        shared = shared & (row != MISSING)
        start = track.start_ns - fit.line.ahead_ns(track.end_ns)
        np.maximum(last_start, start[row], out=last_start, where=shared)
        if size in sizes or size == len(nearest):
            after = (reference.end_ns - last_start)[shared]
            spreads.append(_spread_ns(after) if after.size >= _LEAST else _UNTOLD_NS)
    return spreads, n if n >= _LEAST else 0


def _spread_ns(values: IntArray) -> int:
    return lower_median(np.abs(values - lower_median(values)))
