"""The steps of a job: what ranks call one, which are warm-up, which of devices are one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.outcomes import MapResult, ProfileOutcome
from nsys_llm.trace.steps import AGREED, DeviceSteps, StepKind, warmup_n

Key = TypeVar("Key", bound=Hashable)
#: Share of the collectives of two devices that agree on which of their steps are one; ours.
LEAST_AGREEING: Final = 0.9


@dataclass(frozen=True)
class CommonStep(Generic[Key]):
    """The choice of a group of ranks.

    Attributes:
        name: See `StepSpans`.
        others: What each rank calls a step that finds another one, or None where it finds none:
            such ranks are in no statistic of steps.
        warmup_n: How many of the first steps are warm-up, of all other ranks.
    """

    name: str
    unit: str
    others: Mapping[Key, str | None]
    warmup_n: int


def common_step(ranks: Mapping[Key, StepKind | None]) -> CommonStep[Key] | None:
    """Return the kind of step that most ranks find; None where none finds any.

    Of two that as many find, the one with more steps, then the first by name.
    """
    # One name may be found in two ways, by chance of what else a rank holds.
    votes: dict[tuple[str, str], list[int]] = {}
    for kind in ranks.values():
        if kind is not None:
            votes.setdefault((kind.name, kind.unit), []).append(kind.steps_n)
    if not votes:
        return None
    name, unit = min(votes, key=lambda key: (-len(votes[key]), -sum(votes[key]), key))
    others = {
        rank: None if kind is None else kind.name
        for rank, kind in ranks.items()
        if kind is None or (kind.name, kind.unit) != (name, unit)
    }
    begins = [kind.begin for rank, kind in ranks.items() if kind and rank not in others]
    return CommonStep(name, unit, others, warmup_n(begins))


def steps_of_groups(
    ranks: Mapping[Key, StepKind | None], group_of: Mapping[Key, int]
) -> dict[Key, CommonStep[Key]]:
    """Return what each rank calls a step whose group calls it so too; none of other ranks."""
    found: dict[Key, CommonStep[Key]] = {}
    for group in sorted(set(group_of.values())):
        kinds = {rank: kind for rank, kind in ranks.items() if group_of[rank] == group}
        if (common := common_step(kinds)) is not None:
            found |= {rank: common for rank in kinds if rank not in common.others}
    return found


def with_agreed_warmup(
    mapped: Callable[[Mapping[str, Any]], MapResult], options: Mapping[str, Any]
) -> tuple[MapResult, Mapping[str, Any]]:
    """Map ranks, and once more where they differ in which steps are warm-up; return the options.

    So that every recipe leaves out the same steps of all ranks. Few jobs are read twice.
    """
    result = mapped(options)
    if agreed := _agreed_warmup(result.profiles):
        options = {**options, AGREED: agreed}
        result = mapped(options)
    return result, options


def _agreed_warmup(profiles: Iterable[ProfileOutcome]) -> Mapping[str, tuple[str, int]]:
    sides: dict[str, dict[Hashable, StepKind | None]] = {}
    for rank in (rank for profile in profiles for rank in profile.ranks):
        sides.setdefault(rank.key.side, {})[rank.key] = rank.wall.step
    agreed = {}
    for side, ranks in sides.items():
        if (job := common_step(ranks)) is not None:
            begins = [kind.begin for rank, kind in ranks.items() if kind and rank not in job.others]
            if {warmup_n([begin]) for begin in begins} != {job.warmup_n}:
                agreed[side] = job.name, job.warmup_n
    return agreed


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
