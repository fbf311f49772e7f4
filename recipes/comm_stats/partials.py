"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nsys_llm.analyses.collectives.lanes import CollectivesPartial, merged_collectives
from nsys_llm.analyses.collectives.matched import MatchedCollectives
from nsys_llm.trace.identity import RankKey

from .per_rank.experts import ExpertWork
from .per_rank.sizes import RankCalls
from .per_rank.steps import DeviceSteps


@dataclass(frozen=True)
class RankComm:
    """One rank that communicates.

    Attributes:
        devices: Sorted by id.
        calls: NCCL's calls.
        experts: Exchanges of tokens, of devices that run experts.
    """

    devices: tuple[DeviceSteps, ...]
    calls: RankCalls
    experts: tuple[ExpertWork, ...]


@dataclass(frozen=True)
class CommPartial:
    """Many ranks.

    Attributes:
        collectives: Times of communication kernels.
        ranks: What else is known of each rank that has some.
        matched: The collectives of all ranks, once these are merged; None before.
    """

    collectives: CollectivesPartial = field(default_factory=CollectivesPartial)
    ranks: Mapping[RankKey, RankComm] = field(default_factory=dict)
    matched: MatchedCollectives | None = None


def merged(parts: Sequence[CommPartial]) -> CommPartial:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    return CommPartial(
        merged_collectives([part.collectives for part in parts]),
        {key: rank for part in parts for key, rank in part.ranks.items()},
    )
