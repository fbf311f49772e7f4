"""How far one clock is ahead of another, as a line over time: an offset and a rate. Pure numpy.

Quartz clocks differ by up to some tens of millionths: 5 ppm are 100 us after 20 s. The line goes
through the distances of what both clocks saw at the same instant; its rate is the median slope
between medians of parts of the time (Theil and Sen), so that single instants move neither. A rate
that chance or the scatter explains is none, and the line is the median distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: Fewer instants than these tell no rate; ours.
LEAST_OF_A_RATE: Final = 8
#: Two clocks differ by no more: quartz is good to 100 ppm, and two of them may differ in either
#: direction.
MOST_RATE: Final = 200e-6
#: Parts of the time whose medians the slopes are taken between.
_PARTS: Final = 64
#: Standard errors that a rate has to exceed; ours.
_SURE: Final = 6.0
#: Standard error of the change along a line, in median distances of n instants from it, times the
#: root of n: 1.4826 (a median distance as a deviation) times the root of 12 (evenly spread
#: instants).
_ERROR: Final = 1.4826 * 12**0.5
#: A change over all the time that time stamps do not resolve.
_LEAST_NS: Final = 1_000
#: After so many, 200 ppm of a day are less than a nanosecond.
_LOOKS: Final = 5


@dataclass(frozen=True)
class ClockLine:
    """How far a clock is ahead of another.

    Attributes:
        offset_ns: At `at_ns`.
        rate: How much faster it runs; 0 where none is told.
        at_ns: An instant on the clock that is ahead; 0 without a rate.
    """

    offset_ns: int
    rate: float = 0.0
    at_ns: int = 0

    def ahead_ns(self, times_ns: IntArray) -> IntArray:
        """Return how far it is ahead at its own times, in whole ns."""
        if not self.rate:
            return np.full_like(times_ns, self.offset_ns)
        return self.offset_ns + np.rint((times_ns - self.at_ns) * self.rate).astype(np.int64)

    def reversed(self) -> ClockLine:
        """Return how far the other clock is ahead of this one."""
        if not self.rate:
            return ClockLine(-self.offset_ns)
        return ClockLine(-self.offset_ns, -self.rate / (1 - self.rate), self.at_ns - self.offset_ns)

    def after(self, other: ClockLine) -> ClockLine:
        """Return how far it is ahead of a third clock.

        Args:
            other: How far the clock that this one is ahead of is ahead of the third.
        """
        rate = self.rate + other.rate - self.rate * other.rate
        if not self.rate and not other.rate:
            return ClockLine(self.offset_ns + other.offset_ns)
        at_ns = self.at_ns if self.rate else other.at_ns + self.offset_ns
        between = int(other.ahead_ns(np.array([at_ns - self.offset_ns]))[0])
        return ClockLine(self.offset_ns + between, rate, at_ns)


def fitted_line(times_ns: IntArray, apart_ns: IntArray) -> tuple[ClockLine, int]:
    """Return the line through distances of two clocks, and the median distance from it.

    Args:
        times_ns: Shape (n,), at least one, ascending; the clock that is ahead.
        apart_ns: Shape (n,), how far it is ahead.
    """
    offset_ns = lower_median(apart_ns)
    spread_ns = lower_median(np.abs(apart_ns - offset_ns))
    level = ClockLine(offset_ns), spread_ns
    rate = _rate(times_ns, apart_ns) if times_ns.size >= LEAST_OF_A_RATE else 0.0
    if not rate:
        return level
    at_ns = int(times_ns[(times_ns.size - 1) // 2])
    turned = apart_ns - ClockLine(0, rate, at_ns).ahead_ns(times_ns)
    line = ClockLine(lower_median(turned), rate, at_ns)
    left_ns = lower_median(np.abs(turned - line.offset_ns))
    change_ns = abs(rate) * float(times_ns[-1] - times_ns[0])
    error_ns = _ERROR * left_ns / times_ns.size**0.5
    reported = left_ns < spread_ns and change_ns > max(_SURE * error_ns, left_ns, _LEAST_NS)
    return (line, left_ns) if reported else level


def lower_median(values: IntArray) -> int:
    """Return the lower median, an element of the values (at least one)."""
    middle = (values.size - 1) // 2
    return int(np.partition(values, middle)[middle])


def _rate(times_ns: IntArray, apart_ns: IntArray) -> float:
    """Return the median slope between the medians of parts; 0 where no clock has such a rate."""
    each_n = max(times_ns.size // _PARTS, 1)
    parts_n = times_ns.size // each_n
    skipped_n = (times_ns.size - each_n * parts_n) // 2
    used = slice(skipped_n, skipped_n + each_n * parts_n)
    middle = (each_n - 1) // 2
    at = times_ns[used].reshape(parts_n, each_n)[:, middle]
    parts = apart_ns[used].reshape(parts_n, each_n)
    medians = np.partition(parts, middle, axis=1)[:, middle]
    first, second = np.triu_indices(parts_n, 1)
    run, rise = at[second] - at[first], medians[second] - medians[first]
    slopes: npt.NDArray[np.float64] = rise[run > 0] / run[run > 0]
    rate = float(np.median(slopes)) if slopes.size else 0.0
    return rate if abs(rate) <= MOST_RATE else 0.0


def own_times_ns(on_axis: Callable[[IntArray], IntArray], wanted_ns: IntArray) -> IntArray:
    """Return the times of a clock that are at some times of an axis, shape (n,).

    Args:
        on_axis: Where times of the clock are on the axis; it drifts by `MOST_RATE` at most.
        wanted_ns: Shape (n,), times of the axis.
    """
    own_ns = np.zeros_like(wanted_ns)
    # Clocks drift: each look where the time seems to be leaves some ppm of the error.
    for _ in range(_LOOKS):
        own_ns = own_ns + wanted_ns - on_axis(own_ns)
    return own_ns
