"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsys_llm.critical_path.job.meetings import RankPaths
from nsys_llm.critical_path.path.outline import Charges, Passages
from nsys_llm.facts.steps.steps import Beside
from nsys_llm.job.partial import CommunicationPartial
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.wall import idle_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import WallDetails, Walls, joined_details

from .per_rank.repeated_copies import RepeatedCopies
from .per_rank.windows import Windows


@dataclass(frozen=True)
class DeviceBudget(Windows):
    """One device of one rank; the profile's clock. `tail` is a segment of the rank's paths.

    Attributes:
        charges: What the path of each step charges inside the rank.
        passages: The time of these paths in communication; walks are steps.
        idle_ns: Shape (causes,), idle time as in idle_gaps; None where graphs hide what ran.
    """

    charges: Charges
    passages: Passages
    idle_ns: IntArray | None


@dataclass(frozen=True)
class RankBudget(RankPaths):
    """One rank.

    Attributes:
        has_wait_rows: Whether it is recorded what streams waited for.
        has_event_rows: Whether events are recorded, which makes such waits certain.
        clock_error_ns: By how much the clocks of host and GPU disagree at least.
        beside: Work that its steps launched and that is not of their pace.
        load: `Batches.load` of its steps.
    """

    devices: tuple[DeviceBudget, ...]
    has_wait_rows: bool
    has_event_rows: bool
    clock_error_ns: int
    load: IntArray
    copies: RepeatedCopies = field(default_factory=RepeatedCopies)
    beside: Beside | None = None


BudgetRows = Sequence[tuple[Rank, RankBudget]]


@dataclass(frozen=True)
class BudgetPartial(CommunicationPartial[RankBudget]):
    """Many ranks."""

    def wall_details(self, walls: Walls, options: Mapping[str, Any]) -> WallDetails:
        """Return what is known of the idle time and the communication of each device."""
        idle = {
            (key, device.device_id): idle_details(device.idle_ns)
            for key, budget in self.ranks.items()
            for device in budget.devices
            if device.idle_ns is not None
        }
        return joined_details([idle, super().wall_details(walls, options)])
