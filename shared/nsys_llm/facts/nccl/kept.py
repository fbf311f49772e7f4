"""What one rank, or many, are reduced to: integers and strings, so that merging is exact."""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.facts.nccl.sizes import RankCalls
from nsys_llm.facts.nccl.steps import CommDevice


@dataclass(frozen=True)
class RankComm:
    """One rank that communicates.

    Attributes:
        devices: Sorted by id.
        calls: NCCL's calls.
    """

    devices: tuple[CommDevice, ...]
    calls: RankCalls
