"""Which devices of ranks are compared with each other. Pure numpy."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray

#: Share of the compute time of its rank's busiest device from which a device has peers; ours. A
#: context that PyTorch opens by mistake has a few fills.
_FAIR_SHARE: Final = 0.1


def device_places(rank: IntArray, device_id: IntArray, compute_ns: IntArray) -> IntArray:
    """Return for each device its place in its rank, from 0: devices are compared by place.

    Devices of one process have different work as a rule, so each is compared with those at the same
    place of other ranks, in order of ids. A device with next to none of its rank's work takes no
    place from the others: it has one after all of them, that no other device has. A single rank has
    nothing but its devices to compare: all have place 0.

    Args:
        rank: Shape (devices,), which rank each is of.
        device_id: Shape (devices,), CUDA device ids.
        compute_ns: Shape (devices,), time of kernels other than communication.
    """
    devices_n = rank.size
    place = np.zeros(devices_n, dtype=np.int64)
    if np.unique(rank).size < 2:
        return place
    ranks, code = np.unique(rank, return_inverse=True)
    most_ns = np.zeros(ranks.size, dtype=np.int64)
    np.maximum.at(most_ns, code, compute_ns)
    working = compute_ns >= _FAIR_SHARE * most_ns[code]
    order = np.lexsort((device_id, ~working, code))
    first = np.searchsorted(code[order], code[order])
    place[order] = np.arange(devices_n) - first
    return np.where(working, place, devices_n + np.arange(devices_n))
