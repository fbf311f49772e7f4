"""How sure it is that ranks had their collectives together, and nobody else took part. Pure.

High and medium need all three: the ranks meet in nearly all of the collectives, they are certainly
one communicator (`cohesion`), and no rank outside leaves with them (`outsiders`). Sums and findings
leave out what has low confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.cohesion import is_one_communicator, sampled
from nsys_llm.analyses.collectives.outsiders import Party, shared_with_outsiders
from nsys_llm.numeric.intervals import IntArray

LOW_CONFIDENCE: Final = "low"

#: Collectives and share that overlap, in percent, from which ranks do meet.
_SURE: Final = (10, 99)
_LIKELY: Final = (3, 90)


@dataclass(frozen=True)
class Meetings:
    """Executions of one kernel by ranks that have them together, or by one rank alone.

    Attributes:
        kernel: What all of them run.
        owners: Devices, by position.
        start_ns: For each device, shape (executions,), on the common clock.
        end_ns: Likewise.
    """

    kernel: str
    owners: tuple[int, ...]
    start_ns: tuple[IntArray, ...]
    end_ns: tuple[IntArray, ...]

    @property
    def party(self) -> Party:
        """Its ranks, as others see them."""
        return Party.of(self.owners, self.start_ns, self.end_ns)

    @property
    def is_cohesive(self) -> bool:
        """Whether its ranks are certainly one communicator."""
        some = sampled(self.start_ns[0].size)
        start, end = (np.stack([item[some] for item in t]) for t in (self.start_ns, self.end_ns))
        return bool(some.size) and is_one_communicator(start, end)


def met_confidence(collectives_n: int, met_n: int) -> str:
    """Return high, medium or low, by how often all ranks of a sequence meet."""
    met_pct = 100 * met_n / max(collectives_n, 1)
    for word, (least_n, least_pct) in (("high", _SURE), ("medium", _LIKELY)):
        if collectives_n >= least_n and met_pct >= least_pct:
            return word
    return LOW_CONFIDENCE


def alone(matched: Sequence[Meetings], others: Sequence[Meetings]) -> list[bool]:
    """Return for each cohesive sequence whether no rank outside takes part in it.

    Args:
        matched: Those sequences.
        others: What is in none of them, by device and stream.
    """
    is_alone = [True] * len(matched)
    by_kernel: dict[str, list[int]] = {}
    for place, meetings in enumerate(matched):
        by_kernel.setdefault(meetings.kernel, []).append(place)
    for kernel, places in by_kernel.items():
        parties = [matched[place].party for place in places]
        parties += [other.party for other in others if other.kernel == kernel]
        for place, shared in zip(
            places, shared_with_outsiders(parties, range(len(places))), strict=True
        ):
            is_alone[place] = not shared
    return is_alone
