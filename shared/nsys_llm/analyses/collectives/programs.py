"""Which devices run one program: how many kernels they launch between transfers. Pure.

Ranks of one stage of a pipeline launch the same kernels between two transfers, however fast each
is; those of the next stage do not, at the turns of the schedule. How many were launched is known by
the order of the calls, whatever the GPUs did meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from nsys_llm.analyses.collectives.lanes import LaneRows
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV


class HasLanes(Protocol):
    """What has communication kernels."""

    @property
    def lanes(self) -> tuple[LaneRows, ...]:
        """Those of one device."""


def programs(devices: Sequence[HasLanes]) -> dict[int, int]:
    """Return the number of the program of each device that sends or receives, by position.

    Two captures of one program may begin or end elsewhere: what both have decides.
    """
    firsts: list[IntArray] = []
    result = {}
    for place, device in enumerate(devices):
        before_n = transfers_before_n(device)
        if before_n.size:
            ordered = np.sort(before_n)
            between_n: IntArray = ordered[1:] - ordered[:-1]
            same = (at for at, first in enumerate(firsts) if _is_same(first, between_n))
            result[place] = next(same, len(firsts))
            if result[place] == len(firsts):
                firsts.append(between_n)
    return result


def _is_same(one: IntArray, other: IntArray) -> bool:
    n = min(one.size, other.size)
    return np.array_equal(one[:n], other[:n]) or np.array_equal(
        one[one.size - n :], other[other.size - n :]
    )


def transfers_before_n(device: HasLanes) -> IntArray:
    """Return how many kernels a device had launched before each of its sends and receives."""
    lanes = [lane.before_n for lane in device.lanes if lane.operation == SEND_RECV]
    return np.concatenate([np.empty(0, dtype=np.int64), *lanes])
