"""Which of one rank's collectives is which of another's, when neither says so. Pure numpy.

Two ranks that take part in the same collectives leave each of them at almost the same time,
whenever they came. So the ends of both line up after one shift of the clock, which may grow at a
steady rate (see `clock_lines`), and one shift of the ordinal, and each pair overlaps in time:
nobody leaves before everybody has come. Ordinals decide;
time decides where ordinals do not hold, because records of one rank are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.clock_lines import ClockLine, fitted_line, lower_median
from nsys_llm.numeric.intervals import IntArray

#: How far apart two clocks may be: one clock; one host's steady clock, with the error of the GPU's
#: time stamps; wall clocks that NTP holds together (1 to tens of ms, says NVIDIA's user guide).
SAME_CLOCK_NS: Final = 0
STEADY_CLOCK_NS: Final = 20_000
WALL_CLOCK_NS: Final = 20_000_000

#: Ordinals tried on each side of the likely ones; a capture that starts late cuts more than that
#: only together with a clock or a count that tells.
_NEAR: Final = 8
#: Pairs that a shift is judged by.
_SAMPLE: Final = 64
#: Fewer pairs than these line up by chance.
_FEW: Final = 3
#: Share of the shorter one that a shift has to keep.
_LEAST_KEPT_PCT: Final = 50
#: The shift that pairs most wins against one that lines up better by chance: by a factor of
#: 1 + (64 / pairs)^2, so of 165 for 5 pairs, and of 2 for as many as are looked at.
_CHANCE: Final = float(_SAMPLE)
#: A clock is not believed where another shift lines the ends up so many times better.
_CLOCK_WRONG: Final = 4.0
#: Ends of one collective lie closer together than this part of the time between two.
_CLOSE: Final = 8
#: Shares that make two tracks the same collectives: pairs that overlap among all pairs, and among
#: all that could have been paired.
_OVERLAP_PCT: Final = 90
_PAIRED_PCT: Final = 80


@dataclass(frozen=True)
class Executions:
    """One rank's executions of one communication kernel, in order of (end, start); int64 ns."""

    start_ns: IntArray
    end_ns: IntArray

    @classmethod
    def ordered(cls, start_ns: IntArray, end_ns: IntArray) -> Executions:
        """Return the track of executions in any order."""
        if (np.diff(end_ns) > 0).all():
            return cls(start_ns, end_ns)
        order = np.lexsort((start_ns, end_ns))
        return cls(start_ns[order], end_ns[order])

    def __len__(self) -> int:
        return self.end_ns.size


@dataclass(frozen=True)
class Alignment:
    """How a track fits to a reference.

    Attributes:
        row: Shape (executions,), the reference's execution of the same collective, or -1.
        line: The track's clock minus the reference's.
        spread_ns: Median distance of the ends of a pair, after that.
    """

    row: IntArray
    line: ClockLine
    spread_ns: int
    met_n: int


def align(reference: Executions, other: Executions, trust_ns: int) -> Alignment | None:
    """Pair the executions of two ranks; None if they are not the same collectives.

    Args:
        trust_ns: How far apart their clocks may be; the clocks are given up where that contradicts
            the ends. 0 (`SAME_CLOCK_NS`): they are one clock, and no offset is looked for.
    """
    lag, offset_ns = _best_lag(reference, other, trust_ns)
    row = np.arange(len(other)) + lag
    row = np.where((row >= 0) & (row < len(reference)), row, -1)
    alignment = _fitted(reference, other, row, ClockLine(offset_ns), trust_ns)
    if alignment.met_n < int((row >= 0).sum()):
        by_time = _matched_by_time(reference, other, alignment.line)
        timed = _fitted(reference, other, by_time, alignment.line, trust_ns)
        if timed.met_n > alignment.met_n:
            alignment = timed
    return alignment if _same(reference, other, alignment, trust_ns) else None


def _best_lag(reference: Executions, other: Executions, trust_ns: int) -> tuple[int, int]:
    """Return how many executions earlier the other one begins, and its clock's offset."""
    lags, pairs_n = likely_lags(reference, other, trust_ns)
    first = np.maximum(0, -lags)
    steps = np.arange(min(_SAMPLE, int(pairs_n.max())))
    rows = first[:, None] + (pairs_n[:, None] * steps) // steps.size
    apart = other.end_ns[rows] - reference.end_ns[rows + lags[:, None]]
    middle = (steps.size - 1) // 2
    offset = np.partition(apart, middle, axis=1)[:, middle]
    if trust_ns == SAME_CLOCK_NS:
        offset = np.zeros_like(offset)
    # The upper median here: of few pairs, two always lie close together by chance.
    upper = steps.size // 2
    spread = np.partition(np.abs(apart - offset[:, None]), upper, axis=1)[:, upper]
    if trust_ns == SAME_CLOCK_NS:
        best = np.lexsort((-pairs_n, spread))[0]
        return int(lags[best]), 0
    allowed = _believed(offset, spread, pairs_n, trust_ns, min(len(reference), len(other)))
    steady = spread[allowed].min()
    fewest_n = min(int(pairs_n[allowed][spread[allowed].argmin()]), _SAMPLE)
    chance = 1 + (_CHANCE / fewest_n) ** 2
    allowed &= spread <= steady * chance
    order = np.lexsort((np.abs(offset), spread, -pairs_n))
    best = order[allowed[order]][0]
    return int(lags[best]), int(offset[best])


def likely_lags(
    reference: Executions, other: Executions, trust_ns: int
) -> tuple[IntArray, IntArray]:
    """Return the shifts of the ordinal to try, and how many pairs each leaves."""
    n, m = len(reference), len(other)
    rows = (m * np.arange(min(m, _SAMPLE))) // min(m, _SAMPLE)
    likely = [lower_median(_nearest(reference.end_ns, other.end_ns[rows]) - rows)]
    if trust_ns != SAME_CLOCK_NS:
        likely += [0, n - m]
    lags = np.unique(np.add.outer(likely, np.arange(-_NEAR, _NEAR + 1)))
    pairs_n = np.minimum(m, n - lags) - np.maximum(0, -lags)
    return lags[pairs_n > 0], pairs_n[pairs_n > 0]


def _believed(
    offset: IntArray, spread: IntArray, pairs_n: IntArray, trust_ns: int, most_n: int
) -> npt.NDArray[np.bool_]:
    """Return the shifts among which to choose: those that the clocks allow, if they hold."""
    least_n = min(most_n, max(_FEW, -(-most_n * _LEAST_KEPT_PCT // 100)))
    enough = pairs_n >= least_n
    near = (np.abs(offset) <= trust_ns) & (pairs_n >= min(most_n, _FEW))
    if trust_ns > STEADY_CLOCK_NS:
        near &= enough
    if near.any() and spread[near].min() <= _CLOCK_WRONG * spread[enough].min():
        return near
    return enough


def _fitted(
    reference: Executions, other: Executions, row: IntArray, line: ClockLine, trust_ns: int
) -> Alignment:
    selected = np.flatnonzero(row >= 0)
    if selected.size == 0:
        return Alignment(row, line, 0, 0)
    theirs = row[selected]
    ends = other.end_ns[selected]
    apart = ends - reference.end_ns[theirs]
    if trust_ns == SAME_CLOCK_NS:
        spread_ns = lower_median(np.abs(apart - line.offset_ns))
    else:
        line, spread_ns = fitted_line(ends, apart)
    ahead = line.ahead_ns(ends)
    last_start = np.maximum(other.start_ns[selected] - ahead, reference.start_ns[theirs])
    first_end = np.minimum(ends - ahead, reference.end_ns[theirs])
    met_n = int((last_start <= first_end).sum())
    return Alignment(row, line, spread_ns, met_n)


def _matched_by_time(reference: Executions, other: Executions, line: ClockLine) -> IntArray:
    """Pair what ends next to each other on both sides and overlaps."""
    ahead = line.ahead_ns(other.end_ns)
    ends = other.end_ns - ahead
    row = _nearest(reference.end_ns, ends)
    mutual = _nearest(ends, reference.end_ns)[row] == np.arange(len(other))
    late = np.maximum(other.start_ns - ahead, reference.start_ns[row])
    met = late <= np.minimum(ends, reference.end_ns[row])
    return np.where(mutual & met, row, -1)


def _nearest(ordered: IntArray, values: IntArray) -> IntArray:
    """Return the position of the element nearest to each value; of equally near, the first."""
    above = np.searchsorted(ordered, values)
    low = np.maximum(above - 1, 0)
    high = np.minimum(above, ordered.size - 1)
    return np.where(values - ordered[low] <= ordered[high] - values, low, high)


def _same(reference: Executions, other: Executions, alignment: Alignment, trust_ns: int) -> bool:
    """Return whether an alignment is too good for collectives that are not the same."""
    selected = np.flatnonzero(alignment.row >= 0)
    if selected.size == 0 or 100 * alignment.met_n < _OVERLAP_PCT * selected.size:
        return False
    if selected.size < _FEW:
        # Any offset makes one pair overlap.
        return abs(alignment.line.offset_ns) <= max(trust_ns, WALL_CLOCK_NS)
    theirs = alignment.row[selected]
    # What only one side has before the first and after the last pair was cut off on the other.
    spanned_n = int(max(np.ptp(selected), np.ptp(theirs))) + 1
    spanned_n += int(min(selected[0], theirs[0]))
    spanned_n += int(min(len(other) - 1 - selected[-1], len(reference) - 1 - theirs[-1]))
    period_ns = lower_median(np.diff(reference.end_ns[theirs]))
    close = _CLOSE * alignment.spread_ns <= period_ns
    return close and 100 * selected.size >= _PAIRED_PCT * spanned_n
