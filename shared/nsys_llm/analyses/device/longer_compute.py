"""By how much a rank computes longer than the others: the one number that all recipes tell."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def longer_pct(own_ns: int, others_ns: Sequence[int]) -> float:
    """Return by how much a rank's computation is longer than the median of the others, in percent.

    Args:
        own_ns: Summed time of its kernels inside the windows, communication left out.
        others_ns: The same of each other rank; at least one, and not 0 in the median.
    """
    return 100.0 * (own_ns / median(others_ns) - 1)
