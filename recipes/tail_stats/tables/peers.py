"""Which devices are compared with each other, and how sure a ratio to the others' launches is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import medians_of_others

from ..per_rank.times import MOST_PARTS, TimeParts

#: Share of the compute time of its rank's busiest device from which a device has a place; ours. A
#: context that PyTorch opens by mistake has a few fills.
_FAIR_SHARE: Final = 0.1
#: Parts of a window from which their scatter says how sure their mean is; ours.
_LEAST_PARTS: Final = 16


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


def ratios_by_parts(
    group: IntArray, parts: Sequence[TimeParts], rows_n: Sequence[int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each row's mean ratio to the medians of the others of its group, and its error.

    The error is the standard one, by how the ratio scatters over equal parts of the window: what
    varies alike on all ranks, as longer contexts do, is no scatter. Both are NaN where fewer than
    `_LEAST_PARTS` parts have launches of the row and of another one.

    Args:
        group: Shape (rows,), rows of all ranks; those with one code are compared.
        parts: Of each rank, see `per_rank.times`.
        rows_n: Rows of each rank, in the same order.
    """
    first = np.cumsum([0, *rows_n]).tolist()
    row = joined([at + part.row.astype(np.int64) for at, part in zip(first, parts, strict=False)])
    at = joined([part.part.astype(np.int64) for part in parts])
    p50 = joined([part.twice_p50_ns.astype(np.int64) for part in parts]).astype(np.float64)
    others = medians_of_others(group[row] * MOST_PARTS + at, p50)
    known = others > 0
    row, shift = row[known], p50[known] / others[known]
    n = np.bincount(row, minlength=group.size)
    mean = np.bincount(row, shift, minlength=group.size) / np.maximum(n, 1)
    squares = np.bincount(row, (shift - mean[row]) ** 2, minlength=group.size)
    error = np.sqrt(squares / np.maximum(n * (n - 1), 1))
    enough = n >= _LEAST_PARTS
    return np.where(enough, mean, np.nan), np.where(enough, error, np.nan)
