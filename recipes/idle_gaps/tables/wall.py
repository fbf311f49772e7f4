"""Divides the idle class of the table wall by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.report.wall import idle_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import WallDetails, Walls

from ..partials import IdlePartial


def wall_details(
    partial: IdlePartial, _ranks: Sequence[Rank], _walls: Walls, _options: Mapping[str, Any]
) -> WallDetails:
    """Return the idle time of each device by cause."""
    return {
        (key, device.device_id): idle_details(device.sums.time_ns)
        for key, rank in partial.ranks.items()
        for device in rank.devices
        if device.sums is not None
    }
