"""What recipes that match collectives give the table wall and the judge of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nsys_llm.analyses.collectives.lanes import CollectivesPartial
from nsys_llm.analyses.collectives.matched import MatchedCollectives, match_collectives
from nsys_llm.analyses.ranks.judge import judged
from nsys_llm.analyses.ranks.verdicts import RankVerdict
from nsys_llm.analyses.wall.communication_split import communication_details
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import UNREAD_N, JobWalls, WallDetails, Walls


@dataclass(frozen=True)
class CommunicationPartial:
    """Many ranks, with their communication.

    Attributes:
        collectives: Times of communication kernels.
        matched: The collectives of all ranks, once these are merged; None before.
    """

    collectives: CollectivesPartial = field(default_factory=CollectivesPartial)
    matched: MatchedCollectives | None = None


_Partial = TypeVar("_Partial", bound=CommunicationPartial)


def collectives(partial: CommunicationPartial) -> CollectivesPartial:
    """Return the communication kernels of all ranks."""
    return partial.collectives


def matched(
    partial: CommunicationPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> MatchedCollectives:
    """Return the collectives of all ranks; those that `prepare` has matched, where it has."""
    if partial.matched is not None:
        return partial.matched
    return match_collectives(partial.collectives, ranks, options)


def prepare(partial: _Partial, ranks: Sequence[Rank], options: Mapping[str, Any]) -> _Partial:
    """Return a merged partial with its collectives matched, for the wall split and all tables."""
    return replace(partial, matched=matched(partial, ranks, options))


def wall_details(
    partial: CommunicationPartial, ranks: Sequence[Rank], walls: Walls, options: Mapping[str, Any]
) -> WallDetails:
    """Return waiting and transfer of each device that communicates with others."""
    every = matched(partial, ranks, options)
    return communication_details(every, walls, unread=bool(options.get(UNREAD_N)))


def rank_verdicts(
    partial: CommunicationPartial, job: JobWalls, options: Mapping[str, Any]
) -> list[RankVerdict]:
    """Return what is told of each GPU beside its peers."""
    return judged(job, matched(partial, job.ranks, options))
