"""The devices of a job on its clock: their steps, and which steps of theirs are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives, Sequenced
from nsys_llm.analyses.collectives.stages import Stages, find_stages
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import RankKey

from ..partials import RankComm
from ..per_rank.experts import ExpertWork
from ..per_rank.steps import DeviceSteps
from .model_parts import model_parts

#: Share of the collectives of two devices that agree on which of their steps are one; as in
#: step_budget.
_LEAST_AGREEING: Final = 0.9


@dataclass(frozen=True)
class Job:
    """All devices that communicate; they are told by their positions in `collectives.devices`.

    Attributes:
        collectives: Of all ranks.
        ranks: What is known of each.
    """

    collectives: MatchedCollectives
    ranks: Mapping[RankKey, RankComm]

    @cached_property
    def stages(self) -> Stages:
        """The pipelines."""
        return find_stages(self.collectives)

    @cached_property
    def steps(self) -> tuple[DeviceSteps, ...]:
        """The steps of each device."""
        by_place = {
            (key, device.device_id): device
            for key, rank in self.ranks.items()
            for device in rank.devices
        }
        return tuple(by_place[item.rank.key, item.device_id] for item in self.collectives.devices)

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """The part of the model that each device runs."""
        return model_parts(self.steps)

    def experts(self, owner: int) -> ExpertWork | None:
        """Return what a device that exchanges tokens has of experts; None without kernels."""
        device = self.collectives.devices[owner]
        every = self.ranks[device.rank.key].experts
        return next((work for work in every if work.device_id == device.device_id), None)

    def rank(self, owner: int) -> int:
        """Return the number of a device's rank."""
        return self.collectives.devices[owner].rank.number or 0

    def own_end_ns(self, sequence: Sequenced, place: int) -> IntArray:
        """Return when a member left each collective, its report's clock."""
        return sequence.end_ns[place] + sequence.ahead_ns[place]

    @cached_property
    def ahead_n(self) -> Mapping[int, int]:
        """By how many steps each device is ahead of the first one that it is linked with.

        A device is not there where it has no steps, or collectives do not agree.
        """
        links: dict[int, dict[int, int]] = {}
        for (left, right), ahead in self._agreed.items():
            links.setdefault(left, {})[right] = ahead
            links.setdefault(right, {})[left] = -ahead
        ahead_n: dict[int, int] = {}
        for first, device in enumerate(self.steps):
            if first in ahead_n or not device.has_steps:
                continue
            ahead_n[first] = 0
            ends = [first]
            while ends:
                here = ends.pop()
                for there, ahead in links.get(here, {}).items():
                    if there not in ahead_n:
                        ahead_n[there] = ahead_n[here] + ahead
                        ends.append(there)
        return ahead_n

    @property
    def _agreed(self) -> dict[tuple[int, int], int]:
        """By how many steps the second of two devices is ahead, where collectives agree."""
        votes: dict[tuple[int, int], dict[int, int]] = {}
        for sequence in self.collectives.sequences:
            own = [
                self.steps[owner].step_at(self.own_end_ns(sequence, place))
                for place, owner in enumerate(sequence.owners)
            ]
            for place in range(1, len(own)):
                both = (own[0] >= 0) & (own[place] >= 0)
                values, counts = np.unique((own[place] - own[0])[both], return_counts=True)
                tally = votes.setdefault((sequence.owners[0], sequence.owners[place]), {})
                for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                    tally[value] = tally.get(value, 0) + count
        best = {
            pair: max(tally, key=lambda item: tally[item]) for pair, tally in votes.items() if tally
        }
        return {
            pair: ahead
            for pair, ahead in best.items()
            if votes[pair][ahead] >= _LEAST_AGREEING * sum(votes[pair].values())
        }

    def job_step(self, owner: int, end_ns: IntArray) -> IntArray:
        """Return the step of the job in which operations of a device end; NULL_INT for none."""
        step = self.steps[owner].step_at(end_ns)
        if owner not in self.ahead_n:
            return np.full(step.shape, NULL_INT)
        number = step - self.ahead_n[owner]
        return np.where((step >= 0) & (number >= 0), number, NULL_INT)

    def whole_steps(self, owners: tuple[int, ...]) -> IntArray | None:
        """Return the steps of the job that some devices all have whole; None without steps."""
        whole: set[int] | None = None
        for owner in owners:
            if owner not in self.ahead_n:
                return None
            own = set((np.flatnonzero(self.steps[owner].whole) - self.ahead_n[owner]).tolist())
            whole = own if whole is None else whole & own
        return np.array(sorted(whole or ()), dtype=np.int64)

    def row_of(self, owner: int, step: IntArray) -> IntArray:
        """Return the rows of a device's windows that are steps of the job."""
        return step + self.ahead_n[owner]
