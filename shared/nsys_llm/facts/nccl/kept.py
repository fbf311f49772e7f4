"""NCCL's calls of one rank. Integers and strings, which merge exactly."""

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
