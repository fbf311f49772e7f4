"""What one rank, or many, are reduced to: a field for each part of the recipe."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsys_llm.facts.held import HeldDevices
from nsys_llm.job.partial import CommunicationPartial

from .per_rank.kernels import KernelTails


@dataclass(frozen=True)
class TailPartial(CommunicationPartial[None]):
    """Many ranks; integers and strings only.

    Attributes:
        kernels: Durations by launch configuration, and the longest launches.
        held: When devices were idle because of the profiler.
    """

    kernels: KernelTails = field(default_factory=KernelTails)
    held: HeldDevices = field(default_factory=dict)
