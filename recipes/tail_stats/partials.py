"""What one rank, or many, are reduced to: a field for each part of the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nsys_llm.analyses.collectives.lanes import merged_collectives
from nsys_llm.analyses.collectives.profiler import HeldDevices, merged_held
from nsys_llm.analyses.wall.of_matched import CommunicationPartial

from .per_rank.kernels import KernelTails, merged_kernels


@dataclass(frozen=True)
class TailPartial(CommunicationPartial):
    """Many ranks; integers and strings only.

    Attributes:
        kernels: Durations by launch configuration, and the longest launches.
        held: When devices were idle because of the profiler.
    """

    kernels: KernelTails = field(default_factory=KernelTails)
    held: HeldDevices = field(default_factory=HeldDevices)


def merged(parts: Sequence[TailPartial]) -> TailPartial:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    return TailPartial(
        kernels=merged_kernels([part.kernels for part in parts]),
        collectives=merged_collectives([part.collectives for part in parts]),
        held=merged_held([part.held for part in parts]),
    )
