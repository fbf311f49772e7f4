"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.analyses.wall.of_matched import CommunicationPartial
from nsys_llm.trace.identity import RankKey

from .per_rank.sizes import RankCalls
from .per_rank.steps import CommDevice


@dataclass(frozen=True)
class RankComm:
    """One rank that communicates.

    Attributes:
        devices: Sorted by id.
        calls: NCCL's calls.
    """

    devices: tuple[CommDevice, ...]
    calls: RankCalls


@dataclass(frozen=True)
class CommPartial(CommunicationPartial):
    """Many ranks.

    Attributes:
        ranks: What else is known of each rank that has some.
    """

    ranks: Mapping[RankKey, RankComm] = field(default_factory=dict)
