"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.job.partial import CommunicationPartial

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


CommPartial = CommunicationPartial[RankComm]
