"""Whether ranks are stages of a pipeline, by what one recipe sees of each: its sends and receives.

Ranks that exchange data with all others (an all-to-all made of sends and receives) do so equally
often. In a chain of stages the first and the last have one neighbor and the others two, so they
send and receive less often, at the same time and with as much computation. What such ranks wait for
is their schedule. Pure; `tail_stats` matches the transfers and knows more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Fewer ranks may exchange data in any way.
_LEAST_STAGES: Final = 3
#: The ends of a chain send and receive less often than the others by this, in percent, at least: 12
#: in an interleaved schedule of 4 chunks a rank. Captures of equals differ by a call or two.
_FEWER_PCT: Final = 5
#: Fewer sends and receives than these a rank show no schedule.
_LEAST: Final = 8


def end_stages(transfers_n: Sequence[int]) -> list[int]:
    """Return which ranks are the ends of chains of stages, by position; empty if there is no chain.

    Args:
        transfers_n: Kernels of each rank that send or receive.
    """
    if len(transfers_n) < _LEAST_STAGES or min(transfers_n) < _LEAST:
        return []
    least_n, most_n = min(transfers_n), max(transfers_n)
    if 100 * least_n > (100 - _FEWER_PCT) * most_n:
        return []
    ends = [place for place, n in enumerate(transfers_n) if 2 * n <= least_n + most_n]
    # The others have two neighbors each, so there are at most two ends to each of them.
    return ends if len(ends) <= 2 * (len(transfers_n) - len(ends)) else []


def may_be_two_stages(transfers_n: Sequence[int]) -> bool:
    """Return whether two ranks send and receive so often that they may be stages of a pipeline.

    Their counts are alike then as those of equals are; `tail_stats` can tell them apart.
    """
    return len(transfers_n) == 2 and min(transfers_n) >= _LEAST
