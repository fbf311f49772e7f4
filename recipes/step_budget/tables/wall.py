"""Divides classes of the table wall: idle by cause, communication as waiting and transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsys_llm.analyses.ranks.verdicts import RankVerdict
from nsys_llm.analyses.wall import of_matched
from nsys_llm.report.wall import idle_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import WallDetails, WallKey, Walls

from ..partials import BudgetPartial


def wall_details(
    partial: BudgetPartial, ranks: Sequence[Rank], walls: Walls, options: Mapping[str, Any]
) -> WallDetails:
    """Return what is known of the idle time and the communication of each device."""
    details: dict[WallKey, dict[str, Mapping[str, int]]] = {
        (key, device.device_id): dict(idle_details(device.idle_ns))
        for key, budget in partial.ranks.items()
        for device in budget.devices
        if device.idle_ns is not None
    }
    for place, parts in of_matched.wall_details(partial, ranks, walls, options).items():
        details.setdefault(place, {}).update(parts)
    return details


def with_verdicts(partial: BudgetPartial, verdicts: Sequence[RankVerdict]) -> BudgetPartial:
    """Return a partial with what was judged of ranks, for the replays of those that stand out."""
    return replace(partial, verdicts=verdicts)
