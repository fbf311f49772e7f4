"""The devices of a job, as all tables need them: pipelines, steps, parts of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nsys_llm.facts.nccl.rank import CommDevice, RankComm
from nsys_llm.facts.nccl.sizes import RankCalls, Sizes
from nsys_llm.job.collectives.chains import Chain, find_chains
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.collectives.stages import Stages, find_stages
from nsys_llm.job.job_steps import JobSteps
from nsys_llm.job.ranks.peers import COMMON, in_common
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.identity import RankKey


@dataclass(frozen=True)
class CommJob:
    """All devices that communicate; each is its position in `collectives.devices`."""

    collectives: MatchedCollectives
    ranks: Mapping[RankKey, RankComm]

    @cached_property
    def stages(self) -> Stages:
        """The pipelines."""
        return find_stages(self.collectives)

    @cached_property
    def chains(self) -> list[Chain]:
        """Their stages in order, and their schedules."""
        return find_chains(self.stages, self.steps)

    @cached_property
    def work(self) -> tuple[CommDevice, ...]:
        """What each device did."""
        by_place = {
            (key, device.device_id): device
            for key, rank in self.ranks.items()
            for device in rank.devices
        }
        return tuple(by_place[item.rank.key, item.device_id] for item in self.collectives.devices)

    @cached_property
    def steps(self) -> JobSteps:
        """Which of their steps are one."""
        return JobSteps(self.collectives, self.work)

    @cached_property
    def whole_steps(self) -> IntArray:
        """The steps that all devices with steps have whole; shape (steps,)."""
        whole = self.steps.whole(at for at, device in enumerate(self.work) if device.has_steps)
        return np.empty(0, dtype=np.int64) if whole is None else whole

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """The number of the model part that each device runs, stages apart from parts.

        Devices of one have 90 % of their operations in common, communication left out. Each is
        compared with the first one of each part.
        """
        rules = rules_for({name for device in self.work for name, _ in device.launches})
        mixes: list[Mapping[str, float]] = []
        parts = []
        for device in self.work:
            counts: dict[str, int] = {}
            for name, launches_n in device.launches:
                if not is_communication(name):
                    kind = rules.classify(name).operation or name
                    counts[kind] = counts.get(kind, 0) + launches_n
            whole = max(sum(counts.values()), 1)
            mix = {kind: launches_n / whole for kind, launches_n in counts.items()}
            same = (at for at, first in enumerate(mixes) if in_common(first, mix) >= COMMON)
            parts.append(next(same, len(mixes)))
            if parts[-1] == len(mixes):
                mixes.append(mix)
        return tuple(parts)

    def calls(self, owner: int) -> tuple[RankCalls, Sizes]:
        """Return NCCL's calls of a device's rank, and its own communication kernels."""
        device = self.collectives.devices[owner]
        calls = self.ranks[device.rank.key].calls
        return calls, next(some for some in calls.devices if some.device_id == device.device_id)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """What a layout calls each device: its rank, or its place where each rank has several."""
        ranks = tuple(map(self.rank, range(len(self.work))))
        devices_n = set(Counter(ranks).values())
        return ranks if 1 in devices_n or len(devices_n) > 1 else tuple(range(len(ranks)))

    def rank(self, owner: int) -> int:
        """Return the number of a device's rank."""
        return self.collectives.devices[owner].rank.number or 0

    def who(self, owner: int) -> dict[str, Any]:
        """Return the columns that name a device."""
        device = self.collectives.devices[owner]
        return {**of_rank(device.rank), "device_id": device.device_id}
