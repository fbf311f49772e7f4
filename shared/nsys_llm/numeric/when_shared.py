"""How ranks share what their steps lose: one of them, together, in turns, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from nsys_llm.numeric.when import EVENTS, STEADY, Course, FloatArray, Kind, period_of

Sharing = Literal["one", "together", "turns", "after", "several"]

#: A rank is named if it holds so much of what is lost; ranks share a step if so many have it.
_NAMED: Final = 0.6
#: Part of the steps that several ranks may have where each has its own.
_FEW: Final = 0.1


@dataclass(frozen=True)
class Shared:
    """How ranks share what a job loses.

    Attributes:
        ranks: Rows of the ranks that have it, in the order of their first steps.
        job: The course of what the job loses: in each step the most of any rank, or of ranks that
            do not meet the sum.
    """

    sharing: Sharing
    ranks: tuple[int, ...]
    job: Course
    parts: Sequence[Course]


def shared(some: Sequence[Course], *, meet: bool = True) -> Shared | None:
    """Tell how ranks share what they lose; None where all are steady.

    Args:
        meet: Whether each step waits for all of them.
    """
    rows = [row for row, course in enumerate(some) if course.kind != STEADY]
    if not rows:
        return None
    excess = np.array([some[row].excess for row in rows])
    lost = excess.max(axis=0) if meet else excess.sum(axis=0)
    has = np.array([np.isin(np.arange(lost.size), some[row].steps) for row in rows])
    held = np.where(excess >= excess.max(axis=0), excess, 0.0).sum(axis=1)
    alike = has.sum(axis=0)[has.any(axis=0)]
    order = sorted(rows, key=lambda row: (int(some[row].steps[0]), row))
    most = int(held.argmax())
    sharing: Sharing = "several"
    if len(rows) == 1:
        sharing = "one"
    elif float(np.mean(alike >= max(2, _NAMED * len(some)))) >= _NAMED:
        sharing = "together"
    elif held[most] >= _NAMED * held.sum():
        sharing = "one"
    elif float(np.mean(alike == 1)) >= 1 - _FEW:
        sharing = "turns" if all(some[row].kind in EVENTS for row in rows) else "after"
    if sharing == "one":
        order = [rows[most]]
        return Shared(sharing, (rows[most],), some[rows[most]], some)
    return Shared(sharing, tuple(order), _union(some, rows, lost, sharing), some)


def _union(
    some: Sequence[Course], rows: Sequence[int], lost: FloatArray, sharing: Sharing
) -> Course:
    largest = max((some[row] for row in rows), key=lambda course: float(course.excess.sum()))
    steps = np.unique(np.concatenate([some[row].steps for row in rows]))
    if largest.kind not in EVENTS:
        return Course(largest.kind, steps, largest.usual, lost)
    starts = steps[np.flatnonzero(np.diff(steps, prepend=-2) > 1)]
    period = None if sharing == "turns" else period_of(starts, lost.size)
    events_n = sum(some[row].events_n for row in rows) if sharing == "turns" else starts.size
    kind: Kind = "every" if period else "once" if events_n == 1 else "times"
    return Course(kind, steps, largest.usual, lost, events_n, period)
