"""Divides classes of the table wall: idle by cause, communication as waiting and transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsys_llm.analyses.collectives.lanes import CollectivesPartial
from nsys_llm.analyses.collectives.matched import MatchedCollectives, match_collectives
from nsys_llm.analyses.ranks.judge import judged
from nsys_llm.analyses.ranks.verdicts import RankVerdict
from nsys_llm.analyses.wall.communication_split import communication_details
from nsys_llm.report.wall import idle_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import UNREAD_N, JobWalls, WallDetails, WallKey, Walls

from ..partials import BudgetPartial


def collectives(partial: BudgetPartial) -> CollectivesPartial:
    """Return the communication kernels of all ranks."""
    return CollectivesPartial(
        {key: budget.lanes for key, budget in partial.ranks.items() if budget.lanes}
    )


def matched(
    partial: BudgetPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> MatchedCollectives:
    """Return the collectives of all ranks; those that `prepare` has matched, where it has."""
    if partial.matched is not None:
        return partial.matched
    return match_collectives(collectives(partial), ranks, options)


def prepare(
    partial: BudgetPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> BudgetPartial:
    """Return a merged partial with its collectives matched, for the wall split and all tables."""
    return replace(partial, matched=matched(partial, ranks, options))


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
    unread = bool(options.get(UNREAD_N))
    every = matched(partial, ranks, options)
    for place, parts in communication_details(every, walls, unread=unread).items():
        details.setdefault(place, {}).update(parts)
    return details


def with_verdicts(partial: BudgetPartial, verdicts: Sequence[RankVerdict]) -> BudgetPartial:
    """Return a partial with what was judged of ranks, for the replays of those that stand out."""
    return replace(partial, verdicts=verdicts)


def rank_verdicts(
    partial: BudgetPartial, job: JobWalls, options: Mapping[str, Any]
) -> list[RankVerdict]:
    """Return what is told of each GPU beside its peers."""
    return judged(job, matched(partial, job.ranks, options))
