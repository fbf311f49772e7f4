"""How sure it is that ranks had their collectives together, and nobody else took part. Pure.

High and medium need all three: the ranks meet in nearly all of the collectives, they are certainly
one communicator (`cohesion`), and no rank outside leaves with them (`outsiders`). Sums and findings
leave out what has low confidence.
"""

from __future__ import annotations

from typing import Final

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
