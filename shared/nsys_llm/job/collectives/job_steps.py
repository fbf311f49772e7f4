"""Which steps of devices are one step of the job, by the collectives that they have together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.steps import DeviceSteps

#: Share of the collectives of two devices that agree on which of their steps are one; ours.
LEAST_AGREEING: Final = 0.9


def usual_difference(differences: IntArray) -> tuple[int, float]:
    """Return the most frequent difference, the least of several, and its share; (0, 0) of none."""
    if not differences.size:
        return 0, 0.0
    values, counts = np.unique(differences, return_counts=True)
    best = int(counts.argmax())
    return int(values[best]), float(counts[best] / differences.size)


def ahead_of_first(
    agreed: Mapping[tuple[int, int], int], places: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """Return for each place the first one that it is linked with, and how far it is ahead of that.

    Args:
        agreed: By two places: how far the second is ahead of the first.
    """
    links: dict[int, list[tuple[int, int]]] = {}
    for (left, right), ahead in agreed.items():
        links.setdefault(left, []).append((right, ahead))
        links.setdefault(right, []).append((left, -ahead))
    found: dict[int, tuple[int, int]] = {}
    for first in places:
        ends = [] if first in found else [first]
        found.setdefault(first, (first, 0))
        while ends:
            here = ends.pop()
            for there, ahead in links.get(here, ()):
                if there not in found:
                    found[there] = first, found[here][1] + ahead
                    ends.append(there)
    return found


def window_at(window_ns: IntArray, at_ns: IntArray) -> IntArray:
    """Return in which window operations end, by their ends; -1 for none."""
    row = np.searchsorted(window_ns[:, 0], at_ns, side="left") - 1
    inside = (row >= 0) & (at_ns <= window_ns[np.maximum(row, 0), 1])
    return np.where(inside, row, -1)


@dataclass(frozen=True)
class JobSteps:
    """The steps of a job; devices are named by their positions in `collectives.devices`.

    Attributes:
        windows: Of each device; None for one whose steps are not known.
    """

    collectives: MatchedCollectives
    windows: Sequence[DeviceSteps | None]

    def of(self, owner: int, end_ns: IntArray) -> IntArray:
        """Return the step of the job in which operations of a device end; NULL_INT for none."""
        step = self._own(owner, end_ns)
        number = step - self._ahead_n.get(owner, 0)
        known = (step >= 0) & (number >= 0) & (owner in self._ahead_n)
        return np.where(known, number, NULL_INT)

    def rows(self, owner: int, steps: IntArray) -> IntArray:
        """Return the rows of a device's windows that are steps of the job."""
        return steps + self._ahead_n[owner]

    def whole(self, owners: Iterable[int]) -> IntArray | None:
        """Return the steps that some devices all have whole; None where they have no steps."""
        whole: set[int] | None = None
        for owner in owners:
            windows = self.windows[owner]
            if windows is None or owner not in self._ahead_n:
                return None
            number = np.flatnonzero(windows.whole) - self._ahead_n[owner]
            own = set(number[number >= 0].tolist())  # as `of` numbers them
            whole = own if whole is None else whole & own
        return np.array(sorted(whole or ()), dtype=np.int64)

    def _own(self, owner: int, end_ns: IntArray) -> IntArray:
        windows = self.windows[owner]
        if windows is None or not windows.has_steps:
            return np.full(end_ns.shape, -1)
        return window_at(windows.window_ns, end_ns)

    @cached_property
    def _ahead_n(self) -> Mapping[int, int]:
        """By how many steps each device is ahead of the first one that it is linked with.

        A device is not there where it has no steps.
        """
        places = [at for at, steps in enumerate(self.windows) if steps and steps.has_steps]
        return {place: ahead for place, (_, ahead) in ahead_of_first(self._agreed, places).items()}

    @cached_property
    def _agreed(self) -> dict[tuple[int, int], int]:
        """By how many steps the second of two devices is ahead, where collectives agree."""
        parts: dict[tuple[int, int], list[IntArray]] = {}
        for sequence in self.collectives.sequences:
            first, *others = [
                self._own(owner, sequence.own_end_ns(place))
                for place, owner in enumerate(sequence.owners)
            ]
            for owner, own in zip(sequence.owners[1:], others, strict=True):
                apart = (own - first)[(first >= 0) & (own >= 0)]
                parts.setdefault((sequence.owners[0], owner), []).append(apart)
        usual = {pair: usual_difference(np.concatenate(some)) for pair, some in parts.items()}
        return {pair: ahead for pair, (ahead, share) in usual.items() if share >= LEAST_AGREEING}
