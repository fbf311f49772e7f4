"""How sure it is that ranks had their collectives together, and nobody else took part. Pure.

High and medium need all four: the ranks meet in nearly all of the collectives, they are certainly
one communicator (`cohesion`), no rank outside leaves with them (`outsiders`), and nothing tells of
more members (`Told`). Sums and findings leave out what has low confidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.job.collectives.matching import Lane, Matched
from nsys_llm.taxonomy.communication import SEND_RECV, members_n, operation_of

LOW_CONFIDENCE: Final = "low"

#: Collectives and share that overlap, in percent, from which ranks do meet.
_SURE: Final = (10, 99)
_LIKELY: Final = (3, 90)


def met_confidence(collectives_n: int, met_n: int) -> str:
    """Return high, medium or low, by how often all ranks of a sequence meet."""
    met_pct = 100 * met_n / max(collectives_n, 1)
    for word, (least_n, least_pct) in (("high", _SURE), ("medium", _LIKELY)):
        if collectives_n >= least_n and met_pct >= least_pct:
            return word
    return LOW_CONFIDENCE


@dataclass(frozen=True)
class Told:
    """What ids, sizes and names tell of communicators.

    Attributes:
        owners: Of each id, the devices whose calls name it.
        sizes: Of those that were made in the capture, how many ranks.
    """

    owners: Mapping[int, frozenset[int]]
    sizes: Mapping[int, int]

    @classmethod
    def of(cls, lanes: Sequence[Lane], sizes: Iterable[tuple[int, int]]) -> Told:
        """Take it from all lanes, and from pairs of an id and a number of ranks."""
        owners: dict[int, frozenset[int]] = {}
        for lane in lanes:
            for comm in np.unique(lane.comm).tolist():
                owners[comm] = owners.get(comm, frozenset()) | {lane.owner}
        return cls(owners, dict(sizes))

    def doubted(self, matched: Matched) -> Matched:
        """Return a sequence, doubted if its communicator has other members, too."""
        kernel, here = matched.lanes[0].kernel, {lane.owner for lane in matched.lanes}
        if operation_of(kernel) == SEND_RECV:  # of two at a time
            return matched
        pairs = zip(matched.lanes, matched.rows, strict=True)
        ids = [np.unique(lane.comm[rows]).tolist() for lane, rows in pairs if lane.comm.size]
        comms = {comm for some in ids for comm in some}
        least_n = max([members_n(kernel), *(self.sizes.get(comm, 0) for comm in comms)])
        has_more = len(here) < least_n or any(self.owners[comm] - here for comm in comms)
        return replace(matched, is_doubted=matched.is_doubted or has_more)
