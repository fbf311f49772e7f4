"""Whether collectives wait or transfer, and what cannot be told. Pure.

The four classes are those that vllm-project/vllm#52777 asks for; 60 and 40 % are ours.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.collectives.waits import THIRDS
from nsys_llm.numeric.intervals import IntArray

TRANSFER: Final = "transfer"
SKEW: Final = "skew"
MIXED: Final = "mixed"
INCONCLUSIVE: Final = "inconclusive"

#: Share of waiting in the summed durations, in percent: above, skew; below, transfer.
SKEW_PCT: Final = 60
TRANSFER_PCT: Final = 40


def classes(
    wait_ns: IntArray, total_ns: IntArray, doubt_ns: IntArray, met: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Return the class of each collective, as text.

    Args:
        wait_ns: Shape (n,), waiting of all ranks.
        total_ns: Shape (n,), time of all ranks in it.
        doubt_ns: Shape (n,), by how much the clocks may be wrong, summed over the ranks.
        met: Shape (n,), whether all ranks were in it at once.
    """
    high = 100 * (wait_ns + doubt_ns) > SKEW_PCT * total_ns
    low = 100 * np.maximum(wait_ns - doubt_ns, 0) < TRANSFER_PCT * total_ns
    # What may be either, within the doubt, is neither.
    untold = ~met | (total_ns <= 0) | (high & low)
    skew = 100 * wait_ns > SKEW_PCT * total_ns
    transfer = 100 * wait_ns < TRANSFER_PCT * total_ns
    texts = np.array([INCONCLUSIVE, SKEW, TRANSFER, MIXED], dtype=object)
    return texts[np.select([untold, skew, transfer], [0, 1, 2], default=3)]


def third_sizes(n: int) -> IntArray:
    """Return how many of n collectives, in order of time, are in each third of them."""
    return np.diff(-(-n * np.arange(THIRDS + 1) // THIRDS))
