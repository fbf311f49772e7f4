"""The clock of the job: instants of a profile on the clock that steps of the job are on, and back.

It begins when the profile of the first rank does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.experts import waits_for_experts
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.collectives.stages import Stages, find_stages
from nsys_llm.job.communication_split import communication_spans
from nsys_llm.numeric.clock_lines import own_times_ns
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import Rank, RankKey


@dataclass(frozen=True)
class JobClock:
    """The clocks of all profiles.

    Attributes:
        zero_ns: When the profile of the first rank begins, on the clock that all have in common.
    """

    collectives: MatchedCollectives
    zero_ns: int

    @classmethod
    def of(cls, collectives: MatchedCollectives, first: Rank) -> JobClock:
        """Align the clocks by the collectives of all ranks, of which `first` is the first."""
        return cls(collectives, cls(collectives, 0).common_ns(first, 0))

    def common_ns(self, rank: Rank, at_ns: int) -> int:
        """Return an instant of a rank's profile on the clock of the job."""
        return int(self._common_ns(rank, np.array([at_ns]))[0])

    def _common_ns(self, rank: Rank, at_ns: IntArray) -> IntArray:
        clock = self.collectives.clock_of[rank.key.path]
        return self.collectives.common_ns(clock, at_ns) - self.zero_ns

    def own_ns(self, rank: Rank, common_ns: int) -> int:
        """Return an instant of the job in the clock of a rank's profile."""
        wanted_ns = np.array([common_ns])
        return int(own_times_ns(lambda at_ns: self._common_ns(rank, at_ns), wanted_ns)[0])

    def communication(self, rank: RankKey, device_id: int) -> dict[str, IntArray]:
        """Return when a device waits and transfers, in its profile's clock.

        Returns:
            See `communication_spans`; nothing where the device does not communicate.
        """
        owner = self.collectives.owners.get((rank, device_id))
        if owner is None:
            return {}
        return communication_spans(self.collectives, owner, self.stages, self.experts)

    @cached_property
    def stages(self) -> Stages:
        """The pipelines of the job."""
        return find_stages(self.collectives)

    @cached_property
    def experts(self) -> Mapping[int, npt.NDArray[np.bool_]]:
        """Which collectives the job waits in for uneven experts."""
        return waits_for_experts(self.collectives)
