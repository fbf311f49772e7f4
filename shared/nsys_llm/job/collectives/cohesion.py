"""Whether ranks that leave collectives together are one communicator, or two in lockstep. Pure.

A rank leaves when the last one of its own communicator has come. Split the ranks in two parts: if
they are one communicator, both parts leave together, whichever part came later; if they are two,
each part leaves some time after its own last rank, so the part that came later by 100 us also
leaves later by 100 us. The slope of the difference of the ends over the difference of the last
starts is 0 for one communicator, and 1 for two. Its error says how sure that is.

Ranks are split in two by how closely they leave together, as long as both parts are certainly not
one communicator. Where that is uncertain they stay together, and get a low confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.alignment import Alignment, Executions
from nsys_llm.numeric.intervals import IntArray

#: Collectives that a slope is taken from, evenly spread over the run; more add little.
SAMPLE: Final = 1_024
#: Fewer collectives than these have no slope with an error.
_LEAST: Final = 5
#: Of few collectives the error is itself unsure: it counts for 1 + 3 / (collectives - 2).
_FEW: Final = 3.0
#: Collectives at which one part is latest say nothing, this part of all in percent; ours.
_HEAVIEST_PCT: Final = 1
#: Natural logarithm of how many times likelier one answer is than the other (100) to be sure.
_SURE: Final = 4.6
#: A slope of one communicator exceeds 0 by no more than this and two errors; ours. Above, some of
#: the collectives are of other ranks.
_FLAT: Final = 0.1
_ERRORS: Final = 2.0

#: Ends stray if they lie so many median distances apart, and more than time stamps do; with more
#: than so many of them, in percent, some collectives are of other ranks. Ours: of two H100 none.
_STRAY: Final = 16
_STRAY_NS: Final = 1_000
_MOST_STRAY_PCT: Final = 5

_Bools = npt.NDArray[np.bool_]
#: Stands for an execution that the other rank does not have.
MISSING: Final = -1

#: A rank whose capture is cut has less than this part of the collectives, in percent; the others
#: are judged without it.
_CUT_PCT: Final = 50
#: Of the steps in how closely ranks leave with the first one, the largest that are looked at.
_MOST_STEPS: Final = 4


@dataclass(frozen=True)
class Slope:
    """How much later the part of the ranks that comes later also leaves.

    Attributes:
        value: 0 for one communicator, 1 for two.
        error: Its standard error; infinite where nothing tells.
    """

    value: float
    error: float

    @property
    def is_one(self) -> bool:
        """Whether both parts are certainly one communicator."""
        flat = self.value <= _FLAT + _ERRORS * self.error
        return flat and 1 - 2 * self.value > 2 * _SURE * self.error**2

    @property
    def is_two(self) -> bool:
        """Whether they are certainly two."""
        return 2 * self.value - 1 > 2 * _SURE * self.error**2


def sampled(n: int) -> IntArray:
    """Return the positions of evenly spread collectives, at most `SAMPLE` of n."""
    return (n * np.arange(min(n, SAMPLE))) // max(min(n, SAMPLE), 1)


def parted(end_ns: IntArray, first: int) -> _Bools:
    """Return which ranks leave closer to one of them than to the one farthest from it.

    Args:
        end_ns: When each rank leaves, shape (ranks, collectives), on one clock; at least two ranks.

    Returns:
        Shape (ranks,); never all of them.
    """
    near = distances(end_ns, first)
    # Of ranks that all leave alike, it is another one than the first all the same.
    near[first] = -1.0
    farthest = int(near.argmax())
    part = near <= distances(end_ns, farthest)
    part[farthest] = False
    return np.asarray(part)


def slope_of(start_ns: IntArray, end_ns: IntArray, part: _Bools) -> Slope:
    """Return the slope between two parts of the ranks.

    Args:
        start_ns: When each rank comes, shape (ranks, collectives), on one clock.
        part: Which ranks are one part; shape (ranks,).
    """
    return slope_between(
        start_ns[part].max(axis=0) - start_ns[~part].max(axis=0),
        middle(end_ns[part]) - middle(end_ns[~part]),
    )


def slope_between(started_ns: IntArray, left_ns: IntArray) -> Slope:
    """Return the slope of differences of ends over differences of last starts.

    Args:
        started_ns: Shape (collectives,).
        left_ns: Shape (collectives,).
    """
    n = started_ns.size
    if n < _LEAST:
        return Slope(0.0, np.inf)
    come = (started_ns - np.median(started_ns)).astype(np.float64)
    left = (left_ns - np.median(left_ns)).astype(np.float64)
    stray = _stray_pct(left) > _MOST_STRAY_PCT
    # Nothing rests on the one that weighs most: it may be paired wrongly.
    kept = np.argsort(np.abs(come), kind="stable")[: n - max(n * _HEAVIEST_PCT // 100, 1)]
    come, left, n = come[kept], left[kept], kept.size
    square = float((come * come).sum())
    if not square:
        # No part is ever later than usual: nothing tells, but for ends that are always alike.
        return Slope(0.0, 0.0 if not left.any() else np.inf)
    value = float((come * left).sum()) / square
    rest = left - value * come
    if stray:
        return Slope(value, np.inf)
    error = float(np.sqrt((rest * rest).sum() / (n - 2) / square))
    return Slope(value, error * (1 + _FEW / (n - 2)))


def is_one_communicator(starts_ns: Sequence[IntArray], ends_ns: Sequence[IntArray]) -> bool:
    """Return whether ranks are certainly one communicator.

    Split are those that leave farthest apart, or nearly so, and then each rank from the others.

    Args:
        starts_ns: When each rank comes, shape (collectives,) each, on one clock.
    """
    some = sampled(starts_ns[0].size)
    if not some.size:
        return False
    start_ns, end_ns = (np.stack([times[some] for times in of]) for of in (starts_ns, ends_ns))
    first = int(distances(end_ns, 0).argmax())
    if not slope_of(start_ns, end_ns, parted(end_ns, first)).is_one:
        return False
    later = np.partition(start_ns, -2, axis=0)[-2:]
    usual = middle(end_ns)
    # Without a rank the last to come is the second last, if it was that rank itself.
    return all(
        slope_between(start - np.where(start == later[1], later[0], later[1]), end - usual).is_one
        for start, end in zip(start_ns, end_ns, strict=True)
        if len(start_ns) > 2
    )


def _stray_pct(left: npt.NDArray[np.float64]) -> float:
    """Return the share of ends that lie far off the usual distance, in percent."""
    away = np.abs(left)
    return 100 * float((away > _STRAY * np.median(away) + _STRAY_NS).mean())


def distances(end_ns: IntArray, first: int) -> npt.NDArray[np.float64]:
    """Return how far from one rank each leaves, by the median; shape (ranks,)."""
    return np.asarray(np.median(np.abs(end_ns - end_ns[first]), axis=1))


def middle(end_ns: IntArray) -> IntArray:
    """Return the lower median of ranks, shape (collectives,), of shape (ranks, collectives)."""
    half = (len(end_ns) - 1) // 2
    return np.asarray(np.partition(end_ns, half, axis=0)[half])


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
