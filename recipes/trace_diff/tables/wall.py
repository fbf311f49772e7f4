"""Divides classes of the table wall of each side: idle by cause, waiting and transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.analyses.collectives.lanes import CollectivesPartial
from nsys_llm.analyses.collectives.matched import match_collectives
from nsys_llm.analyses.wall.communication_split import communication_details
from nsys_llm.report.wall import idle_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import WallDetails, WallKey, Walls

from ..partials import DiffPartial


def wall_details(
    partial: DiffPartial, ranks: Sequence[Rank], walls: Walls, options: Mapping[str, Any]
) -> WallDetails:
    """Return what is known of the classes of each device of each side."""
    details: dict[WallKey, dict[str, Mapping[str, int]]] = {}
    for side, part in partial.sides.items():
        for key, sums in part.ranks.items():
            for device in sums.devices:
                known = {} if device.idle_ns is None else idle_details(device.idle_ns)
                details[key, device.device_id] = dict(known)
        lanes = CollectivesPartial({key: sums.lanes for key, sums in part.ranks.items()})
        selected = [rank for rank in ranks if rank.key.side == side]
        collectives = match_collectives(lanes, selected, options)
        for place, parts in communication_details(collectives, walls).items():
            details[place].update(parts)
    return details
