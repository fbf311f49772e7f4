"""Whether two devices that send and receive compute in turn, as stages of a pipeline do. Pure.

Ranks that are alike run one program: between two of their transfers both launch the same kernels,
however fast each is. Of two pipeline stages, the first launches a forward pass before it sends,
while the second one waits, and the second runs forward and backward while the first runs one. How
many kernels were launched is known by the order of the calls, whatever the GPUs did meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.matched import Device, Sequenced
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

#: Between two transfers it is one device's turn if it launches so many times as many kernels as the
#: other, and more by this part of what a device launches where it launches most (the 90th
#: percentile); ours. A forward pass is a third of a microbatch.
_TIMES: Final = 2
_LEAST_PART: Final = 0.25
_MOST_PCT: Final = 90
#: A schedule repeats: so much of the turns is the same after one period as before, of these at
#: least; ours. Experts that are launched one by one, as tokens need them, take turns by chance, and
#: a quarter of theirs is.
_SAME: Final = 0.45
_LEAST_REPEATED: Final = 5
#: Each of the two has to do so at least so often.
_LEAST_TURNS: Final = 2
#: Stages share a model: the turns of one have this part of the kernels of the other's, or more.
_BALANCED: Final = 0.25


def turns_pct(pairs: Sequence[Sequenced], devices: Sequence[Device]) -> float:
    """Return the share of the kernels of two devices that are launched in turn, in percent.

    Args:
        pairs: Their sends and receives.

    Returns:
        100 where one computes while the other never does, 0 for equals.
    """
    # As the programs have them: transfers under way at once end in any order.
    left, right = np.diff(np.maximum.accumulate(launched_n(pairs, devices), axis=1))
    more, most = np.abs(left - right), np.maximum(left, right)
    least = max(_LEAST_PART * float(np.percentile(most, _MOST_PCT)), 1.0) if most.size else 1.0
    lopsided = (more >= least) & (most >= _TIMES * np.minimum(left, right))
    alone = [lopsided & (left > right), lopsided & (right > left)]
    ahead_n = [int(more[item].sum()) for item in alone]
    often = min(int(item.sum()) for item in alone) >= _LEAST_TURNS
    if (
        not often
        or not _is_repeated(left, right, lopsided)
        or min(ahead_n) < _BALANCED * max(ahead_n)
    ):
        return 0.0
    return 100.0 * 2 * min(ahead_n) / max(int((left + right).sum()), 1)


def launched_n(pairs: Sequence[Sequenced], devices: Sequence[Device]) -> IntArray:
    """Return how many kernels two devices had launched before each transfer; shape (2, n)."""
    work = np.stack(
        [np.concatenate([before_n(item, devices, place) for item in pairs]) for place in (0, 1)]
    )
    return work[:, np.lexsort((work[0], work.sum(axis=0)))]


def _is_repeated(left: IntArray, right: IntArray, turn: npt.NDArray[np.bool_]) -> bool:
    """Return whether the turns are the same again some number of transfers later, throughout."""
    for period in range(1, left.size // 2 + 1):
        again = (left[period:] == left[:-period]) & (right[period:] == right[:-period])
        compared = turn[:-period]
        if compared.sum() < _LEAST_REPEATED:
            return False
        if again[compared].mean() >= _SAME:
            return True
    return False


def before_n(sequence: Sequenced, devices: Sequence[Device], place: int) -> IntArray:
    """Return how many kernels a device had launched before each transfer."""
    lanes = [lane for lane in devices[sequence.owners[place]].lanes if lane.operation == SEND_RECV]
    starts = np.concatenate([lane.start_ns for lane in lanes])
    before_n = np.concatenate([lane.before_n for lane in lanes])
    order = np.argsort(starts, kind="stable")
    start_ns = sequence.start_ns[place] + sequence.ahead_ns[place]
    return before_n[order][np.searchsorted(starts[order], start_ns)]
