"""Matches the collectives of each side, and divides its classes of the table wall by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsys_llm.analyses.collectives.lanes import CollectivesPartial
from nsys_llm.analyses.collectives.matched import MatchedCollectives, match_collectives
from nsys_llm.analyses.wall.communication_split import communication_details
from nsys_llm.report.wall import idle_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import WallDetails, WallKey, Walls

from ..partials import DiffPartial, SidePart


def matched(
    part: SidePart, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> MatchedCollectives:
    """Return the collectives of a side; those that `prepare` has matched, where it has.

    Args:
        part: What its ranks were reduced to.
        ranks: Of this side, or of all.
        options: disable_alignment.
    """
    if part.matched is not None:
        return part.matched
    lanes = {key: sums.lanes for key, sums in part.ranks.items() if sums.lanes}
    selected = [rank for rank in ranks if rank.key in part.ranks]
    return match_collectives(CollectivesPartial(lanes), selected, options)


def prepare(partial: DiffPartial, ranks: Sequence[Rank], options: Mapping[str, Any]) -> DiffPartial:
    """Return a merged partial with its collectives matched, for the wall split and all tables."""
    sides = {
        side: replace(part, matched=matched(part, ranks, options))
        for side, part in partial.sides.items()
    }
    return DiffPartial(sides)


def wall_details(
    partial: DiffPartial, ranks: Sequence[Rank], walls: Walls, options: Mapping[str, Any]
) -> WallDetails:
    """Return what is known of the classes of each device of each side."""
    details: dict[WallKey, dict[str, Mapping[str, int]]] = {}
    for part in partial.sides.values():
        for key, sums in part.ranks.items():
            for device in sums.devices:
                known = {} if device.idle_ns is None else idle_details(device.idle_ns)
                details[key, device.device_id] = dict(known)
        collectives = matched(part, ranks, options)
        for place, parts in communication_details(collectives, walls).items():
            details[place].update(parts)
    return details
