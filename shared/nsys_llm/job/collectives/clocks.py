"""Offsets between the clocks of several reports, from the ends of what their ranks did together.

All ranks of a collective leave it at almost the same time, whenever each of them came. The median
over the collectives of how far apart two reports see that end is what their clocks differ by, or,
where it changes steadily, the line through it (see `clock_lines`). Ranks in one report share its
clock. Reports that never meet are linked through those that both meet.
What this cannot tell from an offset: a rank that always leaves later than the others, by as much.
Source of the method: JAX-Toolbox nsys_jax, which aligns devices by the ends of collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final

import numpy as np

from nsys_llm.job.collectives.cohesion import middle
from nsys_llm.numeric.clock_lines import ClockLine, fitted_line, lower_median
from nsys_llm.numeric.intervals import IntArray

#: Fewer collectives than these say little about a clock.
_FEW: Final = 3
#: Keeps fractions of a squared nanosecond apart in integers.
_ERROR_SCALE: Final = 1_000_000


@dataclass(frozen=True)
class Meeting:
    """Collectives that some ranks had together.

    Attributes:
        clock: The report of each rank, by position.
        end_ns: When each rank left them, in its report's clock; shape (collectives,) each.
    """

    clock: tuple[int, ...]
    end_ns: tuple[IntArray, ...]

    def ends_by_clock(self) -> dict[int, IntArray]:
        """Return the median end of each report's ranks (the lower one), in the order of clocks."""
        by_clock: dict[int, list[IntArray]] = {}
        for clock, ends in zip(self.clock, self.end_ns, strict=True):
            by_clock.setdefault(clock, []).append(ends)
        return {clock: middle(np.stack(by_clock[clock])) for clock in sorted(by_clock)}


@dataclass(frozen=True)
class ClockFit:
    """The clock of one report.

    Attributes:
        offset_ns: How far it is ahead of the root's clock, at `at_ns`.
        residual_ns: Median distance of single ends from that, summed over the links to the root.
        collectives_n: How many the offset is the median of.
        root: The report whose clock is the measure; itself where it meets nobody.
        rate: How much faster it runs than the root's; 0 where no drift is told.
        at_ns: An instant on this clock, in the middle of the collectives; 0 without a drift.
    """

    offset_ns: int
    residual_ns: int
    collectives_n: int
    root: int
    rate: float = 0.0
    at_ns: int = 0

    @property
    def line(self) -> ClockLine:
        """How far it is ahead of the root's clock, over time."""
        return ClockLine(self.offset_ns, self.rate, self.at_ns)


@dataclass(frozen=True)
class _ClockLink:
    """What two reports' clocks differ by.

    Attributes:
        few: Whether it rests on too few collectives.
        error: Square of the error of the median, as far as it falls with the collectives.
    """

    few: bool
    error: int
    residual_ns: int
    left: int
    right: int
    collectives_n: int
    line: ClockLine


def fit_clocks(meetings: Sequence[Meeting], clocks_n: int) -> list[ClockFit]:
    """Return how far each clock is ahead, linking reports by the surest collectives.

    Returns:
        One per report. The root of reports that are linked is the first of them.
    """
    links: dict[int, dict[int, _ClockLink]] = {clock: {} for clock in range(clocks_n)}
    group = list(range(clocks_n))
    every = (link for each in meetings for link in _links(each))
    surest = sorted(every, key=astuple)
    for link in surest:
        left, right = group[link.left], group[link.right]
        if left != right:
            group = [min(left, right) if item in (left, right) else item for item in group]
            links[link.left][link.right] = links[link.right][link.left] = link
    fits: dict[int, ClockFit] = {}
    for clock in range(clocks_n):
        if clock not in fits:
            _follow(clock, links, fits)
    return [fits[clock] for clock in range(clocks_n)]


def residual_ns(meeting: Meeting, lines: Sequence[ClockLine]) -> int:
    """Return how well the ends of collectives agree between reports: the worst report's median.

    Returns:
        0 where all ranks are in one report: one clock has no offset.
    """
    (first, ends), *others = meeting.ends_by_clock().items()
    ends = ends - lines[first].ahead_ns(ends)
    apart = (theirs - lines[clock].ahead_ns(theirs) - ends for clock, theirs in others)
    return max((lower_median(np.abs(item)) for item in apart), default=0)


def _links(meeting: Meeting) -> list[_ClockLink]:
    """Return the first report's link with each of the others."""
    if meeting.end_ns[0].size == 0:
        return []
    (first, ends), *others = meeting.ends_by_clock().items()
    links = []
    for clock, theirs in others:
        line, spread_ns = fitted_line(theirs, theirs - ends)
        n = ends.size
        error = _ERROR_SCALE * spread_ns**2 // n
        links.append(_ClockLink(n < _FEW, error, spread_ns, first, clock, n, line))
    return links


def _follow(
    root: int, links: Mapping[int, Mapping[int, _ClockLink]], fits: dict[int, ClockFit]
) -> None:
    fits[root] = ClockFit(0, 0, 0, root)
    waiting = [root]
    while waiting:
        here = waiting.pop()
        for there, link in links[here].items():
            if there in fits:
                continue
            line = link.line if link.left == here else link.line.reversed()
            line = line.after(fits[here].line)
            fits[there] = ClockFit(
                line.offset_ns,
                fits[here].residual_ns + link.residual_ns,
                link.collectives_n,
                root,
                line.rate,
                line.at_ns,
            )
            waiting.append(there)
