"""Who belongs to a communicator, among ranks that leave collectives at about the same time. Pure.

Groups that run in lockstep leave at about the same time too. What tells them apart is cause: a rank
leaves when the last one of its own communicator has come (see `cohesion`). So ranks are split in
two by how closely they leave together, as long as both parts are certainly not one communicator.
Where that is uncertain they stay together, and the sequence gets a low confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.alignment import Alignment, Executions
from nsys_llm.job.collectives.cohesion import distances, parted, sampled, slope_of
from nsys_llm.numeric.intervals import IntArray

#: Stands for an execution that the other rank does not have.
MISSING: Final = -1

#: A rank whose capture is cut has less than this part of the collectives, in percent; the others
#: are judged without it.
_CUT_PCT: Final = 50
#: Of the steps in how closely ranks leave with the first one, the largest that are looked at.
_MOST_STEPS: Final = 4


def places(fit: Alignment, reference_n: int) -> IntArray:
    """Return for each execution of the reference the one of the aligned track, or `MISSING`."""
    positions = np.full(reference_n, MISSING, dtype=np.int64)
    selected = np.flatnonzero(fit.row >= 0)
    positions[fit.row[selected]] = selected
    return positions


def members(reference: Executions, others: Sequence[tuple[Executions, Alignment]]) -> list[int]:
    """Return which tracks belong to the reference's communicator, by position.

    Args:
        others: Of other ranks, each aligned with it, each alike to it by its ends.
    """
    if not others:
        return []
    rows = [places(fit, len(reference)) for _, fit in others]
    shared_n = np.array([int((row != MISSING).sum()) for row in rows])
    whole = 100 * shared_n >= _CUT_PCT * shared_n.max()
    chosen = _one_communicator(reference, others, rows, np.flatnonzero(whole).tolist())
    # Shorter ones last, each against those that belong so far.
    for place in np.flatnonzero(~whole)[np.argsort(-shared_n[~whole], kind="stable")].tolist():
        start, end = _times(reference, others, rows, [*chosen, place])
        alone = np.arange(len(start)) == len(start) - 1
        if not slope_of(start, end, alone).is_two:
            chosen.append(place)
    return sorted(chosen)


def _one_communicator(
    reference: Executions,
    others: Sequence[tuple[Executions, Alignment]],
    rows: Sequence[IntArray],
    chosen: list[int],
) -> list[int]:
    """Leave out parts of the ranks until no part is certainly of another communicator."""
    while chosen:
        start, end = _times(reference, others, rows, chosen)
        if not end.size:
            break
        kept = _first_communicator(start, end)
        if kept.all():
            break
        chosen = [place for place, is_kept in zip(chosen, kept[1:], strict=True) if is_kept]
    return chosen


def _first_communicator(start: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Return the ranks without some that are certainly of another communicator than the first.

    Where many groups run in lockstep, all but the first one's ranks are no communicator, and their
    last start foretells nothing. So the first ranks are compared with the group that comes next.
    """
    away = distances(end, 0)
    order = np.argsort(away, kind="stable")
    steps = away[order][1:] / np.maximum(away[order][:-1], 1.0)
    for size in (1 + np.argsort(-steps, kind="stable")[:_MOST_STEPS]).tolist():
        part = np.zeros(len(end), dtype=bool)
        part[order[:size]] = part[0] = True
        next_one = int(order[size]) if order[size] else int(order[-1])
        away_ns = distances(end, next_one)
        reach_ns = max(float(away[part].max()), float(np.min(away_ns[~part], initial=0.0)))
        other = ~part & (away_ns < away) & (away_ns <= reach_ns)
        if (
            other.any()
            and slope_of(start[part | other], end[part | other], part[part | other]).is_two
        ):
            return part
    part = parted(end, 0)
    return part if slope_of(start, end, part).is_two else np.ones_like(part)


def _times(
    reference: Executions,
    others: Sequence[tuple[Executions, Alignment]],
    rows: Sequence[IntArray],
    chosen: Sequence[int],
) -> tuple[IntArray, IntArray]:
    """Return starts and ends of the reference and of others in collectives that all have.

    Returns:
        Two of shape (1 + others, collectives), on the reference's clock.
    """
    shared = np.flatnonzero(np.logical_and.reduce([rows[place] != MISSING for place in chosen]))
    shared = shared[sampled(shared.size)]
    start, end = [reference.start_ns[shared]], [reference.end_ns[shared]]
    for place in chosen:
        track, fit = others[place]
        ends = track.end_ns[rows[place][shared]]
        ahead = fit.line.ahead_ns(ends)
        start.append(track.start_ns[rows[place][shared]] - ahead)
        end.append(ends - ahead)
    return np.stack(start), np.stack(end)
