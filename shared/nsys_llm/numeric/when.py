"""When time is lost: from a step on, growing, once, every few steps, or alike in all. Pure numpy.

A series is a level that changes or a line, whichever is nearer, and events on top of it. Of 1,000
jobs of 1 to 128 steady series (12 to 300 steps, noise 1 to 10 %, each step up to 0.6 alike to the
one before, tails of Student's t with three degrees in half of them) under 1 % have any that is not
called steady, and changes of five times the noise are told in 95 % from 30 steps on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import MAD_SCALE, Noise, fisher_p, scaled_mad

FloatArray = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]
Kind = Literal["steady", "from", "until", "between", "grows", "falls", "once", "times", "every"]
STEADY: Final = "steady"
#: Kinds that are a few steps of many.
EVENTS: Final = ("once", "times", "every")

#: Longer series are medians of so many blocks.
_MOST_BLOCKS: Final = 512
#: Steps on both sides of a change; its least size, in shares of a step and in scaled MAD; chance.
_LEAST_STEPS: Final = 5
_LEAST_CHANGE: Final = 0.05
_LEAST_MADS: Final = 3.0
_ALPHA: Final = 2e-4
_ALPHA_MIXED: Final = 1e-2
#: Part of a change that is there within five steps: what comes slowly is no change of level.
_SHARP: Final = 0.6
#: Part of the steps of a level that are nearer to it than to the other.
_OF_ITS_LEVEL: Final = 0.75
#: A step is of the other level if it is nearer to that than this part of the change.
_CLEAR: Final = 1 / 3
#: A change on two sides has to leave less than one on one side, by this through the number of
#: steps, and its chance to be so much less.
_LESS_REST: Final = 15
_TWO_SIDED: Final = 1 / 4
#: Growth over the run, in shares of a step.
_LEAST_GROWTH: Final = 0.10
#: Scaled MAD of a series are at least so much of the usual of alike series.
_LEAST_SCALE: Final = 0.7
#: An event is above so many scaled MAD and this share of a step; events hold so much of all that
#: is beyond _TAIL_MADS of them, and are at most so many of the steps.
_EVENT_MADS: Final = 10.0
_EVENT_SHARE: Final = 0.30
_TAIL_MADS: Final = 4.0
_EVENTS_HOLD: Final = 0.9
_MOST_EVENTS: Final = 1 / 3
_MOST_IN_TURNS: Final = 0.55
#: As many series as have the chances above; of more each has less.
_SERIES: Final = 4
_STRICT: Final = 0.5
#: Distances of events are even within this share.
_EVEN: Final = 0.1
#: A beginning that loses half of its excess is a warm-up.
_DECAYS: Final = 0.5


@dataclass(frozen=True)
class Course:
    """One series over steps.

    Attributes:
        steps: Positions of the steps in which more is lost than usual; none if it is steady.
        usual: What it is in the other steps; of one that grows or falls its least end.
        excess: Shape (steps of the series,), beyond the usual in these steps, 0 in the others.
        events_n: Events, steps in a row being one; 0 where it is a level or a line.
        period: Distance of events that are evenly spaced.
    """

    kind: Kind
    steps: IntArray
    usual: float
    excess: FloatArray
    events_n: int = 0
    period: int | None = None


@dataclass(frozen=True)
class _Fit:
    """Fitted values, and which steps are above the usual; both of shape (steps,)."""

    kind: Kind
    values: FloatArray
    usual: float
    above: _Mask = field(repr=False)


def courses(values: FloatArray, step: float, series_n: int = 1) -> list[Course]:
    """Tell the course of each of some alike series.

    Args:
        values: Shape (series, steps).
        step: Length of a usual step, in the unit of the values.
        series_n: How many series of a job are looked at, these and others.
    """
    if values.shape[1] < 2 * _LEAST_STEPS or step <= 0:
        return [_steady(row) for row in values]
    strict = min(1.0, (_SERIES / max(series_n, len(values))) ** _STRICT)
    tries = [_Level.of(row, step) for row in values]
    noise = Noise.of([item.rest for item in tries], strict)
    fits = [_fitted(row, item, step, noise) for row, item in zip(values, tries, strict=True)]
    rest = np.array([row - fit.values for row, fit in zip(values, fits, strict=True)])
    hits = _events(rest, step)
    if len(values) > 1 and not hits.any() and {fit.kind for fit in fits} == {STEADY}:
        low, hits = _turns(values, step)
        fits = [replace(fit, values=fit.values * 0 + it) for fit, it in zip(fits, low, strict=True)]
    return [_course(*some) for some in zip(values, fits, hits, strict=True)]


def level_words(kind: Kind, first: int, last: int) -> str | None:
    """Return in which steps a level or line is, as sentences have it; None of other kinds."""
    return {
        "from": f"from step {first} on",
        "until": f"until step {last}",
        "between": f"in steps {first}-{last}",
        "grows": "more and more",
    }.get(kind)


def _steady(row: FloatArray) -> Course:
    usual = float(np.median(row)) if row.size else 0.0
    return Course(STEADY, np.empty(0, dtype=np.int64), usual, np.zeros(row.size))


def _course(row: FloatArray, fit: _Fit, hit: _Mask) -> Course:
    """Return what weighs more: the level or line, or the events on top of it."""
    level = np.where(fit.above, np.where(hit, fit.values, row) - fit.usual, 0.0)
    extra = np.where(hit, row - fit.values, 0.0)
    if fit.kind != STEADY and level.sum() >= extra.sum():
        steps = np.flatnonzero(fit.above)
        return Course(fit.kind, steps, fit.usual, level)
    if not hit.any():
        return _steady(row)
    starts = np.flatnonzero(hit & ~np.r_[False, hit[:-1]])
    if starts[0] == 0 and starts.size == 1 and _decays(extra[: int(hit.sum())]):
        return _steady(row)
    steps, period = np.flatnonzero(hit), period_of(starts, row.size)
    kind: Kind = "once" if starts.size == 1 else "every" if period else "times"
    return Course(kind, steps, float(np.median(row[~hit])), extra, starts.size, period)


@dataclass(frozen=True)
class _Level:
    """The change of level that fits a series best; of a long one by the medians of blocks.

    Attributes:
        edges: Of the blocks, by step.
        inside: Those in which it is another level; none of a series that changes too little.
    """

    edges: IntArray
    some: FloatArray
    inside: _Mask
    level: FloatArray
    line: FloatArray

    @classmethod
    def of(cls, row: FloatArray, step: float) -> _Level:
        """Fit it."""
        blocks_n = min(row.size, _MOST_BLOCKS)
        edges = np.linspace(0, row.size, blocks_n + 1).astype(np.int64)
        some = row
        if blocks_n < row.size:
            some = np.array([np.median(part) for part in np.split(row, edges[1:-1])])
        usual, inside = float(np.median(some)), np.zeros(blocks_n, dtype=bool)
        level = np.full(blocks_n, usual)
        running = np.lib.stride_tricks.sliding_window_view(some, _LEAST_STEPS)
        if float(np.ptp(np.median(running, axis=1))) >= _LEAST_CHANGE * step:
            most = 5 * max(scaled_mad(some - usual), 1e-9 * step)
            inside = _best_part(np.clip(some, usual - most, usual + most))
            level = np.where(inside, np.median(some[inside]), np.median(some[~inside]))
        return cls(edges, some, inside, level, _line(some) if inside.any() else level)

    @cached_property
    def is_line(self) -> bool:
        """Whether the line is nearer."""
        far, of_line = (np.abs(self.some - it).sum() for it in (self.level, self.line))
        return bool(of_line < far)

    @property
    def rest(self) -> FloatArray:
        """What lies beyond what is nearer."""
        return self.some - (self.line if self.is_line else self.level)

    @property
    def is_whole(self) -> bool:
        """Whether each step is a block."""
        return self.some.size == self.edges[-1]


def _fitted(row: FloatArray, level: _Level, step: float, noise: Noise) -> _Fit:
    """Return the level or the line that a series has."""
    usual = float(np.median(row))
    flat = _Fit(STEADY, np.full(row.size, usual), usual, np.zeros(row.size, dtype=bool))
    if not level.inside.any():
        return flat
    some = level.some
    if not level.is_line:
        return (_of_level(row, level) if _is_level(level, step, noise) else None) or flat
    line = level.line
    large = abs(line[-1] - line[0]) >= _LEAST_GROWTH * step
    if not large or noise.chance(some, line, line) > noise.strict * _ALPHA:
        return flat
    whole = np.interp(np.arange(row.size), (level.edges[:-1] + level.edges[1:] - 1) / 2, line)
    kind: Kind = "grows" if line[-1] > line[0] else "falls"
    return _Fit(kind, whole, float(whole.min()), np.ones(row.size, dtype=bool))


def _of_level(row: FloatArray, level: _Level) -> _Fit | None:
    """Return a change of level as a fit; None where it is a warm-up, or less for some steps."""
    low, high = float(level.level.min()), float(level.level.max())
    above = level.level == high
    if not level.is_whole:
        above = _exact(row, level.edges, above, (high + low) / 2)
    kind: Kind = "until" if above[0] else "from" if above[-1] else "between"
    if above[0] and (above[-1] or _decays(row[above] - low)):
        return None
    return _Fit(kind, np.where(above, high, low), low, above)


def _best_part(values: FloatArray) -> _Mask:
    """Return the run of steps whose mean is farthest from that of the others, by least squares."""
    n = values.size
    sums = np.r_[0.0, np.cumsum(values - values.mean())]
    at = np.arange(n + 1)
    length = at[None, :] - at[:, None]
    others = n - length
    fits = (length >= _LEAST_STEPS) & (others >= _LEAST_STEPS)
    gain = np.where(fits, (sums[None, :] - sums[:, None]) ** 2, 0.0)
    gain /= np.where(fits, length * others, 1) / n
    one = np.concatenate((gain[0], gain[:, n]))
    whole = float(((values - values.mean()) ** 2).sum())
    if (whole - gain.max()) * (1 + _LESS_REST / n) > whole - one.max():
        best = int(one.argmax())
        first, last = (0, best) if best <= n else (best - n - 1, n)
    else:
        first, last = divmod(int(gain.argmax()), n + 1)
    inside = np.zeros(n, dtype=bool)
    inside[first:last] = True
    return inside


def _is_level(fit: _Level, step: float, noise: Noise) -> bool:
    """Tell whether a change of level is one: large, sharp, of most of its steps, and no chance."""
    values, level, inside = fit.some, fit.level, fit.inside
    change = abs(float(level[inside][0] - level[~inside][0]))
    if change < max(_LEAST_CHANGE * step, _LEAST_MADS * scaled_mad(fit.rest)):
        return False
    # Events that lie close together are no level.
    nearer = np.abs(fit.rest) < change / 2
    if min(nearer[inside].mean(), nearer[~inside].mean()) < _OF_ITS_LEVEL:
        return False
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    # Of two lengths that take turns at random, some part has more of one.
    own = np.abs(values - (level[inside][0] + level[~inside][0] - level)) > _CLEAR * change
    as_inside = own == inside
    outer, inner = ((int(as_inside[of].sum()), int(of.sum())) for of in (~inside, inside))
    places_n = values.size**edges.size / edges.size
    if not own.all() and places_n * fisher_p(outer, inner) > noise.strict * _ALPHA_MIXED:
        return False
    for edge in edges.tolist():
        before, after = values[max(edge - _LEAST_STEPS, 0) : edge], values[edge:][:_LEAST_STEPS]
        if abs(float(np.median(after) - np.median(before))) < _SHARP * change:
            return False
    # A part between two edges has more places where it could be, the shorter the more.
    part = min(inside.mean(), 1 - inside.mean()) * _TWO_SIDED if edges.size > 1 else 1.0
    return noise.chance(values, level, inside.astype(np.float64)) <= part * noise.strict * _ALPHA


def _exact(row: FloatArray, edges: IntArray, above: _Mask, middle: float) -> _Mask:
    """Return the steps of some blocks, each change at the step in its blocks that parts best."""
    exact = np.repeat(above, np.diff(edges))
    for change in (np.flatnonzero(above[1:] != above[:-1]) + 1).tolist():
        low, high = int(edges[change - 1]), int(edges[min(change + 1, edges.size - 1)])
        side = np.where(row[low:high] > middle, 1, -1)
        sums = np.r_[0, np.cumsum(side)]
        best = int(sums.argmin() if above[change] else sums.argmax())
        exact[low : low + best] = above[change - 1]
        exact[low + best : high] = above[change]
    return exact


def _line(values: FloatArray) -> FloatArray:
    """Return the line after Theil and Sen.

    Source: P. K. Sen, Journal of the American Statistical Association 63 (1968).
    """
    first, second = np.triu_indices(values.size, 1)
    slope = float(np.median((values[second] - values[first]) / (second - first)))
    rise: FloatArray = slope * (np.arange(values.size, dtype=np.float64) - (values.size - 1) / 2)
    return rise + float(np.median(values - rise))


def _events(rest: FloatArray, step: float) -> _Mask:
    """Return the steps of each series that are far above it; all series together tell what is far.

    Args:
        rest: Shape (series, steps), beyond levels and lines.
    """
    scales = np.array([max(scaled_mad(row - np.median(row)), 1e-3 * step) for row in rest])
    scales = np.maximum(scales, _LEAST_SCALE * np.median(scales))
    least = np.maximum(_EVENT_MADS * scales, _EVENT_SHARE * step)
    hits: _Mask = rest > least[:, None]
    hits &= hits.mean(axis=1, keepdims=True) <= _MOST_EVENTS
    beyond = rest / scales[:, None]
    for row in range(len(rest)):
        tail = beyond[row][beyond[row] > _TAIL_MADS]
        hits[row] &= beyond[row][hits[row]].sum() >= _EVENTS_HOLD * tail.sum()
    tails = np.clip(beyond - _TAIL_MADS, 0, None)
    if tails[hits].sum() < _EVENTS_HOLD * tails.sum():
        hits[:] = False
    return hits


def _turns(values: FloatArray, step: float) -> tuple[FloatArray, _Mask]:
    """Return what few series have without events that come in turns, and these events.

    Of two or three series each has events in many of its steps, so its usual is its lower half's.
    """
    low = np.quantile(values, 0.25, axis=1, keepdims=True)
    beyond = values - low
    lower = np.where(values <= np.median(values, axis=1, keepdims=True), np.abs(beyond), np.nan)
    scale = np.maximum(2 * MAD_SCALE * np.nanmedian(lower, axis=1, keepdims=True), 1e-3 * step)
    hits = beyond > np.maximum(_EVENT_MADS * scale, _EVENT_SHARE * step)
    at, tails = hits.any(axis=0), np.clip(beyond / scale - _TAIL_MADS, 0, None)
    alone = float(np.mean(hits.sum(axis=0)[at] == 1)) if at.any() else 0.0
    holds = tails[hits].sum() >= _EVENTS_HOLD * tails.sum()
    most = hits.mean(axis=1).max()
    if not (hits.any(axis=1).all() and alone >= _EVENTS_HOLD and holds and most <= _MOST_IN_TURNS):
        hits = np.zeros_like(hits)
    return low[:, 0], hits


def period_of(starts: IntArray, steps_n: int) -> int | None:
    """Return the distance of events that are evenly spaced through all steps."""
    if starts.size < 3:
        return None
    apart = np.diff(starts)
    mean = float(apart.mean())
    even = bool((np.abs(apart - mean) <= _EVEN * mean).all())
    through = starts[0] <= mean * (1 + _EVEN) and steps_n - starts[-1] <= mean * (1 + _EVEN) + 1
    return round(mean) if even and through and mean > 1 else None


def _decays(excess: FloatArray) -> bool:
    """Tell whether a beginning loses half of its excess from its first third to its last."""
    if excess.size < 2:
        return True
    part = max(excess.size // 3, 1)
    first, last = float(np.median(excess[:part])), float(np.median(excess[-part:]))
    return last < _DECAYS * first
