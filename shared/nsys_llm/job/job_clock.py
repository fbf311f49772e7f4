"""The clock of the job, on which its steps are, and lines of a rank beside others on it.

It begins when the profile of the first rank does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.experts import waits_for_experts
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.collectives.stages import Stages, find_stages
from nsys_llm.job.communication_split import communication_spans
from nsys_llm.numeric.clock_lines import own_times_ns
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.timeline import Track


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


def collective_tracks(clock: JobClock, rank: Rank) -> Iterator[Track]:
    """Return a line for each device: when it waits for the last rank, and when it transfers."""
    for device in clock.collectives.devices:
        if device.rank.key != rank.key:
            continue
        spans = clock.communication(rank.key, device.device_id)
        name = np.repeat(np.arange(len(spans)), [len(span) for span in spans.values()])
        times = np.concatenate([*spans.values()])
        texts = (*spans,)
        yield Track.plain(f"GPU {device.device_id} collectives", "collective", times, texts, name)


def path_tracks(clock: JobClock, rank: Rank, path: Sequence[Mapping[str, Any]]) -> Iterator[Track]:
    """Return a line for the host and each device, of the rows `path` of step_budget where any."""
    # A step that is the median and the worst has two paths, which are the same.
    which = {row["step"]: row["which"] for row in path}
    here = [row for row in path if row["file"] == rank.file and row["which"] == which[row["step"]]]
    for device in dict.fromkeys(sorted({row["device_id"] for row in here}, key=str)):
        rows = [row for row in here if row["device_id"] == device]
        # Both edges on the job's clock: however a clock drifts, what follows begins where it ends.
        times = [[clock.own_ns(rank, row[edge]) for edge in ("start_ns", "end_ns")] for row in rows]
        texts = (*sorted({row["class"] for row in rows}),)
        yield Track.plain(
            "critical path, host" if device is None else f"GPU {device} critical path",
            "path",
            np.array(times, dtype=np.int64),
            texts,
            np.array([texts.index(row["class"]) for row in rows], dtype=np.int64),
            {
                "activity": [row["activity"] or None for row in rows],
                "edge": [row["edge"] for row in rows],
                "certain": [str(row["certain"]).lower() for row in rows],
                "step": [row["step"] for row in rows],
                "duration_ns": [row["duration_ns"] for row in rows],
            },
        )
